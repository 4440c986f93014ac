//! Segments that are not acknowledged, and round trips measured by them.

use std::collections::VecDeque;
use std::ops::Range;

/// Most segments that are remembered. Further segments give no round trip.
const UNACKED_MAX: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Sent {
    start: u64,
    end: u64,
    /// Time at which the segment was last sent.
    time: u64,
    /// Timestamp with which it was last sent.
    stamp: u32,
    again: bool,
}

/// Segments under way, in order of their numbers.
#[derive(Debug, Clone, Default)]
pub struct Unacked(VecDeque<Sent>);

impl Unacked {
    /// Adds a segment that was sent behind all others.
    pub fn sent(&mut self, start: u64, end: u64, time: u64, stamp: Option<u32>) {
        if self.0.len() < UNACKED_MAX {
            let stamp = stamp.unwrap_or(0);
            self.0.push_back(Sent { start, end, time, stamp, again: false });
        }
    }

    /// Adds segments that were sent behind all others, each of `size` bytes but the last.
    pub fn sent_each(&mut self, range: Range<u64>, size: u32, time: u64, stamp: Option<u32>) {
        for start in range.clone().step_by((size as usize).max(1)) {
            if self.0.len() >= UNACKED_MAX {
                return;
            }
            self.sent(start, range.end.min(start + u64::from(size)), time, stamp);
        }
    }

    /// Marks the segments that a segment repeats.
    pub fn sent_again(&mut self, start: u64, end: u64, time: u64, stamp: Option<u32>) {
        let first = self.0.partition_point(|sent| sent.end <= start);
        for sent in self.0.iter_mut().skip(first).take_while(|sent| sent.start < end) {
            (sent.time, sent.again) = (time, true);
            sent.stamp = stamp.unwrap_or(sent.stamp);
        }
    }

    /// Removes all segments before `ack`. Returns the round trip in nanoseconds, if it is known.
    /// With timestamps, it begins with the last segment that had the stamp which is answered.
    /// Without, it begins with the segment that was awaited last, if no removed segment was sent
    /// again (Karn).
    pub fn acked(&mut self, ack: u64, time: u64, answers: Option<u32>) -> Option<u64> {
        let (mut from, mut again) = (None, false);
        while let Some(sent) = self.0.front().copied().filter(|sent| sent.start < ack) {
            again |= sent.again;
            match answers {
                Some(stamp) if sent.stamp == stamp => from = Some(sent.time),
                Some(_) => {}
                None => from = (sent.end >= ack).then_some(sent.time),
            }
            if sent.end > ack {
                break;
            }
            self.0.pop_front();
        }
        let from = from.filter(|_| answers.is_some() || !again)?;
        Some(time.saturating_sub(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_data_and_acknowledgement_unless_sent_again() {
        let mut unacked = Unacked::default();
        for n in 0..4 {
            unacked.sent(100 * n, 100 * n + 100, 10 * n, None);
        }
        assert_eq!(unacked.acked(150, 60, None), Some(50), "a part");
        assert_eq!(unacked.acked(200, 61, None), Some(51));
        unacked.sent_again(200, 300, 70, None);
        assert_eq!(unacked.acked(400, 80, None), None, "Karn");
        assert_eq!(unacked.acked(500, 90, None), None, "not seen");
    }

    #[test]
    fn by_timestamps_even_when_sent_again() {
        let mut unacked = Unacked::default();
        unacked.sent(0, 100, 10, Some(1));
        unacked.sent(100, 200, 20, Some(2));
        unacked.sent_again(0, 100, 50, Some(5));
        assert_eq!(unacked.acked(200, 60, Some(5)), Some(10));
        unacked.sent(200, 300, 70, Some(7));
        assert_eq!(unacked.acked(300, 80, Some(6)), None);
        (0..1000).for_each(|n| unacked.sent(300 + n, 301 + n, 90, None));
        assert_eq!(unacked.0.len(), UNACKED_MAX);
    }
}
