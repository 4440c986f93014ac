//! The number of hypercalls that the guest has made.

use super::{EVENT_CHANNEL_OP, GRANT_TABLE_OP, HVM_OP, MEMORY_OP, SCHED_OP, VCPU_OP};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Hypercalls that this library makes, and their names.
const KINDS: [(u64, &str); 6] = [
    (MEMORY_OP, "memory_op"),
    (GRANT_TABLE_OP, "grant_table_op"),
    (VCPU_OP, "vcpu_op"),
    (SCHED_OP, "sched_op"),
    (EVENT_CHANNEL_OP, "event_channel_op"),
    (HVM_OP, "hvm_op"),
];

/// Numbers that a hypercall may have.
const NUMBERS: usize = 64;

static COUNTS: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];

/// Counts a hypercall.
pub(super) fn note(number: u64) {
    let count = &COUNTS[number as usize % NUMBERS];
    // One processor counts, and no interrupt makes a hypercall: no locked operation is needed.
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
}

/// Counts of the guest's hypercalls since its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hypercalls([u64; KINDS.len()]);

impl Hypercalls {
    /// Returns the present counts.
    #[must_use]
    pub fn now() -> Self {
        Self(KINDS.map(|(number, _)| COUNTS[number as usize].load(Relaxed)))
    }

    /// Returns the count of each kind, by the kind's name.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        KINDS.into_iter().zip(self.0).map(|((_, name), count)| (name, count))
    }

    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn each_kind_has_its_count_and_all_have_one_sum() {
        let counts = Hypercalls([1, 20, 300, 4000, 50_000, 600_000]);
        assert_eq!(counts.total(), 654_321);
        let fields: Vec<_> = counts.fields().collect();
        assert_eq!((fields[2], fields[5]), (("vcpu_op", 300), ("hvm_op", 600_000)));
        let numbers = KINDS.map(|(number, _)| number);
        assert_eq!(numbers, [12, 20, 24, 29, 32, 34], "those of Xen's xen.h");
    }
}
