//! Contents of acknowledgements: data that came behind a hole, and data that came twice.
//!
//! smoltcp (0.14) names the range with the last segment, and never data that came twice. But then
//! the sender cannot know that it sent in vain (RFC 2883). And a range that only one
//! acknowledgement named is lost with that acknowledgement (RFC 2018). So ranges that smoltcp named
//! before are named again, if there is room. No range is named that smoltcp did not name.

use crate::segment::before;
use alloc::collections::VecDeque;

/// Most ranges that are remembered: as many as smoltcp keeps.
const RANGES: usize = smoltcp::config::ASSEMBLER_MAX_SEGMENT_COUNT;
/// Most ranges of an acknowledgement: as many as the options of TCP have room for.
pub(crate) const NAMED_MAX: usize = 4;

/// First number of a range, and the number behind its last one.
pub(crate) type Range = (u32, u32);

/// Ranges for an acknowledgement, in this order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    ranges: [Range; NAMED_MAX],
    count: usize,
}

impl Named {
    /// Returns the ranges.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges[..self.count]
    }
}

impl FromIterator<Range> for Named {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut named = Self::default();
        for (place, range) in named.ranges.iter_mut().zip(ranges) {
            *place = range;
            named.count += 1;
        }
        named
    }
}

/// Received data of a flow that acknowledgements may name.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Ranges behind a hole, without overlaps. The range that was named last is the first one.
    ranges: VecDeque<Range>,
    /// Number behind all data in front of the first hole.
    next: u32,
    /// Part of the last segment that came twice, until the segment is answered.
    twice: Option<Range>,
}

impl Blocks {
    /// Notes a segment that goes to smoltcp. `taken` is false if smoltcp only answers it.
    pub fn came(&mut self, number: u32, payload: u32, taken: bool) {
        let range @ (left, right) = (number, number.wrapping_add(payload));
        let new = before(self.next, right);
        let within = |&(start, end): &Range| !before(left, start) && !before(end, right);
        self.twice = match before(left, self.next) {
            _ if payload == 0 => None,
            true if new => Some((left, self.next)),
            true => Some(range),
            false => self.ranges.iter().any(within).then_some(range),
        };
        if taken && new && !before(self.next, left) {
            self.next = right;
        }
    }

    /// Notes the number of an acknowledgement.
    pub fn acknowledged(&mut self, number: u32) {
        self.next = number;
    }

    /// Returns the ranges for an acknowledgement of this number. smoltcp names the range `own`.
    /// `answers` is true if the acknowledgement answers the last segment.
    pub fn name(&mut self, acknowledged: u32, own: Option<Range>, answers: bool) -> Named {
        let twice = self.twice.take().filter(|_| answers);
        let apart =
            |(left, right): Range, (other, end): Range| before(right, other) || before(end, left);
        self.ranges.retain(|&range| {
            before(acknowledged, range.0) && own.is_none_or(|own| apart(own, range))
        });
        if let Some(own) = own.filter(|own| before(acknowledged, own.0) && before(own.0, own.1)) {
            self.ranges.truncate(RANGES - 1);
            self.ranges.push_front(own);
        }
        self.acknowledged(acknowledged);
        twice.into_iter().chain(self.ranges.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Returns the blocks of a flow whose next number is this one.
    fn begun(next: u32) -> Blocks {
        let mut blocks = Blocks::default();
        blocks.acknowledged(next);
        blocks
    }

    /// Names with an answer to a segment.
    fn answer(
        blocks: &mut Blocks,
        segment: Range,
        acknowledged: u32,
        own: Option<Range>,
    ) -> Vec<Range> {
        blocks.came(segment.0, segment.1.wrapping_sub(segment.0), true);
        blocks.name(acknowledged, own, true).ranges().to_vec()
    }

    #[test]
    fn ranges_are_named_again_the_last_one_first_until_they_are_acknowledged() {
        for base in [1000_u32, u32::MAX - 250] {
            let at = |n: u32| base.wrapping_add(n * 100);
            let range = |left, right| (at(left), at(right));
            let mut blocks = begun(base);
            for (left, named) in [
                (2, vec![range(2, 3)]),
                (4, vec![range(4, 5), range(2, 3)]),
                (8, vec![range(8, 9), range(4, 5), range(2, 3)]),
                (6, vec![range(6, 7), range(8, 9), range(4, 5), range(2, 3)]),
                (10, vec![range(10, 11), range(6, 7), range(8, 9), range(4, 5)]),
            ] {
                let segment = range(left, left + 1);
                assert_eq!(answer(&mut blocks, segment, at(0), Some(segment)), named);
            }
            // One between two makes them one.
            let named = answer(&mut blocks, range(3, 4), at(0), Some(range(2, 5)));
            assert_eq!(named, [range(2, 5), range(10, 11), range(6, 7), range(8, 9)]);
            // What smoltcp sends by itself names them, too.
            assert_eq!(blocks.name(at(0), None, false).ranges(), named);
            let named = answer(&mut blocks, range(0, 2), at(5), Some(range(6, 7)));
            assert_eq!(named, [range(6, 7), range(10, 11), range(8, 9)]);
            let named = answer(&mut blocks, range(5, 10), at(11), None);
            assert_eq!(named, []);
        }
    }

    #[test]
    fn data_that_came_twice_is_named_before_the_range_that_contains_it() {
        let mut blocks = begun(1000);
        let own = Some((1200, 1500));
        assert_eq!(answer(&mut blocks, (1200, 1500), 1000, own), [(1200, 1500)]);
        assert_eq!(answer(&mut blocks, (1300, 1400), 1000, own), [(1300, 1400), (1200, 1500)]);
        // A part behind the range is new.
        let own = Some((1200, 1600));
        assert_eq!(answer(&mut blocks, (1400, 1600), 1000, own), [(1200, 1600)]);
        // Below the window, and across its start.
        assert_eq!(answer(&mut blocks, (900, 1000), 1000, own), [(900, 1000), (1200, 1600)]);
        assert_eq!(answer(&mut blocks, (900, 1100), 1100, own), [(900, 1000), (1200, 1600)]);
    }

    #[test]
    fn segments_in_their_place_did_not_come_twice_whenever_they_are_acknowledged() {
        let mut blocks = begun(1000);
        blocks.came(1000, 100, true);
        // Nothing came of a segment with a wrong acknowledgement.
        blocks.came(1100, 100, false);
        blocks.came(1100, 100, true);
        assert_eq!(blocks.name(1200, None, false).ranges(), []);
        // One of them again, before the next one is acknowledged.
        blocks.came(1200, 100, true);
        assert_eq!(answer(&mut blocks, (1100, 1200), 1300, None), [(1100, 1200)]);
        // The hole before a range that was never named is filled.
        assert_eq!(answer(&mut blocks, (1300, 1400), 1600, None), []);
        // What is behind the window did not come before, and what has no payload says nothing.
        assert_eq!(answer(&mut blocks, (9000, 9100), 1600, None), []);
        assert_eq!(answer(&mut blocks, (1599, 1599), 1600, None), []);
        // smoltcp had no room for a segment.
        blocks.came(1600, 100, true);
        assert_eq!(blocks.name(1600, None, true).ranges(), []);
        assert_eq!(answer(&mut blocks, (1600, 1700), 1700, None), []);
        // One answer names it once.
        assert_eq!(answer(&mut blocks, (1100, 1200), 1700, None), [(1100, 1200)]);
        assert_eq!(blocks.name(1700, None, true).ranges(), []);
    }

    #[test]
    fn the_memory_of_ranges_is_bounded() {
        let mut blocks = begun(1000);
        for n in 0..1000 {
            let segment = (2000 + n * 200, 2100 + n * 200);
            let named = answer(&mut blocks, segment, 1000, Some(segment));
            assert!(blocks.ranges.len() <= RANGES && named[0] == segment);
        }
        // Nonsense of an option is not kept.
        assert_eq!(answer(&mut blocks, (5, 6), 0x4000_0000, Some((3, 2))), [(5, 6)]);
        assert!(blocks.ranges.is_empty());
    }
}
