//! The time for which a worker looks again before it sleeps.
//!
//! The cost of a wake-up depends on the machine and on its neighbours, and changes. So a worker
//! that waits adaptively measures it now and then, when it was about to sleep anyhow: it sets a
//! timer that wakes it soon, and looks how late it runs. An idle worker does so once, and then
//! sleeps for as long as nothing comes.

use super::cost::WakeCost;
use super::meter::monotonic;
use super::mode::WaitMode;
use crate::bell::{os, timespec};
use grantway_hypervisor::Error as PlatformError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::time::Duration;

/// Length of a measured sleep: long enough that the worker really sleeps.
const SLEEP: Duration = Duration::from_micros(500);
/// Least time between two measurements. A signal that comes right after a measurement finds the
/// worker awake.
const EVERY: Duration = Duration::from_millis(100);

/// The time for which a worker that found nothing to do looks again.
pub(super) struct Spin {
    budget: Option<Duration>,
    /// Measures the cost of wake-ups, if it is to be measured.
    meter: Option<Meter>,
}

impl Spin {
    /// Begins with the budget of a mode. Wake-ups are measured if `measures` is set and the mode is
    /// adaptive.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left.
    pub fn new(mode: WaitMode, measures: bool) -> Result<Self, PlatformError> {
        let meter = match mode {
            WaitMode::Adaptive(first) if measures => Some(Meter::new(first)?),
            _ => None,
        };
        Ok(Self { budget: mode.budget(), meter })
    }

    /// Returns the time for which to look again. None means for ever.
    #[inline]
    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    /// Returns the descriptor that is readable when [`Spin::measure`] must be called.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.meter.as_ref().map(|meter| meter.timer.as_fd())
    }

    /// Notes that the worker is about to sleep. `worked` is true if it had something to do since
    /// the last time.
    pub fn sleeps(&mut self, worked: bool) {
        if let Some(meter) = &mut self.meter {
            meter.sleeps(worked, monotonic());
        }
    }

    /// Takes in that the timer has run out. `slept` is true if the worker slept until then.
    pub fn measure(&mut self, slept: bool) {
        let Some(meter) = &mut self.meter else { return };
        meter.ran_out(slept, monotonic());
        self.budget = Some(meter.cost.mean());
    }
}

/// Measures the cost of wake-ups.
struct Meter {
    cost: WakeCost,
    timer: OwnedFd,
    /// Time at which the timer runs out, or ran out and was not looked at since.
    due: Option<Duration>,
    /// Earliest time of the next measurement.
    next: Duration,
}

impl Meter {
    fn new(first: Duration) -> Result<Self, PlatformError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|e| os("timerfd_create", e))?;
        Ok(Self { cost: WakeCost::new(first), timer, due: None, next: Duration::ZERO })
    }

    fn sleeps(&mut self, worked: bool, now: Duration) {
        if self.due.is_some_and(|due| due <= now) {
            // The timer ran out while there was something to do: no sleep was measured.
            self.ran_out(false, now);
        }
        if worked && self.due.is_none() && now >= self.next {
            let due = now + SLEEP;
            // Without the timer the wake-up is simply not measured.
            self.due = set(&self.timer, due).then_some(due);
            self.next = now + EVERY;
        }
    }

    fn ran_out(&mut self, slept: bool, now: Duration) {
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
        if let Some(due) = self.due.take().filter(|_| slept) {
            self.cost.learn(now.saturating_sub(due));
        }
    }
}

fn set(timer: &OwnedFd, due: Duration) -> bool {
    let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(due) };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).is_ok()
}
