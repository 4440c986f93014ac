//! Sets of a batch's frames: lists that are always in the batch's order.

/// Most frames of a batch.
pub const BATCH_MAX: usize = 256;

const WORDS: usize = BATCH_MAX / 64;

/// Frames of one batch, by their numbers in it. Lists that were split and come together again are
/// in order without being sorted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Set([u64; WORDS]);

impl Set {
    /// Set without a frame.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Returns the first `count` frames of a batch; all of a full batch if `count` is more.
    #[must_use]
    pub fn first(count: usize) -> Self {
        Self(std::array::from_fn(|word| match count.saturating_sub(64 * word) {
            0 => 0,
            bits @ 1..64 => (1 << bits) - 1,
            _ => u64::MAX,
        }))
    }

    /// Adds a frame.
    #[inline]
    pub fn insert(&mut self, frame: u8) {
        self.0[usize::from(frame >> 6)] |= 1 << (frame & 63);
    }

    /// Removes a frame.
    #[inline]
    pub fn remove(&mut self, frame: u8) {
        self.0[usize::from(frame >> 6)] &= !(1 << (frame & 63));
    }

    /// Returns true if a frame is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, frame: u8) -> bool {
        self.0[usize::from(frame >> 6)] & 1 << (frame & 63) != 0
    }

    /// Adds all frames of another set.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    /// Returns true if the set has no frame.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Returns the number of frames.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the frames in order.
    #[inline]
    pub fn iter(&self) -> Iter {
        Iter { words: self.0, at: 0 }
    }
}

impl FromIterator<u8> for Set {
    fn from_iter<I: IntoIterator<Item = u8>>(frames: I) -> Self {
        let mut set = Self::EMPTY;
        frames.into_iter().for_each(|frame| set.insert(frame));
        set
    }
}

impl IntoIterator for &Set {
    type Item = u8;
    type IntoIter = Iter;

    #[inline]
    fn into_iter(self) -> Iter {
        self.iter()
    }
}

/// Iterator over the frames of a [`Set`], in order.
#[derive(Debug, Clone)]
pub struct Iter {
    words: [u64; WORDS],
    at: u8,
}

impl Iterator for Iter {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        while let Some(word) = self.words.get_mut(usize::from(self.at)) {
            if *word != 0 {
                let bit = word.trailing_zeros() as u8;
                *word &= *word - 1;
                return Some(self.at << 6 | bit);
            }
            self.at += 1;
        }
        None
    }

    /// Goes word by word, which is quicker than one frame at a time.
    #[inline]
    fn fold<B, F: FnMut(B, u8) -> B>(self, init: B, mut f: F) -> B {
        let mut folded = init;
        for (at, mut word) in (0..).zip(self.words) {
            while word != 0 {
                // Frames that were given already are no longer in their word.
                folded = f(folded, at << 6 | word.trailing_zeros() as u8);
                word &= word - 1;
            }
        }
        folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_first_so_many() {
        for count in [0, 1, 63, 64, 65, 128, 200, 255, 256, 300] {
            let set = Set::first(count);
            assert_eq!(set.len(), count.min(BATCH_MAX));
            assert!(set.iter().map(usize::from).eq(0..count.min(BATCH_MAX)));
            assert_eq!(set.is_empty(), count == 0);
        }
    }

    proptest! {
        #[test]
        fn as_a_sorted_set(
            one in proptest::collection::vec(any::<u8>(), 0..100),
            other in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let (mut a, b): (Set, Set) =
                (one.iter().copied().collect(), other.iter().copied().collect());
            a.merge(&b);
            let mut model: BTreeSet<u8> = one.iter().chain(&other).copied().collect();
            prop_assert!(a.iter().eq(model.iter().copied()));
            for frame in other {
                a.remove(frame);
                model.remove(&frame);
                prop_assert!(!a.contains(frame));
            }
            prop_assert!(a.iter().eq(model.iter().copied()));
            prop_assert_eq!(a.len(), model.len());
            let mut folded = Vec::new();
            a.iter().for_each(|frame| folded.push(frame));
            prop_assert!(folded.into_iter().eq(model.iter().copied()));
        }
    }
}
