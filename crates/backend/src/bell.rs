//! The bell by which a thread is woken: a descriptor.

use crate::ids::Key;
use grantway_hypervisor::Error as PlatformError;
use rustix::event::{EventfdFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The bell of a worker. Each thread that sends something to the worker rings it. The bell also
/// names the queues to which other queues passed frames, so that the worker need not look at all
/// its queues.
pub(crate) struct Bell {
    fd: OwnedFd,
    /// Queues that the bell was rung for: no more than the worker has.
    queues: Mutex<BTreeSet<Key>>,
}

impl Bell {
    /// Returns a bell that was not rung yet.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left.
    pub fn new() -> Result<Self, PlatformError> {
        Ok(Self { fd: eventfd()?, queues: Mutex::default() })
    }

    /// Wakes the worker.
    pub fn ring(&self) {
        ring(self.fd.as_fd());
    }

    /// Wakes the worker for a queue.
    pub fn ring_for(&self, queue: Key) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).insert(queue);
        self.ring();
    }

    /// Makes the bell quiet again, and returns the queues that it was rung for.
    pub fn hush(&self) -> BTreeSet<Key> {
        drain(self.fd.as_fd());
        // The queues are taken after the drain: a ring in between makes the bell ring anew.
        std::mem::take(&mut *self.queues.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns a new eventfd that does not block.
///
/// # Errors
///
/// The system has no descriptor left.
pub(crate) fn eventfd() -> Result<OwnedFd, PlatformError> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| os("eventfd", e))
}

pub(crate) fn ring(bell: BorrowedFd<'_>) {
    // An error means that the counter is full, which is as good as a rung bell.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

pub(crate) fn drain(bell: BorrowedFd<'_>) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

/// Returns a time as the kernel takes it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

pub(crate) fn os(call: &str, e: rustix::io::Errno) -> PlatformError {
    PlatformError::Os {
        call: call.into(),
        reason: e.to_string(),
        remedy: "raise the limit of open files (ulimit -n)",
    }
}
