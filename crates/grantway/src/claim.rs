//! Claim of a domain by one backend: two backends would both answer its guests.

use grantway_command::error::CommandError;
use grantway_command::place::make_folder;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Lock that this process holds while it is the domain's backend. The system releases it when the
/// process ends in any way.
pub struct Claim {
    _lock: File,
}

impl Claim {
    /// Takes the claim of this file.
    ///
    /// # Errors
    ///
    /// Another process has the claim, and the error names it. Or the file cannot be opened or
    /// locked.
    pub fn take(path: &Path) -> Result<Self, CommandError> {
        let failed = |e: std::io::Error| {
            let folder = path.parent().unwrap_or(path).display();
            CommandError::Failed(format!(
                "{}: {e}; run it as a user that can write to {folder}",
                path.display()
            ))
        };
        if let Some(folder) = path.parent() {
            make_folder(folder).map_err(failed)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(held(&mut file)),
            Err(errno) => return Err(failed(errno.into())),
        }
        // The number is for the message of another process.
        let number = format!("{}\n", std::process::id());
        let written = file.set_len(0).and_then(|()| file.write_all(number.as_bytes()));
        written.map_err(failed)?;
        Ok(Self { _lock: file })
    }
}

fn held(file: &mut File) -> CommandError {
    let mut number = String::new();
    let known = file.read_to_string(&mut number).is_ok();
    let number = Some(number.trim()).filter(|number| known && !number.is_empty());
    let process = number.map(|number| format!(" (process {number})")).unwrap_or_default();
    CommandError::Failed(format!(
        "another backend{process} already serves this domain; stop it first"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_the_claim_and_the_next_one_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/backend.lock");
        let first = Claim::take(&path).unwrap();
        let error = Claim::take(&path).err().unwrap().to_string();
        let process = format!("process {}", std::process::id());
        assert!(error.contains(&process) && error.contains("stop it first"), "{error}");
        drop(first);
        drop(Claim::take(&path).unwrap());
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("lock"), folder.path().join("other"));
        std::fs::write(&other, "as it was").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(Claim::take(&path).is_err());
        assert_eq!(std::fs::read_to_string(other).unwrap(), "as it was");
    }
}
