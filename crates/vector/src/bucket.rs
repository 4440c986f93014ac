//! A rate, and the bytes that are left of it.

use crate::batch::Nanos;
use crate::nodes::classifier::{Filter, Treatment};
use crate::report::carried;
use crate::rules::Rules;
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

    fn rate(&self) -> Rate {
        self.lock().rate()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Bucket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Buckets of rules. All graphs that have the rules have these.
#[derive(Debug, Default, Clone)]
pub struct Buckets {
    /// Buckets of the vifs' rates, by their ports' numbers.
    pub(crate) vifs: Vec<Option<Common>>,
    /// Buckets of the filters' rates, in order.
    pub(crate) filters: Vec<Option<Common>>,
}

impl Buckets {
    /// Makes the buckets of rules that replace others. A rate that stays as it was, of a vif or of
    /// a filter with the same name, keeps the bytes that are left of it.
    pub(crate) fn after(rules: &Rules, old: &Rules) -> Self {
        let known = old.buckets.get().cloned().unwrap_or_default();
        let kept = |rate: Option<Rate>, known: Option<Common>| {
            let rate = rate?;
            Some(known.filter(|old| old.rate() == rate).unwrap_or_else(|| Common::new(rate)))
        };
        let of_vif = |at| known.vifs.get(at).cloned().flatten();
        let vifs = rules.vifs.iter().enumerate();
        let vifs = vifs.map(|(at, vif)| kept(vif.rate, of_vif(at))).collect();
        let (before, filters) = (&old.filters.filters, &rules.filters.filters);
        let name = |filter: &Filter| filter.name.clone();
        let known = carried(before, &known.filters, filters, name);
        let filters = filters.iter().zip(known).map(|(filter, known)| match filter.treatment {
            Treatment::Police(rate) => kept(Some(rate), known),
            _ => None,
        });
        Self { vifs, filters: filters.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::PortId;

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

    #[test]
    fn a_rate_is_one_for_all_graphs_and_keeps_what_is_left_over_a_reload() {
        let rules = |bytes, burst| {
            let mut rules = Rules::default();
            rules.vif_mut(PortId(1)).unwrap().rate = Some(Rate { bytes, burst });
            Arc::new(rules)
        };
        let none = Arc::new(Rules::default());
        let (first, second, third) = (rules(1, 1000), rules(1, 1000), rules(2, 1000));
        let of = |rules: &Arc<Rules>, old: &Arc<Rules>| rules.buckets(old).vifs[1].clone().unwrap();
        let (one, other) = (of(&first, &none), of(&first, &none));
        assert!(one.take(600, 0) && !other.take(600, 0) && other.take(400, 0));
        assert!(!of(&second, &first).take(1, 0), "the same rate");
        // A graph that lags behind two loads has the buckets of the others all the same.
        assert!(of(&third, &second).take(1000, 0), "another one");
        assert!(!of(&second, &first).take(1, 0) && !of(&third, &second).take(1, 0));
    }
}
