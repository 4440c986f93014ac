//! Vifs that could not be opened, and vifs for which an action failed, until both succeed.
//!
//! If the nodes of a vif were the reason, the vif is looked at again when one of them changes. If
//! the reason was here or on the machine, the vif is also tried again after a pause, which becomes
//! longer. Examples are a TAP that another program has for a moment, no free memory, and errors of
//! the store. A list of vifs that the store could not give is read again in the same way.

use crate::VifError;
use crate::bell::{os, timespec};
use crate::error::is_of_nodes;
use crate::ids::VifId;
use crate::state::shared::Clock;
use grantway_hypervisor::{DomId, Error as PlatformError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Shortest pause before another try, and the longest.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

struct Refusal {
    why: String,
    /// Time of the next try by itself; `None` if the nodes must change first, and while the vif is
    /// tried.
    again: Option<Instant>,
    /// Pause before that try.
    pause: Duration,
}

/// The refused vifs of a backend, and the timer of their next tries.
pub(crate) struct Refusals {
    vifs: BTreeMap<VifId, Refusal>,
    /// Time at which the store is asked again for a list that it could not give.
    list: Option<Instant>,
    /// Pause before that time; zero while the store can give its lists.
    list_pause: Duration,
    timer: OwnedFd,
    clock: Clock,
}

impl Refusals {
    /// Returns no refusals, with a timer that does not run.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left.
    pub fn new(clock: Clock) -> Result<Self, PlatformError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|e| os("timerfd_create", e))?;
        Ok(Self { vifs: BTreeMap::new(), list: None, list_pause: Duration::ZERO, timer, clock })
    }

    /// Returns the descriptor that is readable when a vif or a list is to be tried again.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Returns every refused vif.
    pub fn all(&self) -> impl Iterator<Item = VifId> {
        self.vifs.keys().copied()
    }

    /// Returns the refused vifs of one guest.
    pub fn of(&self, domain: DomId) -> impl Iterator<Item = VifId> {
        let all = VifId { domain, devid: 0 }..=VifId { domain, devid: u32::MAX };
        self.vifs.range(all).map(|(&id, _)| id)
    }

    /// Forgets a vif: it was opened, all was done for it, or it is gone.
    pub fn forget(&mut self, id: VifId) {
        self.vifs.remove(&id);
    }

    /// Notes that a vif could not be opened, or that something could not be done for it. Returns
    /// true if the reason is another one than the last time.
    pub fn add(&mut self, id: VifId, error: &VifError) -> bool {
        let by_nodes = match error {
            VifError::Key { .. } => true,
            VifError::Platform(PlatformError::Store { errno, .. }) => is_of_nodes(*errno),
            _ => false,
        };
        let last = self.vifs.get(&id);
        // A change of its nodes has it tried sooner, and does not move the next try.
        let (again, pause) = match last {
            Some(Refusal { again: Some(at), pause, .. }) => (*at, *pause),
            _ => {
                let longer = |last: &Refusal| (last.pause * 2).min(LONGEST);
                let pause = last.map_or(SHORTEST, longer);
                ((self.clock)() + pause, pause)
            }
        };
        let why = error.to_string();
        let is_new = last.is_none_or(|refusal| refusal.why != why);
        self.vifs.insert(id, Refusal { why, again: (!by_nodes).then_some(again), pause });
        self.set();
        is_new
    }

    /// Notes that the store could not give a list of vifs. Returns true if that is new.
    pub fn list_later(&mut self) -> bool {
        let is_new = self.list_pause.is_zero();
        if self.list.is_none() {
            self.list_pause = (self.list_pause * 2).clamp(SHORTEST, LONGEST);
            self.list = Some((self.clock)() + self.list_pause);
            self.set();
        }
        is_new
    }

    /// Notes that every list was read. The pause ends, unless a list is to be asked for again.
    pub fn listed(&mut self) {
        if self.list.is_none() {
            self.list_pause = Duration::ZERO;
        }
    }

    /// Returns the vifs whose next try is due, and true if the store is to be asked for its lists.
    pub fn due(&mut self) -> (Vec<VifId>, bool) {
        // The clock decides, since tests move it; the timer only wakes.
        let ran_out = rustix::io::read(&self.timer, &mut [0u8; 8]).is_ok();
        let now = (self.clock)();
        if !ran_out && self.next().is_none_or(|at| at > now) {
            return (Vec::new(), false);
        }
        let is_due = |refusal: &mut Refusal| refusal.again.take_if(|at| *at <= now).is_some();
        let due = self.vifs.iter_mut().filter_map(|(&id, refusal)| is_due(refusal).then_some(id));
        let due = due.collect();
        let list = self.list.take_if(|at| *at <= now).is_some();
        self.set();
        (due, list)
    }

    /// Returns the time of the first next try.
    fn next(&self) -> Option<Instant> {
        self.vifs.values().filter_map(|refusal| refusal.again).chain(self.list).min()
    }

    /// Sets the timer to the first next try.
    fn set(&self) {
        let next = self.next();
        // A time of zero stops a timer, so one that is due gets 1 ms.
        let after = next.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since((self.clock)()).max(Duration::from_millis(1))
        });
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(after) };
        // The call fails only for a bad descriptor or time, and both are valid here.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}
