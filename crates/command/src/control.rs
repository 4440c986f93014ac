//! Reports of running parts: one connection, one JSON report.
//!
//! The socket lies in the run folder. A client that connects reads one report and the end of the
//! stream. Nothing is ever read from the client, so a slow or silent one can hold nothing up.

use crate::patience;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The listening end. Its file is removed with it.
pub struct ReportSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Held once by each thread that still writes a report.
    writers: Arc<()>,
}

/// Most threads that write reports at a time.
const WRITERS_MAX: usize = 4;
/// Time that each of these threads waits for its client, and a client for its report.
const PATIENCE: Duration = Duration::from_secs(5);

impl ReportSocket {
    /// Listens at `path`, in place of a dead process's socket.
    ///
    /// # Errors
    ///
    /// A living process listens there (`AddrInUse`), or the folder cannot be written.
    pub fn bind(path: &Path) -> std::io::Result<Self> {
        Ok(Self { listener: take_place(path)?, path: path.to_owned(), writers: Arc::default() })
    }

    /// Returns the descriptor, which is readable when a client asks.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers every client that asks, without blocking.
    pub fn serve(&self, mut report: impl FnMut() -> Value) {
        while let Ok((mut client, _)) = self.listener.accept() {
            if client.set_nonblocking(true).is_err() {
                continue;
            }
            // Most reports are much shorter than a socket's buffer.
            let text = report().to_string();
            let written = client.write(text.as_bytes()).unwrap_or(0);
            if written < text.len() {
                self.write_aside(client, text, written);
            }
        }
    }

    /// Starts a thread that writes the rest of a report. If many threads write already it starts
    /// none, and the client gets only a part.
    fn write_aside(&self, mut client: UnixStream, text: String, written: usize) {
        // One reference is the socket's own, and each thread has one.
        if Arc::strong_count(&self.writers) > WRITERS_MAX {
            return;
        }
        let writer = Arc::clone(&self.writers);
        let write = move || {
            let _writer = writer;
            if client.set_nonblocking(false).is_ok()
                && client.set_write_timeout(Some(patience::answer(PATIENCE))).is_ok()
            {
                let _ = client.write_all(text.get(written..).unwrap_or("").as_bytes());
            }
        };
        let _ = std::thread::Builder::new().name("report".into()).spawn(write);
    }
}

impl Drop for ReportSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens at `path` without blocking, in place of a dead process's socket.
///
/// # Errors
///
/// A living process listens there (`AddrInUse`), or the folder cannot be written.
pub fn take_place(path: &Path) -> std::io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        return Err(std::io::Error::new(
            ErrorKind::AddrInUse,
            "another process already serves this socket; stop it first",
        ));
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the socket of the backend of a domain, in the run folder.
pub fn backend_socket(dir: &Path, domain: u16) -> PathBuf {
    dir.join(format!("backend-{domain}.sock"))
}

/// Returns the socket of a frontend, in the run folder. A domain of Xen has its folder to itself,
/// and has another number once it was restored. So no `domain` is named there.
pub fn frontend_socket(dir: &Path, domain: Option<u16>, devid: u32) -> PathBuf {
    dir.join(format!("{}.sock", frontend_name(domain, devid)))
}

/// Returns the socket at which a frontend is asked to use its control ring. `domain` is named as
/// for [`frontend_socket`].
pub fn ctl_socket(dir: &Path, domain: Option<u16>, devid: u32) -> PathBuf {
    dir.join(format!("{}.ctl", frontend_name(domain, devid)))
}

fn frontend_name(domain: Option<u16>, devid: u32) -> String {
    match domain {
        Some(domain) => format!("frontend-{domain}.{devid}"),
        None => format!("frontend-{devid}"),
    }
}

/// Fetches one report.
///
/// # Errors
///
/// No process listens, or the bytes that came are no report.
pub fn fetch(path: &Path) -> std::io::Result<Value> {
    fetch_within(path, patience::answer(PATIENCE))
}

/// Fetches one report from a part that may take `patience` to answer.
///
/// # Errors
///
/// The errors of [`fetch`].
pub fn fetch_within(path: &Path, patience: Duration) -> std::io::Result<Value> {
    let mut client = UnixStream::connect(path)?;
    client.set_read_timeout(Some(patience))?;
    let mut text = Vec::new();
    client.read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(std::io::Error::other)
}

/// Returns a moment in nanoseconds of the clock that all processes share.
pub fn nanoseconds(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns named counters as JSON, for a report.
pub fn numbers(fields: impl Iterator<Item = (&'static str, u64)>) -> Value {
    Value::Object(fields.map(|(name, n)| (name.to_string(), n.into())).collect())
}
