//! The clock of the other end of a flow, read from the timestamps of its segments (RFC 7323).
//!
//! A path may keep a segment for as long as 2^32 bytes take: 3.4 s at 10 Gbit/s. Then its sequence
//! numbers are in the window again. Its timestamp shows that it is old (PAWS). RFC 7323 refuses
//! each segment whose timestamp is before the last one that was noted. But a segment that is sent
//! again may overtake many that were sent before it, and all of these would be refused. So the
//! timestamp that was noted [`OVERTAKEN`] ago is compared. A path of 100 Gbit/s carries less than
//! 2^31 bytes in twice that time.

use crate::segment::before;
use smoltcp::time::{Duration, Instant};

/// Time by which a segment may overtake others.
const OVERTAKEN: Duration = Duration::from_millis(80);
/// Time of silence after which the clock of the other end means nothing. A clock in milliseconds
/// reaches its other half after 24.8 days.
const SILENT: Duration = Duration::from_secs(24 * 24 * 60 * 60);

/// The other end's clock. Its times have any unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Timestamp that segments of this end answer (TS.Recent), and the time at which it was noted.
    recent: u32,
    at: Instant,
    /// `recent` as it was at `since`, and as it was at least [`OVERTAKEN`] before that.
    marked: u32,
    earlier: u32,
    since: Instant,
}

impl Clock {
    /// Makes the clock of an end whose SYN had this timestamp.
    pub fn new(time: u32, now: Instant) -> Self {
        Self { recent: time, at: now, marked: time, earlier: time, since: now }
    }

    /// Returns the timestamp that a segment of this end answers.
    pub fn answered(&self) -> u32 {
        self.recent
    }

    /// Returns true if a segment with this timestamp was sent long before others that came.
    pub fn is_old(&self, time: u32, now: Instant) -> bool {
        let passed = |noted: Instant| now >= noted + OVERTAKEN;
        let than = match (passed(self.at), passed(self.since)) {
            (true, _) => self.recent,
            (false, true) => self.marked,
            (false, false) => self.earlier,
        };
        before(time, than) && !self.is_silent(now)
    }

    /// Notes the timestamp of a segment that is not old and begins with the first unacknowledged
    /// number.
    pub fn note(&mut self, time: u32, now: Instant) {
        if self.is_silent(now) {
            *self = Self::new(time, now);
        }
        if before(time, self.recent) {
            return;
        }
        (self.recent, self.at) = (time, now);
        if now >= self.since + OVERTAKEN {
            (self.earlier, self.marked, self.since) = (self.marked, time, now);
        }
    }

    fn is_silent(&self, now: Instant) -> bool {
        now >= self.at + SILENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(1_000_000 + ms)
    }

    #[test]
    fn a_time_is_old_if_it_was_passed_longer_ago_than_segments_are_overtaken() {
        // Beside the wrap of times, too, and whatever their unit is.
        for (base, unit) in [(7, 1), (7, 1000), (u32::MAX - 50, 1), ((1 << 31) - 50, 1)] {
            let time = |ms: u32| u32::wrapping_add(base, ms * unit);
            let mut clock = Clock::new(time(0), at(0));
            for ms in 1..=1000 {
                clock.note(time(ms), at(ms.into()));
                assert_eq!(clock.answered(), time(ms));
                assert!(!clock.is_old(time(ms), at(ms.into())));
                assert!(!clock.is_old(time(ms.saturating_sub(79)), at(ms.into())), "{ms}");
                assert!(ms < 161 || clock.is_old(time(ms - 161), at(ms.into())), "{ms}");
            }
            assert!(clock.is_old(time(0).wrapping_sub(1), at(1000)));
            // Silence does not make the last one old, and the ones before it are, soon.
            assert!(!clock.is_old(time(1000), at(100_000)));
            assert!(clock.is_old(time(999), at(1080)));
        }
    }

    #[test]
    fn times_do_not_go_back_and_after_24_days_any_is_taken() {
        let mut clock = Clock::new(1000, at(0));
        clock.note(2000, at(100));
        clock.note(1500, at(101));
        assert_eq!(clock.answered(), 2000);
        let (before, after) = (at(99) + SILENT, at(100) + SILENT);
        let other = 2000 + (1 << 31);
        assert!(clock.is_old(other + 1, before) && !clock.is_old(other + 1, after));
        clock.note(other + 1, before);
        assert_eq!(clock.answered(), 2000);
        clock.note(other + 1, after);
        assert_eq!(clock.answered(), other + 1);
        assert!(clock.is_old(other, after + OVERTAKEN));
    }
}
