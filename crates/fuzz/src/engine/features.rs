//! What counts as new.

/// Counts that are told apart, by their first: 1, 2, 3, 4 to 7, 8 to 15, 16 to
/// 31, 32 to 127, 128 and more.
const STEPS: [u8; 8] = [1, 2, 3, 4, 8, 16, 32, 128];

/// A set of features: places, each with the step of how often it was reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Features {
    /// For each place a bit for each step.
    steps: Vec<u8>,
    len: usize,
}

impl Features {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Places among them.
    pub(super) fn places(&self) -> usize {
        self.steps.iter().filter(|&&steps| steps != 0).count()
    }

    /// Whether these counts have anything that is not in the set.
    pub(super) fn lacks(&self, counts: &[u8]) -> bool {
        if self.steps.len() < counts.len() {
            return self.missing(counts).len() > 0;
        }
        // Most places are not reached; comparing slices is quick.
        let reached = |counts: &&[u8]| **counts != [0; 64][..counts.len()];
        let chunks = counts.chunks(64).zip(self.steps.chunks(64));
        chunks.filter(|(counts, _)| reached(counts)).any(|(counts, steps)| {
            counts.iter().zip(steps).any(|(&count, &steps)| bit(count) & !steps != 0)
        })
    }

    /// Takes in counts; says whether there was anything new.
    pub(super) fn add(&mut self, counts: &[u8]) -> bool {
        if !self.lacks(counts) {
            return false;
        }
        self.steps.resize(self.steps.len().max(counts.len()), 0);
        for (&count, steps) in counts.iter().zip(&mut self.steps) {
            let bit = bit(count);
            self.len += usize::from(bit & !*steps != 0);
            *steps |= bit;
        }
        true
    }

    /// What these counts have that is not in the set.
    pub(super) fn missing(&self, counts: &[u8]) -> Features {
        let known = |n: usize| self.steps.get(n).copied().unwrap_or(0);
        let steps: Vec<u8> =
            counts.iter().enumerate().map(|(n, &count)| bit(count) & !known(n)).collect();
        let len = steps.iter().filter(|&&step| step != 0).count();
        Features { steps, len }
    }

    /// Whether these counts have all of the set.
    pub(super) fn within(&self, counts: &[u8]) -> bool {
        let counts = counts.iter().chain(std::iter::repeat(&0));
        self.steps.iter().zip(counts).all(|(&steps, &count)| steps & !bit(count) == 0)
    }
}

/// The step of a count as a bit; none for 0.
fn bit(count: u8) -> u8 {
    let step = STEPS.iter().take_while(|&&first| first <= count).count();
    if step == 0 { 0 } else { 1 << (step - 1) }
}
