//! Travel times of frames, for frames that carry the time of their departure.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::{clock::Clock, testframe::TIME_LEN};

/// Longest travel time, in nanoseconds. A longer one counts as this one.
const LONGEST: u64 = 60_000_000_000;
const MASK: u64 = (1 << 48) - 1;

/// Returns a time as a frame carries it.
pub(crate) fn encode(time: Duration) -> [u8; TIME_LEN] {
    let [_, _, bytes @ ..] = (nanos(time) & MASK).to_be_bytes();
    bytes
}

/// Returns a time in nanoseconds, at most 2^64 - 1, which is 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Travel times of frames, to two digits: from the time in the frame to its arrival.
pub(crate) struct Timing {
    clock: Clock,
    /// Histogram of the times. It is made when the first frame with a time arrives.
    histogram: Option<Histogram<u64>>,
}

impl Timing {
    /// Returns a record without frames. `clock` is read for each frame that carries a time, and has
    /// to be the clock that the sender read.
    pub fn new(clock: Clock) -> Self {
        Self { clock, histogram: None }
    }

    /// Returns a record without frames for another queue, by the same clock.
    pub fn another(&self) -> Self {
        Self::new(self.clock.clone())
    }

    /// Notes the arrival of a frame that carries `time`.
    pub fn arrived(&mut self, time: [u8; TIME_LEN]) {
        let sent = time.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let under_way = nanos((self.clock)()).wrapping_sub(sent) & MASK;
        if self.histogram.is_none() {
            // These bounds are never refused: the lowest is 1, the highest at least twice that,
            // digits 2.
            self.histogram = Histogram::new_with_bounds(1, LONGEST, 2).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(under_way.clamp(1, LONGEST));
        }
    }

    /// Returns travel times in nanoseconds, ascending, each with its number of frames.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter().flat_map(Histogram::iter_recorded);
        recorded.map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }
}

impl std::fmt::Debug for Timing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let frames = self.histogram.as_ref().map_or(0, Histogram::len);
        f.debug_struct("Timing").field("frames", &frames).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn after(sent: Duration, under_way: Duration) -> Vec<(u64, u64)> {
        let mut timing = Timing::new(Arc::new(move || sent + under_way));
        timing.arrived(encode(sent));
        timing.counts()
    }

    #[test]
    fn times_are_told_to_two_digits_also_where_48_bits_wrap() {
        let wrap = Duration::from_nanos(1 << 48);
        for start in [Duration::ZERO, Duration::from_secs(1), wrap - Duration::from_nanos(100)] {
            for nanos in [1, 99, 12_345, 50_000_000] {
                let counts = after(start, Duration::from_nanos(nanos));
                let &[(told, 1)] = &counts[..] else { panic!("{counts:?}") };
                assert!(told >= nanos && told <= nanos + nanos / 64, "{told} for {nanos}");
            }
        }
    }

    #[test]
    fn longer_travel_times_count_as_a_minute() {
        let counts = after(Duration::from_secs(5), Duration::from_secs(3600));
        assert!(counts[0].0 >= LONGEST && counts[0].0 < LONGEST + LONGEST / 64, "{counts:?}");
        assert!(Timing::new(Arc::new(|| Duration::ZERO)).counts().is_empty());
    }
}
