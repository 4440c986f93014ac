//! Pages of a file: memory that outlives the process which writes it.

use crate::memory::{PAGE_SIZE, SharedRun};
use alloc::format;
use alloc::sync::Arc;
use core::ptr::NonNull;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

impl SharedRun {
    /// Maps `pages` pages of a file, which is made if it is missing: zeroed the first
    /// time, and from then on what was last written. Only the file's owner may open it.
    ///
    /// The file system sets the space aside before the file is mapped: on a full one this
    /// fails here, and not by SIGBUS at the first write to a page.
    ///
    /// # Errors
    ///
    /// The file cannot be opened (a symbolic link is not followed), belongs to another
    /// user, or cannot be made as long as this or mapped.
    pub fn lasting(path: &Path, pages: usize) -> Result<Self> {
        let len = pages.checked_mul(PAGE_SIZE).filter(|&len| len > 0);
        let len =
            len.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "no pages, or too many"))?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)?;
        let (owner, own) = (file.metadata()?.uid(), rustix::process::geteuid().as_raw());
        if owner != own {
            let found = format!("it belongs to user {owner}, expected {own}; remove it");
            return Err(Error::new(ErrorKind::PermissionDenied, found));
        }
        set_aside(&file, len as u64)?;
        let map = memmap2::MmapOptions::new().len(len).map_raw(&file)?;
        let base = NonNull::new(map.as_mut_ptr());
        let base = base.ok_or_else(|| Error::other("a mapping without an address"))?;
        // SAFETY: a mapping starts at a page and has `len` bytes, readable and
        // writable, until `map` is dropped, which the run's `keep` delays; a
        // raw map hands out no references.
        Ok(unsafe { Self::new(base, pages, Arc::new(map)) })
    }
}

/// Makes a file at least so long, without holes up to there. What it holds stays.
fn set_aside(file: &File, len: u64) -> Result<()> {
    loop {
        return match fallocate(file, FallocateFlags::empty(), 0, len) {
            Err(Errno::INTR) => continue,
            // A file system that cannot promise space: then holes have to do.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if file.metadata()?.len() < len => {
                file.set_len(len)
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
            Err(errno) => Err(errno.into()),
        };
    }
}
