//! Support that the tests of several crates share: repeatable numbers, and copies of programs.
//!
//! Only tests and fuzz targets call this crate. It calls nothing of the workspace. The feature `std`
//! adds the copies, so that a guest without an operating system can have the numbers.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "std")]
use std::path::Path;
#[cfg(feature = "std")]
use std::process::Command;

/// Copies a program, with its mode, to where a test runs it.
///
/// `cp` does it, not this process: a program that any process has open for writing is not run
/// (ETXTBSY, execve(2)). If this process wrote it, a child that another test starts meanwhile would
/// hold it open, too, until that child becomes its own program.
///
/// # Panics
/// `cp` does not start, or fails.
#[cfg(feature = "std")]
pub fn copy_program(from: &Path, to: &Path) {
    let status =
        Command::new("cp").args(["-p", "--"]).args([from, to]).status().expect("cp starts");
    assert!(status.success(), "cp {} {}: {status}", from.display(), to.display());
}

/// Repeatable numbers: the same seed gives the same numbers, on any machine
/// (xorshift64*, Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled", 2016).
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// Begins at a seed. A pair of seeds that differ in the lowest bit only are one.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // The state must not be 0.
        Self(seed | 1)
    }

    /// Returns the next number. The upper bits are the better ones.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Begins another sequence, which does not depend on how many numbers are taken
    /// of this one afterwards.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    /// Returns 32 bits.
    pub fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// Returns 16 bits.
    pub fn half(&mut self) -> u16 {
        (self.next() >> 48) as u16
    }

    /// Returns 8 bits.
    pub fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }

    /// Returns a number below `end`.
    ///
    /// # Panics
    /// `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 16) % end as u64) as usize
    }

    /// Returns one of these.
    ///
    /// # Panics
    /// There are none.
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Returns true once in `many` calls, on average.
    ///
    /// # Panics
    /// `many` is 0.
    pub fn once_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let mut numbers = Numbers::new(1);
        let first = [(); 3].map(|()| numbers.next());
        // Those of xorshift64* from the state 1.
        assert_eq!(first, [0x47e4_ce4b_896c_dd1d, 0xabcf_a6a8_e079_651d, 0xb9d1_0d8f_eb73_1f57]);
        let (mut one, mut other) = (Numbers::new(6), Numbers::new(7));
        assert_eq!(one.fork().next(), other.fork().next());
    }

    #[test]
    fn numbers_stay_below_their_end() {
        let mut numbers = Numbers::new(9);
        for end in 1..200 {
            assert!(numbers.below(end) < end);
        }
        assert!(numbers.once_in(1));
        assert_eq!(numbers.one_of(&[5]), 5);
    }
}
