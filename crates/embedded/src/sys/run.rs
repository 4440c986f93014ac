//! Runs of a peer's pages, mapped one after the other.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::NonNull;

use grantway_ring::PAGE_SIZE;

/// A peer's memory, from which pages are mapped.
#[derive(Debug)]
pub struct PageSource {
    fd: OwnedFd,
    pages: u32,
}

impl PageSource {
    /// Takes a memfd of `pages` pages. Refuses one that is smaller, or that its holder can still
    /// shrink.
    pub fn new(fd: OwnedFd, pages: u32) -> Result<Self> {
        let size = rustix::fs::fstat(&fd)?.st_size;
        let sealed = rustix::fs::fcntl_get_seals(&fd)?;
        if !sealed.contains(rustix::fs::SealFlags::SHRINK)
            || u64::try_from(size).map_or(true, |size| size < u64::from(pages) * PAGE_SIZE as u64)
        {
            return Err(Errno::INVAL);
        }
        Ok(Self { fd, pages })
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }
}

/// Pages mapped one after the other, and unmapped together when dropped.
#[derive(Debug)]
pub struct PageRun {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only an address range that is unmapped by its only owner.
unsafe impl Send for PageRun {}
// SAFETY: as above; it gives out nothing but the address.
unsafe impl Sync for PageRun {}

impl PageRun {
    /// Maps `frames` of `source`, all or nothing.
    pub fn map(source: &PageSource, frames: &[u32], writable: bool) -> Result<Self> {
        if frames.is_empty() || frames.iter().any(|&frame| frame >= source.pages) {
            return Err(Errno::INVAL);
        }
        let bytes = frames.len().checked_mul(PAGE_SIZE).ok_or(Errno::NOMEM)?;
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, writable);
        // A map leaves nothing to a later fault, as on the hypervisor.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        if let &[frame] = frames {
            // SAFETY: a fresh mapping at an address of the kernel's choice.
            let at = unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    prot,
                    flags,
                    source.fd.as_fd(),
                    u64::from(frame) * PAGE_SIZE as u64,
                )?
            };
            let base = NonNull::new(at.cast::<u8>()).ok_or(Errno::NOMEM)?;
            return Ok(Self { base, bytes });
        }
        // SAFETY: a fresh reservation at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let base = NonNull::new(at.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // From here on, dropping `run` takes back any part that is mapped.
        let run = Self { base, bytes };
        let mut page = 0;
        // Frames in a row are one mapping.
        for row in frames.chunk_by(|&one, &next| next == one.wrapping_add(1)) {
            // SAFETY: `page` pages into the reservation made above, which belongs to
            // nobody else and has no references into it; all rows together are as
            // long as it is.
            unsafe {
                let at = base.as_ptr().add(page * PAGE_SIZE);
                rustix::mm::mmap(
                    at.cast::<c_void>(),
                    row.len() * PAGE_SIZE,
                    prot,
                    flags | MapFlags::FIXED,
                    source.fd.as_fd(),
                    row.first().map_or(0, |&frame| u64::from(frame) * PAGE_SIZE as u64),
                )?;
            }
            page += row.len();
        }
        Ok(run)
    }

    /// Returns the address of the first page.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for PageRun {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` made; whoever holds pointers
        // into it holds this value too.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
    }
}
