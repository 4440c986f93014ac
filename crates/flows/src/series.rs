//! Values over time, in bounded memory.

/// Points that each series may have, apart from the budget.
const OWN: usize = 32;
/// Most points of a series.
pub const POINTS_MAX: usize = 4096;
/// Most bins of a time span.
const BINS: usize = 1024;
/// First width of a bin: a millisecond.
const WIDTH: u64 = 1_000_000;

/// Points by which all series together may still grow, beyond those that each may have anyway.
#[derive(Debug, Clone, Copy)]
pub struct Budget(pub usize);

/// The range of one or more values that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Time of the first value, in nanoseconds.
    pub time: u64,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
}

impl Point {
    fn join(&mut self, later: Self) {
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
    }
}

/// Values over time. Neighbours are merged if there are too many.
#[derive(Debug, Clone, Default)]
pub struct Series {
    points: Vec<Point>,
    /// Number of values that make a point; 0 stands for 1.
    every: u32,
    /// Number of values in the last point.
    filled: u32,
    /// Number of points that the series may have; 0 stands for [`OWN`].
    room: usize,
}

impl Series {
    /// Adds a value, whose time is not before that of the last one.
    pub fn push(&mut self, time: u64, value: u64, budget: &mut Budget) {
        let point = Point { time, min: value, max: value };
        if self.filled < self.every
            && let Some(last) = self.points.last_mut()
        {
            last.join(point);
            self.filled += 1;
            return;
        }
        let room = self.room.max(OWN);
        if self.points.len() >= room {
            if room < POINTS_MAX && budget.0 >= room {
                budget.0 -= room;
                self.room = 2 * room;
            } else {
                self.thin();
            }
        }
        self.points.push(point);
        self.filled = 1;
    }

    /// Merges each two points into one.
    fn thin(&mut self) {
        let pairs = self.points.chunks(2).map(|pair| {
            let mut point = pair[0];
            pair[1..].iter().for_each(|later| point.join(*later));
            point
        });
        self.points = pairs.collect();
        self.every = self.every.max(1).saturating_mul(2);
    }

    /// Returns the points, in order of time.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the number of points that the series took from the budget.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.room.saturating_sub(OWN)
    }
}

/// Bytes in each bin of a time span. All bins have one width.
#[derive(Debug, Clone)]
pub struct Bins {
    start: u64,
    width: u64,
    bytes: Vec<u64>,
}

impl Bins {
    /// Makes bins that begin at this time.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self { start, width: WIDTH, bytes: Vec::new() }
    }

    /// Adds bytes at a time.
    pub fn add(&mut self, time: u64, bytes: u64) {
        let since = time.saturating_sub(self.start);
        while since / self.width >= BINS as u64 {
            self.bytes = self.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width = self.width.saturating_mul(2);
        }
        let at = (since / self.width) as usize;
        if self.bytes.len() <= at {
            self.bytes.resize(at + 1, 0);
        }
        self.bytes[at] += bytes;
    }

    /// Returns the start of the first bin, and the width of each, in nanoseconds.
    #[must_use]
    pub fn scale(&self) -> (u64, u64) {
        (self.start, self.width)
    }

    /// Returns the bytes of each bin.
    #[must_use]
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A series has few points however many values come. The points are in order, and the
        /// smallest and the largest value stay.
        #[test]
        fn thinned_series_keep_their_ends(
            values in proptest::collection::vec(0u64..1_000_000, 1..3000),
            budget in 0usize..5000,
        ) {
            let (mut series, mut left) = (Series::default(), Budget(budget));
            for (time, value) in (0..).zip(&values) {
                series.push(time, *value, &mut left);
            }
            let points = series.points();
            prop_assert_eq!(left.0 + series.taken(), budget);
            prop_assert!(points.len() <= OWN + series.taken() && points.len() <= POINTS_MAX);
            prop_assert_eq!(points.iter().map(|p| p.min).min(), values.iter().min().copied());
            prop_assert_eq!(points.iter().map(|p| p.max).max(), values.iter().max().copied());
            prop_assert!(points.is_sorted_by(|a, b| a.time < b.time));
            prop_assert_eq!(points[0].time, 0);
        }

        #[test]
        fn bins_lose_no_byte(adds in proptest::collection::vec((any::<u64>(), 0u64..1 << 32), 1..200)) {
            let mut bins = Bins::new(1000);
            for (time, bytes) in &adds {
                bins.add(*time, *bytes);
            }
            prop_assert!(bins.bytes().len() <= BINS);
            prop_assert_eq!(bins.bytes().iter().sum::<u64>(), adds.iter().map(|a| a.1).sum::<u64>());
        }
    }
}
