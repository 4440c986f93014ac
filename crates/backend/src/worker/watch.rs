//! The descriptors that wake a worker, watched by one epoll.

use super::slot::Place;
use crate::bell::{os, timespec};
use grantway_hypervisor::Error as PlatformError;
use rustix::event::epoll;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Descriptors that one look reports at most; the next look reports the others.
pub(super) const REPORTED: usize = 64;

/// Room for the events that one look reports.
pub(super) type Room = [MaybeUninit<epoll::Event>; REPORTED];

/// Longest time that the worker sleeps at once.
const LONGEST: Duration = Duration::from_secs(3600);

/// The owner of a descriptor that is readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woke {
    /// Event channels have fired.
    Events,
    /// The control thread has a command, or a queue has passed a frame on to another.
    Bell,
    /// The uplink has frames.
    Uplink,
    /// The timer that measures how late the worker runs.
    Timer,
    /// The port of a queue has frames.
    Port(Place),
}

impl Woke {
    const FIRST_PLACE: u64 = 4;

    fn token(self) -> u64 {
        match self {
            Self::Events => 0,
            Self::Bell => 1,
            Self::Uplink => 2,
            Self::Timer => 3,
            Self::Port(place) => place.token(Self::FIRST_PLACE),
        }
    }

    fn of_token(token: u64) -> Self {
        match token {
            0 => Self::Events,
            1 => Self::Bell,
            2 => Self::Uplink,
            3 => Self::Timer,
            token => Self::Port(Place::of_token(token, Self::FIRST_PLACE)),
        }
    }
}

/// The descriptors that a worker watches.
pub(super) struct Watch {
    epoll: OwnedFd,
}

impl Watch {
    /// Creates an epoll that watches nothing yet.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left.
    pub fn new() -> Result<Self, PlatformError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(Self { epoll: epoll.map_err(|e| os("epoll_create", e))? })
    }

    /// Watches a descriptor.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn add(&self, fd: BorrowedFd<'_>, whose: Woke) -> Result<(), PlatformError> {
        let data = epoll::EventData::new_u64(whose.token());
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).map_err(|e| os("epoll_ctl", e))
    }

    /// Makes a watched descriptor reported from now on, or not reported.
    pub fn set(&self, fd: BorrowedFd<'_>, whose: Woke, wanted: bool) {
        let data = epoll::EventData::new_u64(whose.token());
        let flags = if wanted { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        // A descriptor that cannot be watched any more fails at its next use, which says why.
        let _ = epoll::modify(&self.epoll, fd, data, flags);
    }

    /// Stops watching a descriptor.
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until a descriptor is readable, for `timeout` at most, or as long as it takes. Returns
    /// the owners of the readable descriptors, by way of `room`.
    ///
    /// # Errors
    ///
    /// The system refused.
    #[inline]
    pub fn wait<'a>(
        &self,
        timeout: Option<Duration>,
        room: &'a mut Room,
    ) -> Result<impl Iterator<Item = Woke> + use<'a>, PlatformError> {
        // The kernel rounds up to what its clock can tell, never down.
        let timeout = timeout.map(|time| timespec(time.min(LONGEST)));
        let found = match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok((found, _)) => &*found,
            Err(rustix::io::Errno::INTR) => &[],
            Err(e) => return Err(os("epoll_wait", e)),
        };
        Ok(found.iter().map(|event| Woke::of_token(event.data.u64())))
    }
}
