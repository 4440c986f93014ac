//! Everything that is unsafe: the entry, hypercalls, and memory that Xen shares with us.
//!
//! The entry, the start and the functions that the compiler takes for given are not in tests: these
//! are programs of an operating system, which has them.

#[cfg(not(test))]
mod entry;
#[cfg(not(test))]
mod exceptions;
#[cfg(not(test))]
pub mod heap;
pub mod hypercall;
#[cfg(not(test))]
mod mem;
pub mod memory;
pub mod random;
pub mod shared;
#[cfg(not(test))]
mod start;
#[cfg(not(test))]
mod unwinding;
