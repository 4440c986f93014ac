//! Counts of numbered datagrams, by the rules of iperf 2's server.

use crate::header::{Datagram, Report};
use core::time::Duration;

/// Counts of one sender's datagrams.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    began: Duration,
    last: Duration,
    bytes: u64,
    came: u64,
    highest: u64,
    out_of_order: u64,
    /// Jitter in seconds, smoothed as in RFC 1889.
    jitter: f64,
    transit: Option<f64>,
}

impl Tally {
    /// Begins the counts of a sender. `now` is the time of its first datagram.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self {
            began: now,
            last: now,
            bytes: 0,
            came: 0,
            highest: 0,
            out_of_order: 0,
            jitter: 0.0,
            transit: None,
        }
    }

    /// Counts a datagram of `len` bytes. `now` is the time on the clock of [`Tally::new`]. `wall`
    /// is the time of day, as in [`Datagram::sent`]. An offset between the two clocks of the ends
    /// does not matter: only its changes count, as jitter.
    pub fn take(&mut self, datagram: Datagram, len: usize, now: Duration, wall: Duration) {
        let id = datagram.id.unsigned_abs();
        self.last = now;
        self.came += 1;
        self.bytes += len as u64;
        match id > self.highest {
            true => self.highest = id,
            false => self.out_of_order += 1,
        }
        // The clocks may differ, so only the change of the difference counts.
        let transit = wall.as_secs_f64() - datagram.sent.as_secs_f64();
        if let Some(before) = self.transit.replace(transit) {
            self.jitter += ((transit - before).abs() - self.jitter) / 16.0;
        }
    }

    /// Returns the time at which the last datagram came.
    #[must_use]
    pub fn last(&self) -> Duration {
        self.last
    }

    /// Returns the counts so far. Numbers above `u32::MAX` are given as `u32::MAX`.
    #[must_use]
    pub fn report(&self) -> Report {
        let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Report {
            bytes: self.bytes,
            length: self.last.saturating_sub(self.began),
            lost: short(self.highest.saturating_sub(self.came)),
            out_of_order: short(self.out_of_order),
            datagrams: short(self.highest),
            // A sender may write any time, so the jitter may be out of bounds.
            jitter: Duration::try_from_secs_f64(self.jitter).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_datagrams_are_lost_and_late_ones_are_not() {
        let mut tally = Tally::new(Duration::from_secs(5));
        for (id, ms) in [(1, 0), (2, 1), (5, 2), (4, 3), (-7, 4)] {
            let now = Duration::from_secs(5) + Duration::from_millis(ms);
            tally.take(Datagram { id, sent: Duration::from_millis(ms) }, 100, now, now);
        }
        let report = tally.report();
        assert_eq!((report.bytes, report.datagrams), (500, 7));
        assert_eq!((report.lost, report.out_of_order), (2, 1));
        assert_eq!((report.length, report.jitter), (Duration::from_millis(4), Duration::ZERO));
    }

    #[test]
    fn jitter_is_the_variation_of_the_transit_time() {
        let mut tally = Tally::new(Duration::ZERO);
        for id in 1..=200 {
            let sent = Duration::from_millis(id as u64);
            let wall = sent + Duration::from_micros(if id % 2 == 0 { 100 } else { 0 });
            tally.take(Datagram { id, sent }, 1, wall, wall);
        }
        let jitter = tally.report().jitter.as_micros();
        assert!((90..=101).contains(&jitter), "{jitter}");
    }

    #[test]
    fn any_datagram_number_is_counted() {
        let mut tally = Tally::new(Duration::ZERO);
        for id in [i64::MIN, i64::MAX, 0, -1] {
            let sent = Duration::from_secs(u64::from(u32::MAX));
            tally.take(Datagram { id, sent }, 1, Duration::ZERO, Duration::ZERO);
        }
        let report = tally.report();
        assert_eq!((report.datagrams, report.lost, report.out_of_order), (u32::MAX, u32::MAX, 3));
    }
}
