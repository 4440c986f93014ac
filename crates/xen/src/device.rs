//! A device that is opened when it is first needed, and the errors if it cannot be opened.

use grantway_hypervisor::Error;
use rustix::io::{Errno, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A device, open or not yet.
#[derive(Debug)]
pub struct Device<T> {
    path: PathBuf,
    /// Advice if the device is missing.
    remedy: &'static str,
    open: fn(&Path) -> Result<T>,
    opened: OnceLock<Arc<T>>,
}

impl<T> Device<T> {
    /// Makes a device that is not open yet.
    pub fn new(path: PathBuf, remedy: &'static str, open: fn(&Path) -> Result<T>) -> Self {
        Self { path, remedy, open, opened: OnceLock::new() }
    }

    /// Returns the device, which all callers share. Opens it at the first call.
    pub fn get(&self) -> std::result::Result<&Arc<T>, Error> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let fresh = self.fresh()?;
        // Another thread may have been quicker; then the fresh device is closed again.
        Ok(self.opened.get_or_init(|| Arc::new(fresh)))
    }

    /// Opens the device for this caller alone.
    pub fn fresh(&self) -> std::result::Result<T, Error> {
        (self.open)(&self.path).map_err(|errno| refused(&self.path, errno, self.remedy))
    }

    /// Returns the path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the error for a device that does not open.
pub fn refused(path: &Path, errno: Errno, missing: &'static str) -> Error {
    Error::Os {
        call: format!("open {}", path.display()),
        reason: errno.to_string(),
        remedy: match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => missing,
            Errno::ACCESS | Errno::PERM => "run as root, or let a udev rule give you the device",
            Errno::MFILE | Errno::NFILE => "raise `ulimit -n`",
            _ => "look at the kernel's log (dmesg)",
        },
    }
}

/// Returns the error for a request that a driver refuses though nothing is wrong with it.
pub fn lacks(path: &Path, request: &'static str, errno: Errno) -> Error {
    Error::Os {
        call: format!("{request} by {}", path.display()),
        reason: match errno {
            Errno::NOTTY | Errno::NOSYS => "the driver of this kernel does not know it".to_owned(),
            errno => errno.to_string(),
        },
        remedy: "use Linux 4.9 or later",
    }
}

/// Returns the number in the file of a driver's parameter.
pub fn parameter(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the error for a request to an open device.
pub fn os_error(call: String, errno: Errno) -> Error {
    Error::Os {
        call,
        reason: errno.to_string(),
        remedy: match errno {
            Errno::NOMEM => "free memory in this domain, or raise vm.max_map_count",
            Errno::NOTTY | Errno::NOSYS => {
                "this kernel's driver is too old: use Linux 4.9 or later"
            }
            Errno::ACCESS | Errno::PERM => "look at the hypervisor's security policy (xl dmesg)",
            Errno::MFILE | Errno::NFILE => "raise `ulimit -n`",
            _ => "look at the kernel's log (dmesg) and the hypervisor's (xl dmesg)",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_remedy_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gntdev");
        let device = Device::new(path.clone(), "load it: modprobe xen-gntdev", |path| {
            crate::sys::Gntdev::open(path)
        });
        let error = device.get().unwrap_err().to_string();
        let expected = format!(
            "open {}: No such file or directory (os error 2); load it: modprobe xen-gntdev",
            path.display()
        );
        assert_eq!(error, expected);
        for (errno, remedy) in [
            (Errno::ACCESS, "run as root"),
            (Errno::NODEV, "modprobe"),
            (Errno::MFILE, "ulimit"),
            (Errno::IO, "dmesg"),
        ] {
            let text = refused(&path, errno, "modprobe xen-gntdev").to_string();
            assert!(text.contains(remedy) && !text.contains('\n'), "{text}");
        }
        // Once the device is there, no restart is needed.
        std::fs::write(&path, "").unwrap();
        let first = Arc::clone(device.get().unwrap());
        assert!(Arc::ptr_eq(&first, device.get().unwrap()));
    }
}
