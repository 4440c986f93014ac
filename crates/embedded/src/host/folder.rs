//! The folder of a host: its lock and its two sockets.

use super::HostError;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::{Path, PathBuf};

/// The control socket's name in the folder.
pub const CONTROL: &str = "control";

/// The store's socket in the folder, at the place that `XENSTORED_PATH` would name.
pub const STORE: &str = "xenstored/socket";

const LOCK: &str = "lock";

/// A folder that is ours alone. The sockets go when this is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held for its flock.
    lock: OwnedFd,
    pub control: OwnedFd,
    pub store: OwnedFd,
}

impl Folder {
    /// Makes the folder if it does not exist, takes its lock, and listens.
    pub fn open(dir: &Path) -> Result<Self, HostError> {
        make(dir, dir)?;
        make(&dir.join("xenstored"), dir)?;
        let lock = lock(dir)?;
        // The lock is ours, so sockets that lie there are a dead host's.
        let control = listen(&dir.join(CONTROL), SocketType::SEQPACKET)?;
        let store = listen(&dir.join(STORE), SocketType::STREAM)?;
        Ok(Self { path: dir.to_owned(), lock, control, store })
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for socket in [CONTROL, STORE] {
            let _ = std::fs::remove_file(self.path.join(socket));
        }
        // The lock is ended by hand: a child that another thread has just forked holds the
        // descriptor, too, until it becomes its program.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

fn make(path: &Path, dir: &Path) -> Result<(), HostError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    match made {
        Ok(()) => Ok(()),
        Err(e)
            if e.kind() == std::io::ErrorKind::AlreadyExists
                || e.kind() == std::io::ErrorKind::NotADirectory =>
        {
            Err(HostError::NotFolder { dir: dir.to_owned() })
        }
        Err(e) => Err(HostError::NotWritable {
            path: path.to_owned(),
            reason: Errno::from_io_error(&e).unwrap_or(Errno::IO),
        }),
    }
}

fn lock(dir: &Path) -> Result<OwnedFd, HostError> {
    let path = dir.join(LOCK);
    let refused = |reason| HostError::NotWritable { path: path.clone(), reason };
    let fd = rustix::fs::open(
        &path,
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )
    .map_err(refused)?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let pid = std::fs::read_to_string(&path)
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0);
            return Err(HostError::Busy { dir: dir.to_owned(), pid });
        }
        Err(reason) => return Err(refused(reason)),
    }
    rustix::fs::ftruncate(&fd, 0).map_err(refused)?;
    let pid = format!("{}\n", std::process::id());
    rustix::io::write(&fd, pid.as_bytes()).map_err(refused)?;
    Ok(fd)
}

fn listen(path: &Path, kind: SocketType) -> Result<OwnedFd, HostError> {
    let refused = |reason| HostError::NotWritable { path: path.to_owned(), reason };
    let address =
        SocketAddrUnix::new(path).map_err(|_| HostError::PathTooLong { path: path.to_owned() })?;
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(reason) => return Err(refused(reason)),
    }
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map_err(HostError::os("socket"))?;
    rustix::net::bind(&socket, &address).map_err(refused)?;
    rustix::net::listen(&socket, 128).map_err(HostError::os("listen"))?;
    Ok(socket)
}
