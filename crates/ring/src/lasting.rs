//! Pages of a file: memory that outlives the process that writes it.

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
    /// Maps `pages` pages of a file. Makes the file, with zeroes, if it does not exist. Otherwise
    /// the pages have the content that was written last. Only the owner may open the file.
    ///
    /// The space is reserved before the file is mapped. On a full file system this call fails, and
    /// no later write to a page ends in SIGBUS.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened, extended or mapped, or if it belongs to
    /// another user. A symbolic link is not followed.
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
