//! Everything that is unsafe: the entry, hypercalls, and memory that Xen shares with us.
//!
//! The entry, the start and the functions that the compiler takes for given are not in tests: these
//! are programs of an operating system, which has them.

#[cfg(not(test))]
mod entry;
#[cfg(not(test))]
mod exceptions;
pub mod fifo;
#[cfg(not(test))]
mod guard;
#[cfg(not(test))]
pub mod heap;
pub mod hypercall;
mod mem;
pub mod memory;
pub mod random;
pub mod shared;
#[cfg(not(test))]
mod start;
#[cfg(not(test))]
mod task;
pub mod two_level;
#[cfg(not(test))]
mod unwinding;
pub mod upcall;

/// Stops the processor for good.
#[cfg(not(test))]
fn halt() -> ! {
    loop {
        // SAFETY: turns interrupts off, waits, and changes nothing else.
        unsafe { core::arch::asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Ends the test: no guest stops in one.
#[cfg(test)]
fn halt() -> ! {
    panic!("the guest stopped");
}

/// Writes a byte to the port that Xen and QEMU take for a console of its own (0xe9).
#[cfg(not(test))]
pub fn emergency(byte: u8) {
    // SAFETY: nothing else is at this port; without Xen and QEMU the byte is lost.
    unsafe {
        core::arch::asm!("out 0xe9, al", in("al") byte, options(nomem, nostack, preserves_flags));
    }
}

/// Drops a byte, in tests.
#[cfg(test)]
pub fn emergency(_byte: u8) {}
