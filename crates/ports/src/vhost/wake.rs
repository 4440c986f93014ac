//! The event that wakes the owner of the port, and the end of its TAP.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{self, Errno},
};

/// Descriptor that is readable once the kernel's thread has used a buffer that was waited for.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    /// Makes the descriptor.
    ///
    /// # Errors
    ///
    /// The system has none left.
    pub fn new() -> io::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Returns the descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes the descriptor unreadable until the next buffer that is waited for.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn settle(&self) -> io::Result<()> {
        match io::read(&self.0, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Returns true if the interface behind the TAP was deleted.
///
/// # Errors
///
/// The system refused.
pub(super) fn is_gone(tap: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(tap, PollFlags::empty())];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) | Err(Errno::INTR) => Ok(fds[0].revents().contains(PollFlags::ERR)),
        Err(errno) => Err(errno),
    }
}
