//! Waking a thread by a descriptor.

use grantway_hypervisor::Error as PlatformError;
use rustix::event::EventfdFlags;
use rustix::fd::{BorrowedFd, OwnedFd};

/// A new eventfd that does not block.
///
/// # Errors
///
/// The system has no descriptor left.
pub(crate) fn eventfd() -> Result<OwnedFd, PlatformError> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| os("eventfd", e))
}

pub(crate) fn ring(bell: BorrowedFd<'_>) {
    // A full counter is as good as a rung bell.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

pub(crate) fn drain(bell: BorrowedFd<'_>) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

pub(crate) fn os(call: &str, e: rustix::io::Errno) -> PlatformError {
    PlatformError::Os {
        call: call.into(),
        reason: e.to_string(),
        remedy: "raise the limit of open files (ulimit -n)",
    }
}
