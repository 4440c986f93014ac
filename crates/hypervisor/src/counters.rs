//! Counters of requests to the hypervisor. The platform's traits count them, so the figures have
//! the same meaning on every host.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that a platform keeps for one process.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        /// Values of the counters at one moment.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct CounterSnapshot { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Reads all counters. Each is read by itself, so they may be of slightly different
            /// moments.
            #[must_use]
            pub fn snapshot(&self) -> CounterSnapshot {
                CounterSnapshot { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl CounterSnapshot {
            /// Returns the counts that were added since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }

            /// Returns names and values of all counters, for tables and for JSON.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Grant copies. Each operation of a batch counts.
    copies,
    /// Batches of grant copies. Each call of [`Mapper::copy`](crate::Mapper::copy) is one.
    copy_batches,
    /// Bytes moved by grant copies.
    copy_bytes,
    /// Grants mapped.
    maps,
    /// Batches of grants mapped.
    map_batches,
    /// Grants unmapped.
    unmaps,
    /// Batches of grants unmapped.
    unmap_batches,
    /// Grants that are mapped at this moment. A gauge.
    mapped,
    /// Notifications sent.
    notifies,
    /// Sleeps that an event ended.
    wakeups,
    /// Grants that are valid at this moment. A gauge.
    granted,
    /// Pages whose grants could not be revoked yet. A gauge.
    deferred,
}

impl Counters {
    /// Adds `n` to a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }

    /// Subtracts `n` from a gauge.
    pub fn sub(gauge: &AtomicU64, n: u64) {
        gauge.fetch_sub(n, Relaxed);
    }
}

impl CounterSnapshot {
    /// Returns the number of grant operations: copies, maps and unmaps.
    #[must_use]
    pub fn grant_ops(&self) -> u64 {
        self.copies + self.maps + self.unmaps
    }
}
