//! Places for the connections of a service, which are few. If all are taken, the connection
//! that is silent for longest gives its place up, so that silent peers keep no other peer out.

use core::time::Duration;
use grantway_stack::smoltcp::iface::{SocketHandle, SocketSet};
use grantway_stack::smoltcp::socket::tcp::{Socket, State};

/// Time for which a connection may be silent while all places are taken. It is longer than TCP takes
/// to send a segment a second time.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// A place for a connection.
pub(crate) struct Place<T> {
    pub handle: SocketHandle,
    /// State of the service's connection.
    pub own: T,
    /// Time at which the connection began, or moved bytes last; none if there is no connection.
    since: Option<Duration>,
    /// Bytes that were to be sent then.
    queued: usize,
}

impl<T> Place<T> {
    pub fn new(handle: SocketHandle, own: T) -> Self {
        Self { handle, own, since: None, queued: 0 }
    }

    /// Notes whether the service moved bytes of its connection. Bytes that the peer takes count, too.
    pub fn note(&mut self, socket: &Socket<'_>, moved: bool, now: Duration) {
        let queued = socket.send_queue();
        if matches!(socket.state(), State::Listen | State::Closed) {
            self.since = None;
        } else if moved || queued != self.queued || self.since.is_none() {
            self.since = Some(now);
        }
        self.queued = queued;
    }
}

/// If all of a service's places are taken, ends the connection that is silent for longest, if it is
/// for [`SILENCE`]. Returns true if one was ended.
pub(crate) fn give_up<T>(
    places: &[Place<T>],
    sockets: &mut SocketSet<'static>,
    now: Duration,
) -> bool {
    // A place without a connection comes first.
    let Some(idlest) = places.iter().min_by_key(|place| place.since) else { return false };
    let silent = idlest.since.is_some_and(|since| now.saturating_sub(since) >= SILENCE);
    if silent {
        sockets.get_mut::<Socket<'_>>(idlest.handle).abort();
    }
    silent
}
