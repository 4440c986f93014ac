//! Memory that a peer can write at any time.
//!
//! No `&` or `&mut` refers to this memory. A [`SharedPage`] is a raw pointer that keeps its mapping
//! alive. Bytes are copied in or out, and the compiler may neither repeat nor skip these copies. A
//! reader must validate its private copy, and use only that copy.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;

use crate::copy::copy;

/// Bytes in a page. One grant covers one page at most.
pub const PAGE_SIZE: usize = 4096;

/// Owner of a mapped run of pages. Its drop unmaps the whole run.
pub trait Keep: Send + Sync {}

impl<T: Send + Sync> Keep for T {}

/// Error for a copy that is not within its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} do not lie within a page of {PAGE_SIZE} bytes")]
pub struct OutOfPage {
    /// Offset in the page at which the copy would begin, in bytes.
    pub offset: usize,
    /// Length of the copy in bytes.
    pub len: usize,
}

/// Run of adjacent pages in one mapping, shared with a peer.
///
/// Clones refer to the same mapping. It is unmapped when the last clone, and the last
/// [`SharedPage`] taken from a clone, are dropped.
#[derive(Clone)]
pub struct SharedRun {
    base: NonNull<u8>,
    pages: usize,
    /// The pages of a run that is no mapping of its own.
    gathered: Option<Arc<[SharedPage]>>,
    keep: Arc<dyn Keep>,
}

// SAFETY: the pointer is only ever used for volatile copies, which any thread
// may do; `keep` is Send + Sync and holds the mapping.
unsafe impl Send for SharedRun {}
// SAFETY: as above; concurrent volatile access is what the memory is for, and
// no reference to it is ever made.
unsafe impl Sync for SharedRun {}

impl SharedRun {
    /// Makes a run of a mapping of `pages` pages at `base`. The run drops `keep` when the mapping
    /// is no longer used.
    ///
    /// # Safety
    ///
    /// `base` is page-aligned and valid for reads and writes of
    /// `pages * PAGE_SIZE` bytes until `keep` is dropped (for a read-only
    /// mapping: for reads, and the caller never writes), and no Rust
    /// reference to any of it exists.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, pages: usize, keep: Arc<dyn Keep>) -> Self {
        Self { base, pages, gathered: None, keep }
    }

    /// Makes `pages` zeroed pages on the heap of this process. Use it for tests, and for two ends
    /// in one process.
    ///
    /// # Panics
    ///
    /// Panics if memory is exhausted, or if `pages` is larger than an allocation can be.
    #[must_use]
    pub fn private(pages: usize) -> Self {
        let layout = HeapPages::layout(pages).expect("pages overflow the address space");
        Self::try_private(pages).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Makes the run of [`SharedRun::private`]. Returns `None` if that would panic.
    #[must_use]
    pub fn try_private(pages: usize) -> Option<Self> {
        let heap = HeapPages::new(pages)?;
        let base = heap.base;
        // SAFETY: the allocation is page-aligned, `pages` pages long, and lives
        // as long as `heap`, which nothing else refers to.
        Some(unsafe { Self::new(base, pages, Arc::new(heap)) })
    }

    /// Makes a run of pages of other runs, which need not be adjacent. `guard` is dropped with the
    /// last handle of the run, and so reports its end. Use it to simulate a mapping in tests.
    #[must_use]
    pub fn gathered(pages: Vec<SharedPage>, guard: impl Keep + 'static) -> Self {
        let pages: Arc<[SharedPage]> = pages.into();
        let base = pages.first().map_or(NonNull::dangling(), |page| page.at);
        let keep = Arc::new((guard, Arc::clone(&pages)));
        Self { base, pages: pages.len(), gathered: Some(pages), keep }
    }

    /// Returns the number of pages in the run.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Returns page `index` of the run, or `None` past its end.
    #[must_use]
    pub fn page(&self, index: usize) -> Option<SharedPage> {
        if index >= self.pages {
            return None;
        }
        let at = match &self.gathered {
            Some(pages) => pages.get(index)?.at,
            // SAFETY: `index` is below `pages`, so the sum stays inside the
            // mapping that `new` was promised.
            None => unsafe { self.base.add(index * PAGE_SIZE) },
        };
        Some(SharedPage { at, _keep: Arc::clone(&self.keep) })
    }
}

impl fmt::Debug for SharedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRun({} pages at {:p})", self.pages, self.base)
    }
}

/// Page-aligned pages of the heap.
struct HeapPages {
    base: NonNull<u8>,
    layout: Layout,
}

impl HeapPages {
    fn layout(pages: usize) -> Option<Layout> {
        // An empty allocation is not allowed; a spare page is.
        Layout::from_size_align(pages.max(1).checked_mul(PAGE_SIZE)?, PAGE_SIZE).ok()
    }

    fn new(pages: usize) -> Option<Self> {
        let layout = Self::layout(pages)?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }
}

impl Drop for HeapPages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and nobody refers to it
        // once its last keeper is gone.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

// SAFETY: sole owner of an allocation that it never looks into.
unsafe impl Send for HeapPages {}
// SAFETY: as above.
unsafe impl Sync for HeapPages {}

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
    /// Prefetches the cache line at `offset` for a later read. Has no other effect. Does nothing on
    /// processors other than x86-64.
    #[inline(always)]
    pub fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.at.as_ptr().wrapping_add(offset % PAGE_SIZE);
            // SAFETY: a prefetch is a hint. It reads nothing that a program sees, and faults
            // nowhere. Each x86-64 processor has the instruction, which needs no SSE register, so
            // a target that is built without them has it, too.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Returns the address of the first byte, for system calls that take an address (an iovec) and
    /// for a ring in the page.
    #[inline(always)]
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.at
    }

    /// Copies `dst.len()` bytes out of the page, from `offset` on. Reads each byte once.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the range is not within the page. `dst` is unchanged then.
    #[inline]
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), OutOfPage> {
        within(offset, dst.len())?;
        // SAFETY: the source range was checked to lie in the page, which
        // `_keep` holds mapped; `dst` is ours and cannot overlap a mapping
        // that no reference exists to.
        unsafe { copy(self.at.as_ptr().add(offset), dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    /// Copies `src` into the page, from `offset` on. Writes each byte once.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the range is not within the page. The page is unchanged then.
    #[inline]
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), OutOfPage> {
        within(offset, src.len())?;
        // SAFETY: the destination range was checked to lie in the page, which
        // `_keep` holds mapped; `src` is ours and cannot overlap it.
        unsafe { copy(src.as_ptr(), self.at.as_ptr().add(offset), src.len()) };
        Ok(())
    }

    /// Writes a word at an offset that is a multiple of 4, in one store. A reader finds the old
    /// word or the new word, also if the writer is killed.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the word is not within the page, or `offset` is no multiple of 4.
    /// The page is unchanged then.
    #[inline]
    pub fn write_word(&self, offset: usize, word: u32) -> Result<(), OutOfPage> {
        within(offset, size_of::<u32>())?;
        if !offset.is_multiple_of(size_of::<u32>()) {
            return Err(OutOfPage { offset, len: size_of::<u32>() });
        }
        // SAFETY: the place was checked to lie in the page, which `_keep` holds mapped, and
        // a page is aligned for a word at such an offset.
        unsafe { self.at.as_ptr().add(offset).cast::<u32>().write_volatile(word) };
        Ok(())
    }

    /// Copies `len` bytes from another page to this one, in one copy.
    ///
    /// If the ranges overlap (the same page, in one mapping or in two), the content of the overlap
    /// is unspecified afterwards.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if either range is not within its page. This page is unchanged then.
    #[inline]
    pub fn copy_from_page(
        &self,
        offset: usize,
        src: &SharedPage,
        src_offset: usize,
        len: usize,
    ) -> Result<(), OutOfPage> {
        within(offset, len)?;
        within(src_offset, len)?;
        // SAFETY: both ranges were checked to lie in pages which the two
        // `_keep`s hold mapped.
        unsafe { copy(src.at.as_ptr().add(src_offset), self.at.as_ptr().add(offset), len) };
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

#[inline(always)]
fn within(offset: usize, len: usize) -> Result<(), OutOfPage> {
    if offset.checked_add(len).is_some_and(|end| end <= PAGE_SIZE) {
        Ok(())
    } else {
        Err(OutOfPage { offset, len })
    }
}
