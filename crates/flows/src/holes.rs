//! Sequence numbers that a sender left out so far.

use std::ops::Range;

/// Most holes that are remembered. If there are more, the oldest is forgotten.
const HOLES_MAX: usize = 32;

/// A range of numbers that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    range: Range<u64>,
    /// Time at which the hole was seen.
    pub at: u64,
    /// Timestamp of the segment behind the hole.
    pub stamp: Option<u32>,
}

/// All holes of one direction, in the order in which they were seen.
#[derive(Debug, Clone, Default)]
pub struct Holes(Vec<Hole>);

impl Holes {
    /// Adds a hole.
    pub fn add(&mut self, range: Range<u64>, at: u64, stamp: Option<u32>) {
        if self.0.len() >= HOLES_MAX {
            self.0.remove(0);
        }
        self.0.push(Hole { range, at, stamp });
    }

    /// Takes out the numbers that a segment brings. Returns the first hole that it lies in, as it
    /// was, and the number of numbers that were missing; `None` if none was.
    pub fn fill(&mut self, came: &Range<u64>) -> Option<(Hole, u64)> {
        let (mut first, mut filled) = (None, 0);
        let mut at = 0;
        while let Some(hole) = self.0.get(at) {
            let Range { start, end } = hole.range;
            if came.start >= end || start >= came.end {
                at += 1;
                continue;
            }
            let hole = self.0.remove(at);
            filled += end.min(came.end) - start.max(came.start);
            // What the segment leaves of the hole stays, if there is room.
            for range in [came.end..end, start..came.start] {
                if range.start < range.end && self.0.len() < HOLES_MAX {
                    self.0.insert(at, Hole { range, ..hole.clone() });
                    at += 1;
                }
            }
            first.get_or_insert(hole);
        }
        first.map(|hole| (hole, filled))
    }

    /// Forgets the holes that end at this number or before.
    pub fn forget(&mut self, before: u64) {
        self.0.retain(|hole| hole.range.end > before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_in_parts() {
        let mut holes = Holes::default();
        holes.add(100..200, 1, Some(7));
        assert_eq!(holes.fill(&(200..300)), None);
        assert_eq!(holes.fill(&(120..130)).map(|(hole, filled)| (hole.at, filled)), Some((1, 10)));
        assert_eq!(holes.fill(&(120..130)), None);
        assert!(holes.fill(&(90..121)).is_some() && holes.fill(&(130..200)).is_some());
        assert!(holes.0.is_empty());
        // One segment fills two holes, with old numbers between them.
        (1..=2).for_each(|n| holes.add(n * 100..n * 100 + 10, n, None));
        assert_eq!(holes.fill(&(105..205)).map(|(hole, filled)| (hole.at, filled)), Some((1, 10)));
        assert_eq!(holes.fill(&(0..300)).map(|(_, filled)| filled), Some(10));
        (0..100).for_each(|n| holes.add(n * 10..n * 10 + 5, n, None));
        assert_eq!(holes.0.len(), HOLES_MAX);
        holes.forget(980);
        assert_eq!(holes.0.len(), 2);
    }
}
