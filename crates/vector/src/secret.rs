//! Numbers of keys. A sender that does not know the secret cannot make two keys with one number.

use rustix::rand::{GetRandomFlags, getrandom};
use std::hash::{BuildHasher, Hasher};
use std::io;

/// Secret on which the numbers depend, beside the key. It comes in as an argument: a backend takes
/// it from [`Secret::random`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secret(pub u64, pub u64);

impl Secret {
    /// Draws a secret that nobody outside can guess, from the kernel's random numbers. No file is
    /// opened.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn random() -> io::Result<Self> {
        // So few bytes come at once or not at all.
        let mut words = [[0; 8]; 2];
        getrandom(words.as_flattened_mut(), GetRandomFlags::empty())?;
        let [first, second] = words.map(u64::from_ne_bytes);
        Ok(Self(first, second))
    }

    /// Returns the number of a key.
    #[inline]
    #[must_use]
    pub fn number(self, words: &[u64]) -> u64 {
        let mut state = self.0;
        for &word in words {
            state = fold(state ^ word, self.1 | 1).wrapping_add(self.0.rotate_left(32));
        }
        fold(state, 0x9e37_79b9_7f4a_7c15)
    }
}

/// Returns all bits of a product, folded into one word.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    (product as u64) ^ (product >> 64) as u64
}

/// Hasher of a map whose keys depend on a secret.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed(pub Secret);

impl BuildHasher for Keyed {
    type Hasher = Number;

    #[inline]
    fn build_hasher(&self) -> Number {
        Number { secret: self.0, state: self.0.0 }
    }
}

/// Number of a key that is still being read.
pub(crate) struct Number {
    secret: Secret,
    state: u64,
}

impl Hasher for Number {
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, 0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(part) {
                *to = *from;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let Secret(first, second) = self.secret;
        self.state = fold(self.state ^ word, second | 1).wrapping_add(first.rotate_left(32));
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.write_u64((number >> 64) as u64);
        self.write_u64(number as u64);
    }
}
