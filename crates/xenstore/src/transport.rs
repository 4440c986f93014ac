//! Transports: the byte streams between a client and its store.

use alloc::string::String;
use core::time::Duration;

/// State of a transport for which a client waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// There are bytes to read, or the connection has ended.
    Read,
    /// There is space for bytes to write.
    Write,
}

/// Reason why a transport moved no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportError {
    /// There are no bytes, or no space, at this moment. [`Transport::wait`] waits for them.
    NotReady,
    /// The other end has closed the connection.
    Closed,
    /// Any other failure, with its message.
    Failed(String),
}

/// Connection to a store: two streams of bytes.
///
/// With the feature `std`, whatever can be read and written and has a descriptor is one: a Unix
/// socket, or the file `/dev/xen/xenbus`. A unikernel has its page of two rings.
pub trait Transport {
    /// Reads bytes into `bytes`, as many as are available and fit. Returns their number.
    ///
    /// # Errors
    ///
    /// Returns [`TransportError`] if no byte was read.
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, TransportError>;

    /// Writes the first bytes of `bytes`, as many as there is space for. Returns their number.
    ///
    /// # Errors
    ///
    /// Returns [`TransportError`] if no byte was written.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, TransportError>;

    /// Returns true if the transport is ready, or its other end is gone; waits for that if `block`.
    ///
    /// # Errors
    ///
    /// Returns [`TransportError::Failed`].
    fn wait(&mut self, ready: Ready, block: bool) -> Result<bool, TransportError>;

    /// Waits for this time.
    fn pause(&mut self, time: Duration);

    /// Returns the descriptor that is readable when bytes have come; none if the transport has
    /// none.
    #[cfg(feature = "std")]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

#[cfg(feature = "std")]
mod hosted {
    use super::{Ready, Transport, TransportError};
    use core::time::Duration;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use std::io::{Error, ErrorKind, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};

    impl<T: Read + Write + AsFd> Transport for T {
        fn read(&mut self, bytes: &mut [u8]) -> Result<usize, TransportError> {
            counted(uninterrupted(|| Read::read(self, bytes)), "read")
        }

        fn write(&mut self, bytes: &[u8]) -> Result<usize, TransportError> {
            counted(uninterrupted(|| Write::write(self, bytes)), "write")
        }

        fn wait(&mut self, ready: Ready, block: bool) -> Result<bool, TransportError> {
            let flags = match ready {
                Ready::Read => PollFlags::IN,
                Ready::Write => PollFlags::OUT,
            };
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            loop {
                match poll(&mut [PollFd::new(self, flags)], (!block).then_some(&at_once)) {
                    Ok(ready) => return Ok(ready > 0),
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(TransportError::Failed(alloc::format!("poll: {e}"))),
                }
            }
        }

        fn pause(&mut self, time: Duration) {
            std::thread::sleep(time);
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.as_fd())
        }
    }

    /// Tries again for as long as a signal comes first.
    fn uninterrupted(mut call: impl FnMut() -> Result<usize, Error>) -> Result<usize, Error> {
        loop {
            match call() {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn counted(result: Result<usize, Error>, call: &str) -> Result<usize, TransportError> {
        match result {
            Ok(0) => Err(TransportError::Closed),
            Ok(count) => Ok(count),
            Err(e) => Err(match e.kind() {
                ErrorKind::WouldBlock => TransportError::NotReady,
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                    TransportError::Closed
                }
                _ => TransportError::Failed(alloc::format!("{call}: {}", e)),
            }),
        }
    }
}
