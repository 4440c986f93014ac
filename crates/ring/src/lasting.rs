//! Pages of a file: memory that outlives the process which writes it.

use crate::memory::{PAGE_SIZE, SharedRun};
use alloc::sync::Arc;
use core::ptr::NonNull;
use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

impl SharedRun {
    /// Maps `pages` pages of a file, which is made where it is not there:
    /// zeroed the first time, and from then on what was last written. Only the
    /// file's owner may open it.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, made as long as this, or mapped.
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
            .open(path)?;
        if file.metadata()?.len() < len as u64 {
            file.set_len(len as u64)?;
        }
        let map = memmap2::MmapOptions::new().len(len).map_raw(&file)?;
        let base = NonNull::new(map.as_mut_ptr());
        let base = base.ok_or_else(|| Error::other("a mapping without an address"))?;
        // SAFETY: a mapping starts at a page and has `len` bytes, readable and
        // writable, until `map` is dropped, which the run's `keep` delays; a
        // raw map hands out no references.
        Ok(unsafe { Self::new(base, pages, Arc::new(map)) })
    }
}
