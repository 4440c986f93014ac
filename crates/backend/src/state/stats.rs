//! Counters of a vif: what it carried, and what it dropped, one counter per reason.
//!
//! Each queue has counters of its own. Only its worker writes them, so an addition is a plain load
//! and a plain store: a locked one costs more than the copy of a short packet. Any thread reads,
//! and sums up. Each counter is right by itself, but they are not all read at one moment.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a vif or of one of its queues, which one thread writes.
        #[derive(Debug, Default)]
        pub struct VifStats { $($(#[$doc])* pub $name: AtomicU64,)* }

        /// The counters of one vif at one moment.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct VifStatsSnapshot { $($(#[$doc])* pub $name: u64,)* }

        impl VifStats {
            /// Reads all counters, each by itself.
            #[must_use]
            pub fn snapshot(&self) -> VifStatsSnapshot {
                VifStatsSnapshot { $($name: self.$name.load(Relaxed),)* }
            }

            /// Adds other counters to these, which any thread may write meanwhile in this way.
            fn add_all(&self, other: &Self) {
                $(Self::add_among_others(&self.$name, other.$name.load(Relaxed));)*
            }
        }

        impl VifStatsSnapshot {
            fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// Returns names and values, for tables and for machines.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Packets that the guest sent and the port took.
    tx_packets,
    /// Bytes of these packets.
    tx_bytes,
    /// Slots that the guest's packets took on the ring, extras included.
    tx_slots,
    /// Packets of these that were TCP segments or UDP datagrams, and went on merged with others into
    /// one large frame.
    tx_merged,
    /// Packets of these whose blank checksum was completed here, since the vif's checksums are full.
    tx_completed,
    /// Segments that large frames of the guest were cut into, since the vif's checksums are full.
    /// Each counts as a packet.
    tx_cut,
    /// Packets given to the guest.
    rx_packets,
    /// Bytes of these packets.
    rx_bytes,
    /// Slots that these packets took on the ring, extras included.
    rx_slots,
    /// Segments and datagrams that large frames for the guest were cut into, since it does not accept
    /// them.
    rx_cut,
    /// Signals from the guest that woke this vif's queues.
    interrupts,
    /// Turns in which a queue moved at least one packet.
    turns,
    /// Signals sent to the guest.
    notifies,
    /// Guest's packets answered with an error: malformed slots.
    tx_dropped_malformed,
    /// Guest's packets answered with an error: more slots than are accepted.
    tx_dropped_slots,
    /// Guest's packets answered with an error: a grant could not be read.
    tx_dropped_grant,
    /// Guest's packets that could not be completed, although the vif's checksums are full: headers
    /// that are not understood, or more segments than a turn's work allows.
    tx_dropped_offload,
    /// Guest's packets that the port did not take. The port's own counters tell why.
    tx_dropped_port,
    /// Guest's packets that found the port busy.
    tx_dropped_busy,
    /// Guest's packets that were for the guest itself, by the addresses that the bridge knows.
    tx_dropped_back,
    /// Guest's packets that ended before their destination: by a rule, or because of headers that
    /// no rule can be applied to. The graph's counters tell why.
    tx_dropped_rules,
    /// Changes of the multicast filter that were refused: the list was full, or the address was no
    /// group's.
    tx_dropped_multicast,
    /// Frames for the guest dropped: its posted page could not be written.
    rx_dropped_grant,
    /// Frames for the guest dropped: longer than one page without scatter-gather, or longer than
    /// the protocol's 65,535 bytes.
    rx_dropped_too_large,
    /// Frames for the guest dropped: shorter than an Ethernet header.
    rx_dropped_too_short,
    /// Frames for the guest dropped: unfinished, which the guest does not accept, and with headers
    /// that we could not finish.
    rx_dropped_offload,
    /// Frames for the guest dropped: it posted no pages for too long.
    rx_dropped_drained,
    /// Frames from the port dropped for the reasons of `tx_dropped_rules`.
    rx_dropped_rules,
    /// Multicast frames for the guest to addresses that it had not listed.
    rx_filtered_multicast,
    /// Frames for the guest dropped: too many were on their way to the queue that its hash settings
    /// name.
    rx_dropped_steered,
    /// Frames that came by another queue than the one that the guest's hash settings name, and were
    /// handed over to that one.
    rx_steered,
    /// Control requests that were answered.
    ctrl_requests,
    /// Control requests that were answered with an error.
    ctrl_refused,
    /// Times that the guest had too few pages posted for the next frame.
    rx_stalls,
    /// Stretches of pages that were found mapped, so that no grant operation was needed. Under map:
    /// stretches that a port read in place.
    mapped_hits,
    /// Stretches of pages that were not mapped, under a policy that maps, and took a grant copy.
    mapped_misses,
    /// Pages that the policy persistent or map mapped.
    mapped_pages,
    /// Pages that the policy persistent unmapped again, since they were not used any more.
    mapped_evicted,
}

impl VifStats {
    /// Adds to a counter that only this thread writes.
    #[inline]
    pub fn add(counter: &AtomicU64, n: u64) {
        if n != 0 {
            counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }

    /// Adds to a counter that several threads write, all of them by this.
    fn add_among_others(counter: &AtomicU64, n: u64) {
        if n != 0 {
            counter.fetch_add(n, Relaxed);
        }
    }
}

/// The counters of one vif, since it was attached: the sum over its queues, and over what other
/// threads counted.
#[derive(Debug, Default)]
pub(crate) struct VifCounters {
    /// Counts of queues that are gone, and of threads other than a queue's worker.
    others: VifStats,
    queues: Mutex<Vec<Arc<VifStats>>>,
}

impl VifCounters {
    fn queues(&self) -> MutexGuard<'_, Vec<Arc<VifStats>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns counters for one queue, which only its worker writes, until [`VifCounters::end`].
    pub fn begin(&self) -> Arc<VifStats> {
        let own = Arc::<VifStats>::default();
        self.queues().push(Arc::clone(&own));
        own
    }

    /// Keeps the counts of a queue that is gone. Nobody writes them any more.
    pub fn end(&self, own: &Arc<VifStats>) {
        let mut queues = self.queues();
        queues.retain(|queue| !Arc::ptr_eq(queue, own));
        self.others.add_all(own);
    }

    /// Adds what a thread counted that is not a queue's worker.
    pub fn add_all(&self, counted: &VifStats) {
        self.others.add_all(counted);
    }

    /// Reads all counters.
    pub fn snapshot(&self) -> VifStatsSnapshot {
        // Under the lock no queue's counts are on their way to the others.
        let queues = self.queues();
        let mut sum = self.others.snapshot();
        queues.iter().for_each(|queue| sum.add(&queue.snapshot()));
        sum
    }
}

impl VifStatsSnapshot {
    /// Packets dropped for any reason, in both directions.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.fields().filter(|(name, _)| name.contains("dropped")).map(|(_, n)| n).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vif_has_what_its_queues_counted_and_loses_nothing_with_them() {
        let counters = VifCounters::default();
        let packets = |n| VifStatsSnapshot { tx_packets: n, ..VifStatsSnapshot::default() };
        let [first, second] = [(); 2].map(|()| counters.begin());
        VifStats::add(&first.tx_packets, 3);
        VifStats::add(&second.tx_packets, 4);
        VifStats::add(&second.tx_packets, 0);
        assert_eq!(counters.snapshot(), packets(7));
        counters.end(&first);
        assert_eq!(counters.snapshot(), packets(7));
        VifStats::add(&second.tx_packets, 1);
        counters.add_all(&VifStats { tx_packets: 5.into(), ..VifStats::default() });
        assert_eq!(counters.snapshot(), packets(13));
        counters.end(&second);
        assert_eq!((counters.snapshot(), counters.queues().len()), (packets(13), 0));
    }

    #[test]
    fn whoever_reads_while_queues_come_and_go_never_sees_less() {
        const TIMES: u64 = 2000;
        let counters = &VifCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        let own = counters.begin();
                        VifStats::add(&own.rx_bytes, 1);
                        counters.end(&own);
                        counters.add_all(&VifStats { rx_bytes: 1.into(), ..VifStats::default() });
                    }
                });
            }
            let mut seen = 0;
            for _ in 0..TIMES {
                let now = counters.snapshot().rx_bytes;
                assert!(now >= seen, "{now} after {seen}");
                seen = now;
            }
        });
        assert_eq!(counters.snapshot().rx_bytes, 4 * TIMES);
    }
}
