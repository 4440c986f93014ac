//! Counters of a vif: packets that were carried, and packets that were dropped, by reason.
//!
//! Each queue has its own counters. Only the queue's worker writes them, so an addition is a plain
//! load and a plain store. A locked addition would cost more than the copy of a short packet. Any
//! thread may read and sum them up. Each counter is correct by itself, but they are not read at one
//! moment.

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

            /// Adds other counters to these. Other threads may do so at the same time.
            fn add_all(&self, other: &Self) {
                $(Self::add_among_others(&self.$name, other.$name.load(Relaxed));)*
            }
        }

        impl VifStatsSnapshot {
            fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// Returns the name and the value of each counter.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Packets from the guest that the port took.
    tx_packets,
    /// Bytes of these packets.
    tx_bytes,
    /// Slots of all packets from the guest, extras included.
    tx_slots,
    /// Packets from the guest that were merged with others into one large frame. These are TCP
    /// segments or UDP datagrams.
    tx_merged,
    /// Packets from the guest whose blank checksum was filled in here, because the vif has full
    /// checksums.
    tx_completed,
    /// Segments from large frames of the guest, cut because the vif has full checksums. Each counts
    /// as a packet.
    tx_cut,
    /// Packets that the guest received.
    rx_packets,
    /// Bytes of these packets.
    rx_bytes,
    /// Slots that these packets took on the ring, extras included.
    rx_slots,
    /// Segments and datagrams from large frames for the guest, cut because the guest does not
    /// accept large frames.
    rx_cut,
    /// Signals from the guest that woke this vif's queues.
    interrupts,
    /// Turns in which a queue moved at least one packet.
    turns,
    /// Signals sent to the guest.
    notifies,
    /// Packets from the guest that were answered with an error: malformed slots.
    tx_dropped_malformed,
    /// Packets from the guest that were answered with an error: more slots than are accepted.
    tx_dropped_slots,
    /// Packets from the guest that were answered with an error: a grant could not be read.
    tx_dropped_grant,
    /// Packets from the guest that could not be completed, although the vif has full checksums.
    /// Their headers are unknown, or they have more segments than one turn may make.
    tx_dropped_offload,
    /// Packets from the guest that the port did not take. The port's own counters have the reason.
    tx_dropped_port,
    /// Packets from the guest that found the port busy.
    tx_dropped_busy,
    /// Packets from the guest to the guest's own address, as the bridge knows it.
    tx_dropped_back,
    /// Packets from the guest that were dropped by a rule, or because no rule could be applied to
    /// their headers. The graph's counters have the reason.
    tx_dropped_rules,
    /// Refused changes of the multicast filter: the list was full, or the address was no multicast
    /// address.
    tx_dropped_multicast,
    /// Frames for the guest dropped: its posted page could not be written.
    rx_dropped_grant,
    /// Frames for the guest dropped: longer than one page without scatter-gather, or longer than
    /// the protocol's 65,535 bytes.
    rx_dropped_too_large,
    /// Frames for the guest dropped: shorter than an Ethernet header.
    rx_dropped_too_short,
    /// Frames for the guest dropped: unfinished frames that the guest does not accept, with headers
    /// that could not be finished here.
    rx_dropped_offload,
    /// Frames for the guest dropped: the guest posted no pages for too long.
    rx_dropped_drained,
    /// Frames from the port dropped for the reasons of `tx_dropped_rules`.
    rx_dropped_rules,
    /// Multicast frames for the guest whose address the guest had not listed.
    rx_filtered_multicast,
    /// Frames for the guest dropped: too many frames waited for the queue that the guest's hash
    /// settings name.
    rx_dropped_steered,
    /// Frames for the guest that came to a queue other than the one that the guest's hash settings
    /// name, and were passed to that queue.
    rx_steered,
    /// Control requests that were answered.
    ctrl_requests,
    /// Control requests that were answered with an error.
    ctrl_refused,
    /// Times that the guest had too few pages posted for the next frame.
    rx_stalls,
    /// Parts of pages that were mapped already, so that no grant operation was needed. With the
    /// policy map: parts of pages that a port read in place.
    mapped_hits,
    /// Parts of pages that were not mapped although the policy maps pages, and used a grant copy.
    mapped_misses,
    /// Pages that the policy persistent or map mapped.
    mapped_pages,
    /// Pages that the policy persistent unmapped, because they were no longer used.
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

    /// Adds to a counter that several threads write with this function.
    fn add_among_others(counter: &AtomicU64, n: u64) {
        if n != 0 {
            counter.fetch_add(n, Relaxed);
        }
    }
}

/// The counters of one vif since it was attached: the sum over its queues, and counts of other
/// threads.
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

    /// Returns counters for one queue. Only its worker writes them, until [`VifCounters::end`].
    pub fn begin(&self) -> Arc<VifStats> {
        let own = Arc::<VifStats>::default();
        self.queues().push(Arc::clone(&own));
        own
    }

    /// Keeps the counts of a queue that is gone. No thread writes them any more.
    pub fn end(&self, own: &Arc<VifStats>) {
        let mut queues = self.queues();
        queues.retain(|queue| !Arc::ptr_eq(queue, own));
        self.others.add_all(own);
    }

    /// Adds the counts of a thread that is not a queue's worker.
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
    fn a_vif_keeps_the_counts_of_its_closed_queues() {
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
    fn counters_never_decrease_while_queues_come_and_go() {
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
