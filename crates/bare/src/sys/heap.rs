//! The heap, over all memory that nothing else has.

use alloc::alloc::{GlobalAlloc, Layout};
use talc::{ErrOnOom, Span, Talc, Talck};

/// The heap, which [`entry!`](crate::entry) makes the program's.
#[doc(hidden)]
#[derive(Debug)]
pub struct Heap;

// SAFETY: the one allocator behind it keeps the contract.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { HEAP.alloc(layout) }
    }

    unsafe fn dealloc(&self, base: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { HEAP.dealloc(base, layout) }
    }

    unsafe fn realloc(&self, base: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { HEAP.realloc(base, layout, bytes) }
    }
}

static HEAP: Talck<spin::Mutex<()>, ErrOnOom> = Talc::new(ErrOnOom).lock();

/// Gives the heap its memory.
///
/// # Safety
///
/// The bytes from `start` to `end` are memory that nothing else uses, now or later.
pub(super) unsafe fn begin(start: usize, end: usize) {
    let span = Span::new(start as *mut u8, end as *mut u8);
    // SAFETY: the caller's promise. A span that is too small is refused, and the first allocation
    // then fails.
    let _ = unsafe { HEAP.lock().claim(span) };
}
