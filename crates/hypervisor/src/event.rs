//! Event channels, with signals that stay pending until they are read.

use crate::{DomId, Error};
use core::fmt;
#[cfg(feature = "std")]
use core::time::Duration;

/// Number of a domain's end of an event channel. Each domain has its own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u32);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Set of event channels for a frontend. Each thread that waits has its own set.
///
/// A signal is never lost. Xen keeps one pending bit per port, so several sends may be seen as one
/// signal. A signal that is sent after a call of [`FrontendEvents::poll`] is reported by the next
/// call, however late that call is.
///
/// A new interdomain binding starts pending, so its first signal may be spurious. A wake-up without
/// a signal is legal at any time.
///
/// The trait requires `Send`, since a queue may move to another thread together with its set.
pub trait FrontendEvents: Send {
    /// Makes a port that the domain `remote` may bind to.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Exhausted`] if the table of ports is full.
    fn alloc_unbound(&mut self, remote: DomId) -> Result<Port, Error>;

    /// Closes a port. The peer's end becomes unbound again. The peer gets no signal.
    fn close(&mut self, port: Port);

    /// Signals the peer. If the port has no peer, the signal is discarded without an error, as on
    /// Xen: the store reports the death of a peer.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Event`] if the port is not in this set, and [`Error::Gone`] if the platform
    /// is gone.
    fn notify(&mut self, port: Port) -> Result<(), Error>;

    /// Takes in pending signals without blocking. Calls `fired` for each port of the set that was
    /// signalled since the last call.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Gone`] or [`Error::Os`].
    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error>;

    /// Counts a wake-up in the platform's counters. A caller that waited on the descriptor calls
    /// this if a signal ended the wait, even if the signal came before the wait began.
    fn woken(&mut self) {}

    /// Returns the descriptor that is readable while a signal is pending, for `poll` and `epoll`.
    /// Returns `None` if the platform has no descriptors. If the platform implements
    /// [`EventChannels`], it is the descriptor of that trait.
    ///
    /// After a wait, the caller calls [`FrontendEvents::poll`], which makes the descriptor
    /// unreadable again. If the caller slept, it also calls [`FrontendEvents::woken`].
    #[cfg(feature = "std")]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// Set of event channels for a backend's worker or another program. All its ports share one
/// descriptor, that of [`FrontendEvents::descriptor`].
///
/// Each port counts its signals. A caller remembers the count, looks at the ring, and then waits
/// for a higher count. It then loses no wake-up, however long it is busy in between. A wait for the
/// next edge, in contrast, loses signals that came before the wait.
#[cfg(feature = "std")]
pub trait EventChannels: FrontendEvents + std::os::fd::AsFd {
    /// Binds a new port of this set to `port`, which the domain `remote` made for us. Returns the
    /// new port.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Event`] if `port` is bound already, or was made for another domain.
    fn bind_interdomain(&mut self, remote: DomId, port: Port) -> Result<Port, Error>;

    /// Returns the number of signals seen at `port`, or 0 if the port is not in this set. Takes in
    /// pending signals first, without blocking.
    fn count(&mut self, port: Port) -> u64;

    /// Waits until the count of `port` is greater than `seen`, or until `timeout` has passed.
    /// Returns the count. Without a timeout it waits without limit. Counts a wake-up if it slept.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Gone`] or [`Error::Os`].
    fn wait(&mut self, port: Port, seen: u64, timeout: Option<Duration>) -> Result<u64, Error>;
}
