//! Memory that processes share: sealed memfds, and mappings of them.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Makes sparse, zeroed shared memory. Its size is sealed: nobody who gets the descriptor can make
/// another's mapping of it fault.
pub fn shared_memory(name: &str, bytes: usize) -> Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd)
}

/// Limits the descriptor to mappings for reading from now on; mappings that are there already stay
/// writable.
pub fn seal_for_readers(fd: impl AsFd) -> Result<()> {
    rustix::fs::fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

/// A shared mapping of a whole memfd.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is reached through atomics or raw pointers only, which
// any thread may use; it goes with its only owner.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes. Refuses a descriptor with fewer, which would fault later.
    pub fn of(fd: impl AsFd, bytes: usize, writable: bool) -> Result<Self> {
        let size = rustix::fs::fstat(&fd)?.st_size;
        if bytes == 0 || usize::try_from(size).map_or(true, |size| size < bytes) {
            return Err(Errno::INVAL);
        }
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, writable);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches
        // no memory that is in use.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, fd, 0)?
        };
        let base = NonNull::new(at.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, bytes })
    }

    /// Returns the address of the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Gives the pages up but keeps the addresses taken. A user that still has them, as a peer's
    /// copy under way, then hits nothing else of ours.
    pub fn retire(self) {
        // SAFETY: replaces this very mapping, which has no references into it,
        // by one that allows nothing.
        let done = unsafe {
            rustix::mm::mmap_anonymous(
                self.base.as_ptr().cast::<c_void>(),
                self.bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )
        };
        // If even that fails, the mapping simply stays.
        let _ = done;
        std::mem::forget(self);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `of` mapped; its owner is going, and
        // references into it cannot outlive the owner.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
    }
}

/// A writable mapping as an array of atomic words.
#[derive(Debug)]
pub struct Words(Mapping);

impl Words {
    /// Maps `bytes` bytes for reading and writing.
    pub fn of(fd: impl AsFd, bytes: usize) -> Result<Self> {
        Mapping::of(fd, bytes, true).map(Self)
    }

    /// Returns 32-bit word `index`; none past the end.
    #[inline]
    pub fn word32(&self, index: usize) -> Option<&AtomicU32> {
        if index >= self.0.bytes / 4 {
            return None;
        }
        // SAFETY: inside the mapping (checked), aligned (the base is a page's),
        // and only ever reached through atomics of this size; it lives as long
        // as `self`.
        Some(unsafe { AtomicU32::from_ptr(self.0.base.cast::<u32>().add(index).as_ptr()) })
    }

    /// Returns 64-bit word `index`; none past the end.
    #[inline]
    pub fn word64(&self, index: usize) -> Option<&AtomicU64> {
        if index >= self.0.bytes / 8 {
            return None;
        }
        // SAFETY: as for `word32`; no layout mixes the two sizes.
        Some(unsafe { AtomicU64::from_ptr(self.0.base.cast::<u64>().add(index).as_ptr()) })
    }
}

/// A read-only mapping as an array of atomic words.
#[derive(Debug)]
pub struct WordsView(Mapping);

impl WordsView {
    /// Maps `bytes` bytes for reading.
    pub fn of(fd: impl AsFd, bytes: usize) -> Result<Self> {
        Mapping::of(fd, bytes, false).map(Self)
    }

    /// Loads 32-bit word `index` (acquire); 0 past the end.
    #[inline]
    pub fn load32(&self, index: usize) -> u32 {
        if index >= self.0.bytes / 4 {
            return 0;
        }
        // SAFETY: inside the mapping (checked) and aligned; 32-bit atomic loads
        // are allowed on read-only memory.
        let word = unsafe { AtomicU32::from_ptr(self.0.base.cast::<u32>().add(index).as_ptr()) };
        word.load(Ordering::Acquire)
    }
}
