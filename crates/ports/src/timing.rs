//! How long frames were under way, by the time that some of them carry.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::Clock;

/// Length of a frame's time in bytes: nanoseconds modulo 2^48, which is 78
/// hours, big-endian.
pub(crate) const TIME_LEN: usize = 6;
/// Longer than this counts as this, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
const MASK: u64 = (1 << 48) - 1;

/// A time as a frame carries it.
pub(crate) fn encode(time: Duration) -> [u8; TIME_LEN] {
    let [_, _, bytes @ ..] = (nanos(time) & MASK).to_be_bytes();
    bytes
}

/// 584 years are enough.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Times of arrival against the times that frames carry, to two digits.
pub(crate) struct Timing {
    clock: Clock,
    /// Made when the first such frame comes.
    histogram: Option<Histogram<u64>>,
}

impl Timing {
    /// Nothing has come yet; `clock` is read for frames that carry a time, and is
    /// the one that the sender read.
    pub fn new(clock: Clock) -> Self {
        Self { clock, histogram: None }
    }

    /// One for another queue.
    pub fn another(&self) -> Self {
        Self::new(self.clock.clone())
    }

    /// A frame came that carries this time.
    pub fn arrived(&mut self, time: [u8; TIME_LEN]) {
        let sent = time.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let under_way = nanos((self.clock)()).wrapping_sub(sent) & MASK;
        if self.histogram.is_none() {
            // Bounds that cannot be refused: 1, at least twice that, and 2 digits.
            self.histogram = Histogram::new_with_bounds(1, LONGEST, 2).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(under_way.clamp(1, LONGEST));
        }
    }

    /// Nanoseconds and how many frames took so long, in ascending order.
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
    fn what_takes_for_ever_counts_as_a_minute() {
        let counts = after(Duration::from_secs(5), Duration::from_secs(3600));
        assert!(counts[0].0 >= LONGEST && counts[0].0 < LONGEST + LONGEST / 64, "{counts:?}");
        assert!(Timing::new(Arc::new(|| Duration::ZERO)).counts().is_empty());
    }
}
