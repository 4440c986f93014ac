//! Waiting on descriptors, and the signals that end a command in order.

use crate::error::CommandError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Waits until a descriptor is readable, `lifeline` is hung up, or the timeout is over. Without a
/// timeout, waits for ever.
///
/// # Errors
///
/// The system refused.
pub fn readable(
    descriptors: &[BorrowedFd<'_>],
    lifeline: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> Result<(), CommandError> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    polled.extend(lifeline.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty())));
    wait(&mut polled, timeout)
}

/// Like [`readable`], and returns which of the descriptors are readable.
///
/// # Errors
///
/// The system refused.
pub fn which_readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> Result<[bool; N], CommandError> {
    let mut polled = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    wait(&mut polled, timeout)?;
    Ok(polled.map(|fd| !fd.revents().is_empty()))
}

fn wait(polled: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), CommandError> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    match poll(polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(CommandError::Failed(format!("poll: {e}"))),
    }
}

/// The meaning of a signal for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// SIGTERM, as a service manager sends it: end, and leave everything to a successor.
    Leave,
    /// SIGINT, as a person sends it: close what is open.
    Close,
    /// SIGHUP: read the files of the start again.
    Reload,
}

/// SIGINT and SIGTERM, and SIGHUP if it is asked for, as a descriptor.
pub struct Signals {
    read: UnixStream,
    write: UnixStream,
    flags: Vec<(Told, Arc<AtomicBool>)>,
}

impl Signals {
    /// Takes both signals over.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn take() -> Result<Self, CommandError> {
        let (read, write) = UnixStream::pair().map_err(failed)?;
        read.set_nonblocking(true).map_err(failed)?;
        let signals = Self { read, write, flags: Vec::new() };
        signals.and(SIGTERM, Told::Leave)?.and(SIGINT, Told::Close)
    }

    /// Takes SIGHUP over, too.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn and_reload(self) -> Result<Self, CommandError> {
        self.and(SIGHUP, Told::Reload)
    }

    fn and(mut self, signal: i32, told: Told) -> Result<Self, CommandError> {
        let came = Arc::new(AtomicBool::new(false));
        // Registered before the descriptor, so that a reader that it wakes sees the flag.
        signal_hook::flag::register(signal, Arc::clone(&came)).map_err(failed)?;
        let write = self.write.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, write).map_err(failed)?;
        self.flags.push((told, came));
        Ok(self)
    }

    /// Returns the descriptor, which is readable once a signal came.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// Returns the signal that came since the last call, if any. Of several signals, returns the
    /// first in the order of [`Told`].
    pub fn came(&self) -> Option<Told> {
        let mut buffer = [0; 16];
        while rustix::io::read(&self.read, &mut buffer).is_ok_and(|n| n > 0) {}
        let came = |(_, came): &&(Told, Arc<AtomicBool>)| came.swap(false, Ordering::AcqRel);
        self.flags.iter().find(came).map(|&(told, _)| told)
    }
}

fn failed(e: std::io::Error) -> CommandError {
    CommandError::Failed(format!("signals: {e}"))
}

/// Wakes a thread by a descriptor.
#[derive(Clone)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// Makes a bell that was not rung yet.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left.
    pub fn new() -> Result<Self, CommandError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        match eventfd(0, flags) {
            Ok(fd) => Ok(Self(Arc::new(fd))),
            Err(e) => Err(CommandError::Failed(format!(
                "eventfd: {e}; raise the limit of open files (ulimit -n)"
            ))),
        }
    }

    /// Rings the bell: its descriptor is readable from now on.
    pub fn ring(&self) {
        // A full counter is as good as a rung bell.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the bell quiet again.
    pub fn hush(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    /// Returns the descriptor, which is readable once the bell was rung.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
