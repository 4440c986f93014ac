//! Counters of requests to the hypervisor, counted at the platform's traits, so that the figures
//! mean the same on every host.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that a platform keeps for one process.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        /// The counters at one moment.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct CounterSnapshot { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Reads them all, each by itself.
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

            /// Names and values, for tables and for machines.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Grant copies (each one operation of a batch).
    copies,
    /// Batches of grant copies (hypercalls, as the caller sees them).
    copy_batches,
    /// Bytes moved by grant copies.
    copy_bytes,
    /// Grants mapped.
    maps,
    /// Map batches.
    map_batches,
    /// Grants unmapped.
    unmaps,
    /// Unmap batches.
    unmap_batches,
    /// Grants mapped right now.
    mapped,
    /// Notifications sent.
    notifies,
    /// Ends of a sleep by an event.
    wakeups,
    /// Grants that are in force right now.
    granted,
    /// Pages whose grant could not be taken back yet.
    deferred,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }

    /// Takes from a gauge.
    pub fn sub(gauge: &AtomicU64, n: u64) {
        gauge.fetch_sub(n, Relaxed);
    }
}

impl CounterSnapshot {
    /// Grant operations: copies, maps and unmaps.
    #[must_use]
    pub fn grant_ops(&self) -> u64 {
        self.copies + self.maps + self.unmaps
    }
}
