//! A rate, and the bytes that are left of it.

use crate::batch::Nanos;
use std::sync::{Arc, Mutex, PoisonError};

/// A rate, and the bytes that may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes per second.
    pub bytes: u64,
    /// Most bytes at once. A longer frame never passes.
    pub burst: u64,
}

/// Bytes that are left of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    rate: Rate,
    left: u64,
    /// Time up to which bytes were added.
    since: Nanos,
}

const SECOND: u128 = 1_000_000_000;

impl Bucket {
    /// Makes a full bucket.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate, left: rate.burst, since: 0 }
    }

    /// Returns the rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes `bytes` bytes if they are left. Returns true if so.
    #[inline]
    pub fn take(&mut self, bytes: u32, now: Nanos) -> bool {
        let passed = now.saturating_sub(self.since);
        let more = u128::from(passed) * u128::from(self.rate.bytes) / SECOND;
        // Time that does not yet make a whole byte counts later.
        if more > 0 {
            self.left =
                u128::from(self.left).saturating_add(more).min(self.rate.burst.into()) as u64;
            self.since = now;
        }
        match self.left.checked_sub(bytes.into()) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// A bucket of one rate. The graphs of all workers have the same one, so that a rate holds for all
/// of them together. The lock is held for one frame.
#[derive(Debug, Clone)]
pub(crate) struct Common(Arc<Mutex<Bucket>>);

impl Common {
    /// Makes a full bucket.
    pub fn new(rate: Rate) -> Self {
        Self(Arc::new(Mutex::new(Bucket::new(rate))))
    }

    /// Takes `bytes` bytes if they are left. Returns true if so.
    pub fn take(&self, bytes: u32, now: Nanos) -> bool {
        self.lock().take(bytes, now)
    }

    pub fn rate(&self) -> Rate {
        self.lock().rate()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Bucket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Buckets of rules.
#[derive(Debug, Default, Clone)]
pub struct Buckets {
    /// Buckets of the vifs' rates, by their ports' numbers.
    pub(crate) vifs: Vec<Option<Common>>,
    /// Buckets of the filters' rates, in order.
    pub(crate) filters: Vec<Option<Common>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_brings_the_rate_and_no_more_than_the_burst_stays() {
        let mut bucket = Bucket::new(Rate { bytes: 1000, burst: 1500 });
        assert!(bucket.take(1500, 0) && !bucket.take(1, 0));
        let mut taken = 0;
        for n in 1..=1_000_000u64 {
            taken += u64::from(bucket.take(10, n * 1000)) * 10;
        }
        assert!((990..=1000).contains(&taken), "{taken}");
        assert!(bucket.take(1500, u64::MAX) && !bucket.take(1, u64::MAX));
        let mut none = Bucket::new(Rate { bytes: 0, burst: 0 });
        assert!(!none.take(1, u64::MAX));
    }
}
