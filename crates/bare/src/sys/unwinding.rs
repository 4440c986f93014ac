//! Names that the precompiled `alloc` links for an unwinder, which there is none of.

use super::hypercall::run::{Shutdown, shutdown};

/// Named by the precompiled `alloc`, and never called: a panic aborts.
// SAFETY: the only function of this name, as nothing brings an unwinder.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Named by the precompiled `alloc`, and never called.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    shutdown(Shutdown::Crash)
}
