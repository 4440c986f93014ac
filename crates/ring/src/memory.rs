//! Memory that a peer can write while we look at it.
//!
//! No `&` or `&mut` ever refers to such memory: a [`SharedPage`] is a raw
//! pointer that keeps its mapping alive, and bytes leave or enter it by copies
//! that the compiler may neither repeat nor skip. Whoever reads from a page
//! must judge the private copy, and nothing but the copy.

use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

/// Bytes in a page, and the most that one grant covers.
pub const PAGE_SIZE: usize = 4096;

/// Whoever keeps a run of pages mapped; dropping it unmaps the run whole.
pub trait Keep: Send + Sync {}

impl<T: Send + Sync> Keep for T {}

/// A copy that would have left its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} do not lie within a page of {PAGE_SIZE} bytes")]
pub struct OutOfPage {
    /// Offset in the page where the copy was to start.
    pub offset: usize,
    /// Length of the copy in bytes.
    pub len: usize,
}

/// A run of pages, one mapping, shared with a peer.
///
/// Clones refer to the same mapping; it goes when the last of them, and the
/// last [`SharedPage`] taken from them, is dropped.
#[derive(Clone)]
pub struct SharedRun {
    base: NonNull<u8>,
    pages: usize,
    keep: Arc<dyn Keep>,
}

// SAFETY: the pointer is only ever used for volatile copies, which any thread
// may do; `keep` is Send + Sync and holds the mapping.
unsafe impl Send for SharedRun {}
// SAFETY: as above; concurrent volatile access is what the memory is for, and
// no reference to it is ever made.
unsafe impl Sync for SharedRun {}

impl SharedRun {
    /// Takes over a mapping of `pages` pages at `base`.
    ///
    /// # Safety
    ///
    /// `base` is page-aligned and valid for reads and writes of
    /// `pages * PAGE_SIZE` bytes until `keep` is dropped (for a read-only
    /// mapping: for reads, and the caller never writes), and no Rust
    /// reference to any of it exists.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, pages: usize, keep: Arc<dyn Keep>) -> Self {
        Self { base, pages, keep }
    }

    /// Number of pages in the run.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Page `index` of the run, or `None` past its end.
    #[must_use]
    pub fn page(&self, index: usize) -> Option<SharedPage> {
        if index >= self.pages {
            return None;
        }
        // SAFETY: `index` is below `pages`, so the sum stays inside the
        // mapping that `new` was promised.
        let at = unsafe { self.base.add(index * PAGE_SIZE) };
        Some(SharedPage { at, _keep: Arc::clone(&self.keep) })
    }
}

impl fmt::Debug for SharedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRun({} pages at {:p})", self.pages, self.base)
    }
}

/// One page shared with a peer.
#[derive(Clone)]
pub struct SharedPage {
    at: NonNull<u8>,
    _keep: Arc<dyn Keep>,
}

// SAFETY: see SharedRun.
unsafe impl Send for SharedPage {}
// SAFETY: see SharedRun.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Address of the first byte, for system calls that take an address (an
    /// iovec) and for the ring, which lives in the page.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.at
    }

    /// Copies `dst.len()` bytes out of the page, once.
    ///
    /// # Errors
    ///
    /// [`OutOfPage`] when the range does not lie within the page; `dst` is
    /// then untouched.
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), OutOfPage> {
        within(offset, dst.len())?;
        // SAFETY: the source range was checked to lie in the page, which
        // `_keep` holds mapped; `dst` is ours and cannot overlap a mapping
        // that no reference exists to.
        unsafe { copy(self.at.as_ptr().add(offset), dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    /// Copies `src` into the page, once.
    ///
    /// # Errors
    ///
    /// [`OutOfPage`] when the range does not lie within the page; the page is
    /// then untouched.
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), OutOfPage> {
        within(offset, src.len())?;
        // SAFETY: the destination range was checked to lie in the page, which
        // `_keep` holds mapped; `src` is ours and cannot overlap it.
        unsafe { copy(src.as_ptr(), self.at.as_ptr().add(offset), src.len()) };
        Ok(())
    }

    /// Sets the whole page to zero.
    pub fn zero(&self) {
        // SAFETY: the page is mapped for PAGE_SIZE bytes while `_keep` lives.
        unsafe { core::ptr::write_bytes(self.at.as_ptr(), 0, PAGE_SIZE) };
        // The page is about to be shown to a peer: the zeroes may not be
        // elided or sink below that.
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }
}

impl fmt::Debug for SharedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedPage({:p})", self.at)
    }
}

fn within(offset: usize, len: usize) -> Result<(), OutOfPage> {
    match offset.checked_add(len) {
        Some(end) if end <= PAGE_SIZE => Ok(()),
        _ => Err(OutOfPage { offset, len }),
    }
}

/// Copies `len` bytes where one side may be written by a peer meanwhile.
///
/// The compiler barriers on both sides keep the copy one copy: what is judged
/// afterwards is the private side, and cannot be fetched again from the
/// shared one.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `len` bytes; they do not
/// overlap.
unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    use core::sync::atomic::{Ordering, compiler_fence};
    compiler_fence(Ordering::SeqCst);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // An asm block is opaque to the optimiser: it reads the source and
        // writes the destination exactly once. `rep movsb` needs the direction
        // flag clear, which the ABI guarantees.
        // SAFETY: the caller promised both ranges.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") src => _,
                inout("rdi") dst => _,
                options(nostack, preserves_flags)
            );
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        // SAFETY: the caller promised both ranges.
        unsafe { core::ptr::copy_nonoverlapping(src, dst, len) };
    }
    compiler_fence(Ordering::SeqCst);
}
