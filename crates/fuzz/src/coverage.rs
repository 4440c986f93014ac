//! The compiler's counters: a byte for each place of the code that it was told
//! to watch, in one stretch of memory that the compiled code hands over before
//! `main` (LLVM's `inline-8bit-counters`).

use grantway_fuzz::engine::Coverage;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

static START: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static END: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Called by what the compiler adds to each piece of code; it is the same
/// stretch each time, since everything is linked into one program.
// SAFETY: the name and the arguments are those that LLVM's documentation of
// SanitizerCoverage gives; nothing else in the program has this name.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    START.store(start, Relaxed);
    END.store(end, Relaxed);
}

/// The counters of this program.
#[derive(Debug)]
pub struct Counters {
    start: *mut u8,
    len: usize,
}

impl Counters {
    /// None where the program was built without them.
    pub fn new() -> Option<Self> {
        let (start, end) = (START.load(Relaxed), END.load(Relaxed));
        let len = end.addr().checked_sub(start.addr()).filter(|&len| len > 0)?;
        Some(Self { start, len })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Coverage for Counters {
    fn clear(&mut self) {
        // SAFETY: the stretch lives as long as the program and is written by
        // nobody else than the counting instructions, for which any value is
        // right; no reference to it exists.
        unsafe { self.start.write_bytes(0, self.len) };
    }

    fn read(&mut self, counts: &mut Vec<u8>) {
        counts.resize(self.len, 0);
        // SAFETY: as above, and `counts` has as many bytes, elsewhere. What
        // another thread counts meanwhile (it only waits) may be seen or not.
        unsafe { self.start.copy_to_nonoverlapping(counts.as_mut_ptr(), self.len) };
    }
}
