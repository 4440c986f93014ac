//! How long a worker looks again before it sleeps.
//!
//! What a wake-up costs depends on the machine and on its neighbours, and changes. So a
//! worker that waits adaptively measures it, now and then, where it was about to sleep
//! anyhow: it has a timer wake it soon, and looks how late it runs. One that is idle
//! does so once, and then sleeps for as long as nothing comes.

use super::cost::WakeCost;
use super::mode::WaitMode;
use crate::bell::{os, timespec};
use grantway_hypervisor::Error as PlatformError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::time::Duration;

/// How long a measured sleep is: so long that the worker sleeps indeed.
const SLEEP: Duration = Duration::from_micros(500);
/// Time between two measurements, at least: a signal that comes at once behind one would
/// find the worker awake.
const EVERY: Duration = Duration::from_millis(100);

/// How long a worker that found nothing to do looks again.
pub(super) struct Spin {
    budget: Option<Duration>,
    /// Where what a wake-up costs is measured.
    meter: Option<Meter>,
}

impl Spin {
    /// As a mode says; where wake-ups are measured, `measures`.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left.
    pub fn new(mode: WaitMode, measures: bool) -> Result<Self, PlatformError> {
        let meter = match mode {
            WaitMode::Adaptive(first) if measures => Some(Meter::new(first)?),
            _ => None,
        };
        let budget = match mode {
            WaitMode::Busy => None,
            WaitMode::Adaptive(first) => Some(first),
            WaitMode::Interrupt => Some(Duration::ZERO),
        };
        Ok(Self { budget, meter })
    }

    /// For how long; for ever where there is none.
    #[inline]
    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    /// Readable when [`Spin::measure`] is to be called.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.meter.as_ref().map(|meter| meter.timer.as_fd())
    }

    /// The worker is about to sleep; `worked` where it had something to do since the
    /// last time.
    pub fn sleeps(&mut self, worked: bool) {
        if let Some(meter) = &mut self.meter {
            meter.sleeps(worked, monotonic());
        }
    }

    /// The timer has run out; `slept` where that is what the worker slept for.
    pub fn measure(&mut self, slept: bool) {
        let Some(meter) = &mut self.meter else { return };
        meter.ran_out(slept, monotonic());
        self.budget = Some(meter.cost.mean());
    }
}

/// Measures what wake-ups cost.
struct Meter {
    cost: WakeCost,
    timer: OwnedFd,
    /// When the timer runs out, or ran out that nobody looked at since.
    due: Option<Duration>,
    /// Not before then.
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
            // It ran out while there was something to do: nobody slept for it.
            self.ran_out(false, now);
        }
        if worked && self.due.is_none() && now >= self.next {
            let due = now + SLEEP;
            // Without the timer it is simply not measured.
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

/// The time by the timer's clock.
fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
