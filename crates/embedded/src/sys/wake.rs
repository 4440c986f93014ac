//! A descriptor that wakes a sleeper: an eventfd.

use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, Result};

/// A counter that is readable while it is not 0.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Makes a counter at 0.
    pub fn new() -> Result<Self> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Takes a counter that a peer sent.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Adds one. A counter at its end is readable already, so that is no error.
    #[inline]
    pub fn ring(&self) -> Result<()> {
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.0, &1u64.to_ne_bytes())) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Takes all that was added, without blocking, and returns it.
    pub fn drain(&self) -> Result<u64> {
        let mut count = [0; 8];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut count)) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
