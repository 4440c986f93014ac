//! The processor time that a worker uses, by which its queues share it.
//!
//! The thread's own clock tells it, but costs a system call, which is much of a short turn. So short
//! times are read off a clock that costs none. While a long time passed, another thread may have
//! had the processor: then the thread's clock is asked.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Time from which on the thread's clock is asked what the thread used of it. A thread that takes
/// the processor away for less is on the account of the queue that has its turn.
const LONG: Duration = Duration::from_micros(10);

/// Time after which the thread's clock is asked in any case. What was counted too much until then, as
/// of an interrupt, is no part of any later time: so little of it can go to another queue's credit.
const SETTLE_EVERY: Duration = Duration::from_micros(100);

/// A meter of the processor time of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    /// Returns the time that the thread used.
    used: fn() -> Duration,
    /// Returns a time that passes at least as fast.
    passed: fn() -> Duration,
}

impl Meter {
    /// The system's clocks.
    pub const PROCESSOR: Self = Self::new(processor_time, monotonic);

    /// Returns a meter by a clock of the time that the thread used, and a clock that passes at least
    /// as fast, and costs less.
    #[must_use]
    pub const fn new(used: fn() -> Duration, passed: fn() -> Duration) -> Self {
        Self { used, passed }
    }

    /// Returns a meter of work, which this function counts.
    #[must_use]
    pub const fn counted(work: fn() -> Duration) -> Self {
        Self::new(work, work)
    }

    /// Returns the time that the thread used, by its own clock.
    #[must_use]
    pub fn used(&self) -> Duration {
        (self.used)()
    }
}

/// The reading of a meter in every turn. It never goes back.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// The sum of all times that were read.
    read: Duration,
    /// The two clocks when each was asked last.
    passed: Duration,
    used: Duration,
    /// The times that were read since the thread's clock was asked.
    unsettled: Duration,
    /// Reading of the other clock at that moment.
    settled_at: Duration,
}

impl Gauge {
    /// Returns the processor time that the thread used up to now, from any start.
    #[inline]
    pub fn read(&mut self, meter: &Meter) -> Duration {
        let now = (meter.passed)();
        let passed = now.saturating_sub(self.passed);
        self.passed = now;
        if passed < LONG && now.saturating_sub(self.settled_at) < SETTLE_EVERY {
            self.unsettled += passed;
            self.read += passed;
        } else {
            self.settle(now, passed, meter.used());
        }
        self.read
    }

    /// Adds a time that passed up to now, in which the thread may have been away, and forgets what
    /// was counted too much before.
    #[cold]
    fn settle(&mut self, now: Duration, passed: Duration, used: Duration) {
        let unread = used.saturating_sub(self.used).saturating_sub(self.unsettled);
        self.read += if passed < LONG { passed } else { passed.min(unread) };
        (self.used, self.unsettled, self.settled_at) = (used, Duration::ZERO, now);
    }
}

/// Returns the time that the calling thread has used of its processor. The time of other threads
/// and processes is not any queue's doing.
fn processor_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// Returns the time by a clock that never stands still.
pub(super) fn monotonic() -> Duration {
    time_of(ClockId::Monotonic)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Neither part is ever negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const US: Duration = Duration::from_micros(1);

    thread_local! {
        static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        static USED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        /// Times that the thread's clock was asked.
        static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    const METER: Meter = Meter::new(
        || {
            ASKED.set(ASKED.get() + 1);
            USED.get()
        },
        || PASSED.get(),
    );

    /// A thread whose time the test makes.
    struct Thread {
        gauge: Gauge,
        last: Duration,
    }

    impl Thread {
        fn new() -> Self {
            PASSED.set(Duration::ZERO);
            USED.set(Duration::ZERO);
            ASKED.set(0);
            Self { gauge: Gauge::default(), last: Duration::ZERO }
        }

        /// Lets the thread run, and be away. Returns what the gauge reads of both together.
        fn turn(&mut self, runs: Duration, away: Duration) -> Duration {
            USED.set(USED.get() + runs);
            PASSED.set(PASSED.get() + runs + away);
            let before = self.last;
            self.last = self.gauge.read(&METER);
            self.last - before
        }
    }

    #[test]
    fn short_times_are_exact_and_ask_the_threads_clock_ten_times_per_millisecond() {
        let mut thread = Thread::new();
        for _ in 0..100_000 {
            assert_eq!(thread.turn(US, Duration::ZERO), US);
        }
        // 100 ms passed.
        assert_eq!(ASKED.get(), 1000);
    }

    #[test]
    fn long_times_are_those_that_the_thread_used() {
        let mut thread = Thread::new();
        for runs in [1, 9, 10, 11, 200, 5000] {
            for away in [0, 10, 300, 100_000] {
                let [runs, away] = [runs, away].map(|time| US * time);
                assert_eq!(thread.turn(runs, away), runs, "away for {away:?}");
                // Short times in between change nothing.
                assert_eq!(thread.turn(US, Duration::ZERO), US);
            }
        }
    }

    #[test]
    fn what_is_counted_too_much_is_no_more_than_the_thread_was_away() {
        let mut thread = Thread::new();
        thread.turn(LONG, Duration::ZERO);
        // Too short to be told from the thread's own time.
        assert_eq!(thread.turn(US, 5 * US), 6 * US);
        // No time is counted twice, and none is read that did not pass.
        assert_eq!(thread.turn(20 * US, Duration::ZERO), 15 * US);
        assert_eq!(thread.turn(20 * US, Duration::ZERO), 20 * US);
        // After so many short times it is forgotten.
        for _ in 0..SETTLE_EVERY.as_micros() {
            thread.turn(US, Duration::ZERO);
            thread.turn(US, US / 2);
        }
        while thread.gauge.unsettled > Duration::ZERO {
            thread.turn(US, Duration::ZERO);
        }
        assert_eq!(thread.turn(20 * US, Duration::ZERO), 20 * US);
    }

    #[test]
    fn the_sum_is_what_the_thread_used_however_it_is_read() {
        let mut thread = Thread::new();
        let mut number = 1_u32;
        let mut draw = |most: u32| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (number >> 16) % most
        };
        for _ in 0..10_000 {
            let runs = US * draw(30);
            // Others have the processor for longer than a short time, if at all.
            let away = if draw(8) == 0 { LONG + US * draw(5000) } else { Duration::ZERO };
            thread.turn(runs, away);
        }
        assert_eq!(thread.last, USED.get());
    }

    #[test]
    fn work_that_is_counted_is_read_as_it_is() {
        static METER: Meter = Meter::counted(|| PASSED.get());
        let mut gauge = Gauge::default();
        for work in [1, 2, 11, 12, 3000, 3001] {
            PASSED.set(US * work);
            assert_eq!(gauge.read(&METER), US * work);
        }
    }

    #[test]
    fn only_what_is_used_is_counted() {
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(20));
        assert!(processor_time() - before < Duration::from_millis(10));
        while processor_time() - before < US {}
    }
}
