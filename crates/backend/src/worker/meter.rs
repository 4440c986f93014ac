//! The processor time that a worker uses. Its queues share the processor by this time.
//!
//! The thread's own clock measures it, but costs a system call, which is long for a short turn. So
//! short times are read from a clock that costs none. During a long time, another thread may have
//! had the processor. Then the thread's own clock is read.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Time from which on the thread's own clock is read. If another thread takes the processor for
/// less time, the queue that has its turn is charged.
const LONG: Duration = Duration::from_micros(10);

/// Time after which the thread's own clock is read in any case. Time that was charged too much
/// before, as for an interrupt, is not subtracted from later times. So little of it can benefit
/// another queue.
const SETTLE_EVERY: Duration = Duration::from_micros(100);

/// A meter of the processor time of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    /// Function that returns the time that the thread used.
    used: fn() -> Duration,
    /// Function that returns a time that passes at least as fast.
    passed: fn() -> Duration,
}

impl Meter {
    /// The system's clocks.
    pub const PROCESSOR: Self = Self::new(processor_time, monotonic);

    /// Returns a meter with two clocks: of the time that the thread used, and of a time that passes
    /// at least as fast and costs less to read.
    #[must_use]
    pub const fn new(used: fn() -> Duration, passed: fn() -> Duration) -> Self {
        Self { used, passed }
    }

    /// Returns a meter of work, which the function `work` counts.
    #[must_use]
    pub const fn counted(work: fn() -> Duration) -> Self {
        Self::new(work, work)
    }

    /// Returns the time that the thread used, by the thread's own clock.
    #[must_use]
    pub fn used(&self) -> Duration {
        (self.used)()
    }
}

/// Readings of a meter in each turn. They never decrease.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Sum of all times that were read.
    read: Duration,
    /// Last readings of the two clocks.
    passed: Duration,
    used: Duration,
    /// Sum of the times that were read since the last reading of the thread's own clock.
    unsettled: Duration,
    /// Reading of the other clock at that time.
    settled_at: Duration,
}

impl Gauge {
    /// Returns the processor time that the thread used so far, from any start.
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

    /// Adds a time that has passed, in which the thread may have been away. Forgets time that was
    /// charged too much before.
    #[cold]
    fn settle(&mut self, now: Duration, passed: Duration, used: Duration) {
        let unread = used.saturating_sub(self.used).saturating_sub(self.unsettled);
        self.read += if passed < LONG { passed } else { passed.min(unread) };
        (self.used, self.unsettled, self.settled_at) = (used, Duration::ZERO, now);
    }
}

/// Returns the processor time that the calling thread has used. Queues are not charged for other
/// threads.
fn processor_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// Returns the time by a clock that never stops.
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
    fn time_charged_too_much_is_at_most_the_time_that_the_thread_was_away() {
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
    fn only_used_time_is_counted() {
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(20));
        assert!(processor_time() - before < Duration::from_millis(10));
        while processor_time() - before < US {}
    }
}
