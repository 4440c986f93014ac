//! Vifs that could not be opened, until they can be, and vifs of which something could not be
//! done. What their nodes were guilty of is looked at again whenever one of them changes; what
//! was ours or the machine's (a TAP that somebody holds for a moment, no memory, a store that
//! has trouble) after a while, too, which becomes longer. So are the lists of vifs that the
//! store could not give.

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

/// Until the second try, and between two later ones, at most.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

struct Refusal {
    why: String,
    /// When it is tried again by itself: none where its nodes are to change first, and while
    /// that is being done.
    again: Option<Instant>,
    /// How long that was put off.
    pause: Duration,
}

pub(crate) struct Refusals {
    vifs: BTreeMap<VifId, Refusal>,
    /// When the store is asked again which vifs there are, as it could not say.
    list: Option<Instant>,
    /// How long that was put off; nothing where it can say.
    list_pause: Duration,
    timer: OwnedFd,
    clock: Clock,
}

impl Refusals {
    /// # Errors
    ///
    /// The system has no descriptor left.
    pub fn new(clock: Clock) -> Result<Self, PlatformError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|e| os("timerfd_create", e))?;
        Ok(Self { vifs: BTreeMap::new(), list: None, list_pause: Duration::ZERO, timer, clock })
    }

    /// Readable when some are to be tried again.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = VifId> {
        self.vifs.keys().copied()
    }

    /// Those of one guest.
    pub fn of(&self, domain: DomId) -> impl Iterator<Item = VifId> {
        let all = VifId { domain, devid: 0 }..=VifId { domain, devid: u32::MAX };
        self.vifs.range(all).map(|(&id, _)| id)
    }

    /// It was opened, all of it was done, or it is gone.
    pub fn forget(&mut self, id: VifId) {
        self.vifs.remove(&id);
    }

    /// A vif could not be opened, or something of it could not be done; whether for another
    /// reason than the last time.
    pub fn add(&mut self, id: VifId, error: &VifError) -> bool {
        let by_nodes = match error {
            VifError::Key { .. } => true,
            VifError::Platform(PlatformError::Store { errno, .. }) => is_of_nodes(*errno),
            _ => false,
        };
        let last = self.vifs.get(&id);
        // A change of its nodes has it tried sooner, and puts nothing off.
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

    /// The store could not say which vifs there are; whether that is new.
    pub fn list_later(&mut self) -> bool {
        let is_new = self.list_pause.is_zero();
        if self.list.is_none() {
            self.list_pause = (self.list_pause * 2).clamp(SHORTEST, LONGEST);
            self.list = Some((self.clock)() + self.list_pause);
            self.set();
        }
        is_new
    }

    /// All were listed, but for what is to be listed later.
    pub fn listed(&mut self) {
        if self.list.is_none() {
            self.list_pause = Duration::ZERO;
        }
    }

    /// Those whose time has come, and whether the store is to be asked which there are.
    pub fn due(&mut self) -> (Vec<VifId>, bool) {
        // The clock decides, which tests move; the timer only wakes.
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

    /// When the first is to be tried again.
    fn next(&self) -> Option<Instant> {
        self.vifs.values().filter_map(|refusal| refusal.again).chain(self.list).min()
    }

    /// Has the timer run out then.
    fn set(&self) {
        let next = self.next();
        // Nothing stops a timer but a time of nothing.
        let after = next.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since((self.clock)()).max(Duration::from_millis(1))
        });
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(after) };
        // It fails for a bad descriptor or time only, which these are not.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}
