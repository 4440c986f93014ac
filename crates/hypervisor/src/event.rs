//! Event channels, level-triggered.

use crate::{DomId, Error};
use core::fmt;
#[cfg(feature = "std")]
use core::time::Duration;

/// One end of an event channel, a number of this domain's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u32);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of event channels, as a frontend uses it: one for each thread that waits.
///
/// A signal is never lost. Xen keeps one sticky bit per port, so that N sends may be seen as one
/// signal; but a signal that is sent after a look at the port ([`FrontendEvents::poll`]) is
/// reported by the next look, however busy the domain is in between.
///
/// A fresh interdomain binding starts pending: its first signal may be spurious, and an empty
/// wake-up is legal at any time.
///
/// `Send`, as a queue with its set may be given to a thread of its own.
pub trait FrontendEvents: Send {
    /// Makes a port that `remote` may bind to.
    ///
    /// # Errors
    ///
    /// [`Error::Exhausted`] when the table of ports is full.
    fn alloc_unbound(&mut self, remote: DomId) -> Result<Port, Error>;

    /// Closes a port; the peer's end returns to unbound, silently.
    fn close(&mut self, port: Port);

    /// Signals the peer. A port without a peer swallows the signal, as Xen
    /// does: a peer's death is learnt from the store.
    ///
    /// # Errors
    ///
    /// [`Error::Event`] when the port is not ours, [`Error::Gone`].
    fn notify(&mut self, port: Port) -> Result<(), Error>;

    /// Takes in what is pending, without blocking. `fired` is called for each port of the set that
    /// was signalled since the last call.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] or [`Error::Os`].
    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error>;

    /// Counts a wake-up, for the platform's counters: whoever waited on the descriptor, with
    /// nothing to do, says so if a signal ended that, also one that had come before the wait began.
    fn woken(&mut self) {}

    /// Returns the descriptor that is readable while a signal is pending, for `poll` and `epoll`
    /// beside others; none if the platform has no descriptors. A platform of programs has one, the
    /// same as that of its [`EventChannels`]. Whoever waits on it calls [`FrontendEvents::poll`]
    /// afterwards, which makes it unreadable again, and [`FrontendEvents::woken`] where it had
    /// slept.
    #[cfg(feature = "std")]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// The event channels of one worker, behind one descriptor: what a backend and other programs use
/// besides.
///
/// A port is a counter of signals. Who remembers the count before looking at a ring, and waits for
/// a count past that, cannot lose a wake-up, however busy it is elsewhere in between (seed 003's
/// stalls came from the opposite: a wait for the next edge).
///
/// The descriptor is that of [`FrontendEvents::descriptor`].
#[cfg(feature = "std")]
pub trait EventChannels: FrontendEvents + std::os::fd::AsFd {
    /// Binds a new port of ours to a port that `remote` made for us.
    ///
    /// # Errors
    ///
    /// [`Error::Event`] when that port is not free for us.
    fn bind_interdomain(&mut self, remote: DomId, port: Port) -> Result<Port, Error>;

    /// Signals seen at `port` so far, 0 for a port that is not ours. Takes in
    /// what is pending first, without blocking.
    fn count(&mut self, port: Port) -> u64;

    /// Returns as soon as the count of `port` is past `seen`, or when
    /// `timeout` is over; gives the count. Counts a wake-up if it slept until then.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] or [`Error::Os`].
    fn wait(&mut self, port: Port, seen: u64, timeout: Option<Duration>) -> Result<u64, Error>;
}
