//! Claims: one owner for each TAP of several queues. The kernel refuses a second program only on a
//! TAP of one queue. Every program with the rights may open a queue of a TAP of several queues.
//!
//! A claim is a lock on one byte of a file that only this user may open. So no other user can
//! hold one, and a killed program gives its claims back. Programs of different users do not see
//! each other's claims: only root can have a TAP that is not its own.

use super::sys;
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use std::fs::{DirBuilder, symlink_metadata};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const FILE: &str = "taps.lock";

/// Claim of a TAP, held while a program owns it. The claim ends with the program, however it ends.
#[derive(Debug)]
pub(super) struct Claim {
    /// Lock of the interface's byte, or `None` if this user has no folder for claims.
    _lock: Option<OwnedFd>,
}

impl Claim {
    /// Claims the interface of this index in the caller's network namespace. Returns `None` if
    /// another program, or another part of this one, has claimed it.
    pub fn take(interface: u32) -> Result<Option<Claim>> {
        let Some(folder) = folder()? else { return Ok(Some(Claim { _lock: None })) };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::open(folder.join(FILE), flags, Mode::RUSR | Mode::WUSR)?;
        let place = place(namespace(), interface);
        Ok(sys::lock_byte(lock.as_fd(), place)?.then_some(Claim { _lock: Some(lock) }))
    }
}

/// Returns the folder for this user's claims of TAPs, and makes it if it is missing. Returns `None`
/// for a user without a runtime folder.
///
/// # Errors
/// The folder cannot be made, or others may write to it; the error names it.
pub fn folder() -> Result<Option<PathBuf>> {
    let own = geteuid();
    let base = match own.is_root() {
        true => PathBuf::from("/run"),
        // The login manager makes this folder for this user; others cannot write to it.
        false => PathBuf::from(format!("/run/user/{}", own.as_raw())),
    };
    if !base.is_dir() {
        return Ok(None);
    }
    let folder = base.join("grantway");
    let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", folder.display()));
    make(&folder, own.as_raw()).map_err(named)?;
    Ok(Some(folder))
}

/// Makes a folder that only its owner may write to, or checks that it is one.
fn make(folder: &Path, own: u32) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let found = symlink_metadata(folder)?;
    let wrong = |found: String, expected: &str| {
        Err(Error::new(ErrorKind::PermissionDenied, format!("{found}, expected {expected}")))
    };
    if !found.is_dir() {
        return wrong("it is no folder".into(), "one; remove it");
    }
    if found.uid() != own {
        return wrong(format!("it belongs to user {}", found.uid()), "this user; remove it");
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => wrong(format!("its mode is {:o}", found.mode() & 0o777), "700; chmod go-w"),
    }
}

/// Returns the number of the caller's network namespace; 0 if there is no `/proc`.
fn namespace() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())
}

/// Returns the byte of the file that stands for an interface. Interfaces of different namespaces
/// may have equal indices. Both numbers have 32 bits, and an index is below 2^31.
fn place(namespace: u64, interface: u32) -> u64 {
    (namespace & u64::from(u32::MAX)) << 31 | u64::from(interface & 0x7fff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn each_interface_has_a_byte_of_its_own_in_the_claims_file() {
        let most = u64::from(u32::MAX);
        let places = [(1, 1), (1, 2), (2, 1), (most, 1), (most, 0x7fff_ffff)];
        let mut places: Vec<u64> = places.map(|(space, index)| place(space, index)).to_vec();
        assert!(places.iter().all(|&place| i64::try_from(place).is_ok()));
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 5);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let (folder, own) = (base.path().join("claims"), geteuid().as_raw());
        make(&folder, own).unwrap();
        assert_eq!(symlink_metadata(&folder).unwrap().mode() & 0o777, 0o700);
        make(&folder, own).unwrap();
        // A folder that all may read may have been made by hand.
        set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        make(&folder, own).unwrap();
        for mode in [0o777, 0o720, 0o702] {
            set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            let error = make(&folder, own).unwrap_err().to_string();
            assert!(error.contains(&format!("{mode:o}")) && error.contains("chmod"), "{error}");
        }
        let other = make(&folder, own + 1).unwrap_err().to_string();
        assert!(other.contains("belongs to user"), "{other}");
        let link = base.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(make(&link, own).unwrap_err().to_string().contains("no folder"));
    }
}
