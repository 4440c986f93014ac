//! Repeatable numbers.

/// xorshift64*.
#[derive(Debug, Clone)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        // Seeds next to each other begin far apart.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 16) % end as u64) as usize
    }

    /// True once in so many.
    pub(super) fn once_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(super) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
