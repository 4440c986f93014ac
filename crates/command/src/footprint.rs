//! The limited resources that one vif takes, by the constants of the code that takes them. The
//! guest's side is our own frontend's. A stock frontend grants no more by grant copy.

use grantway_backend::policy::{Policy, QUEUE_AREAS};
use grantway_backend::{JOURNAL_PAGES, QUEUE_MEMORY_MAX, QUEUE_PAGES};
use grantway_frontend::{Control, Queue};
use grantway_netif::tx::TX_RING_ENTRIES;
use grantway_ports::VhostTap;

/// Nodes of the store that a guest owns for a vif, without those of its queues.
const GUEST_NODES: u64 = 17;
/// Nodes that the backend's domain owns for a vif with everything that xl gives one, and for its
/// guest.
const BACKEND_NODES: u64 = 29;
/// Nodes that a backend watches for a vif.
const BACKEND_WATCHES: u64 = 2;
/// Areas of memory that a queue's staged pages are mapped in. There are two lists. The first is of
/// a queue at rest, and has pages that are read and pages that are written. The second has the
/// further pages of a busy queue.
const STAGED_AREAS: u64 = 3;

/// Pages of buffers that a busy queue grants.
const GRANTED: u64 = Queue::BUFFER_PAGES as u64;
/// Pages of buffers that a queue at rest has granted and mapped.
const RESTING: u64 = Queue::RESTING_PAGES as u64;
/// Further pages of a busy queue, for either direction. By the policy persistent they are mapped
/// twice for a minute or longer, if they are received into after frames were sent from them: to be read, and
/// to be written.
const FURTHER: u64 = GRANTED - RESTING;

/// Most pages of buffers that are mapped for a queue at once, by any policy.
const MOST_MAPPED: u64 = {
    let (pages, room) = (GRANTED + FURTHER, QUEUE_PAGES as u64);
    if pages < room { pages } else { room }
};

/// Returns the most pages of buffers that are mapped for a queue at once.
fn mapped(policy: Policy) -> u64 {
    match policy {
        Policy::Copy => 0,
        Policy::Map => TX_RING_ENTRIES as u64,
        Policy::Persistent => MOST_MAPPED,
        Policy::Staging => GRANTED.min(QUEUE_PAGES as u64),
    }
}

/// Returns the most areas of memory that these pages are in.
fn areas(policy: Policy) -> u64 {
    match policy {
        // At worst each page was mapped by itself.
        Policy::Copy | Policy::Map => mapped(policy),
        Policy::Persistent => QUEUE_AREAS as u64,
        Policy::Staging => STAGED_AREAS,
    }
}

/// The resources that one vif takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    policy: Policy,
    queues: u64,
    /// Most pages of buffers that the backend keeps mapped for a vif.
    quota: u64,
    /// True if a thread of the kernel moves the frames of each queue's TAP.
    vhost: bool,
}

impl Footprint {
    /// Makes the footprint of a vif with `queues` queues, whose backend keeps at most `quota` pages
    /// of buffers mapped for it.
    pub fn new(policy: Policy, queues: u64, quota: u64) -> Self {
        Self { policy, queues, quota, vhost: false }
    }

    /// Returns the footprint of the same vif if the backend's port is `vhost`.
    #[must_use]
    pub fn by_vhost(self) -> Self {
        Self { vhost: true, ..self }
    }

    /// Returns the queues whose frames a thread of the kernel moves: as many threads.
    pub fn kernel_threads(self) -> u64 {
        if self.vhost { self.queues } else { 0 }
    }

    /// Returns the bytes of memory that the backend shares with these threads.
    pub fn kernel_memory(self) -> u64 {
        self.kernel_threads() * VhostTap::MEMORY as u64
    }

    /// Returns the pages that one queue grants at most, buffers and rings.
    pub const fn largest_queue() -> u64 {
        Queue::RING_PAGES as u64 + GRANTED
    }

    /// Returns the most pages that are mapped for one queue at once, by any policy, buffers and rings.
    pub const fn most_mapped() -> u64 {
        Queue::RING_PAGES as u64 + MOST_MAPPED
    }

    /// Returns the number of queues.
    pub fn queues(self) -> u64 {
        self.queues
    }

    /// Returns the grants of rings.
    pub fn rings(self) -> u64 {
        self.queues * Queue::RING_PAGES as u64
    }

    /// Returns the grants of the control ring, and of the pages that its requests point to.
    pub fn control(self) -> u64 {
        Control::PAGES as u64
    }

    /// Returns the most grants of buffers: those of busy queues.
    pub fn buffers(self) -> u64 {
        self.queues * GRANTED
    }

    /// Returns the grants of buffers while the queues are at rest and were never busy.
    pub fn resting_buffers(self) -> u64 {
        self.queues * RESTING
    }

    /// Returns all grants, which is also the number of pages of the guest.
    pub fn grants(self) -> u64 {
        self.rings() + self.control() + self.buffers()
    }

    /// Returns the event channels, an equal number at both ends: one each way for a queue, and the
    /// control ring's.
    pub fn ports(self) -> u64 {
        2 * self.queues + 1
    }

    /// Returns the pages of buffers that the backend would have mapped without a quota.
    pub fn to_map(self) -> u64 {
        self.queues * mapped(self.policy)
    }

    /// Returns the most pages that the backend has mapped at once: of rings, the control ring
    /// included, and of buffers.
    pub fn mapped(self) -> u64 {
        self.rings() + 1 + self.mapped_buffers()
    }

    /// Returns the most pages of buffers that the backend has mapped at once.
    pub fn mapped_buffers(self) -> u64 {
        self.to_map().min(self.quota)
    }

    /// Returns the pages of buffers that the backend has mapped while the queues are at rest, at
    /// most.
    pub fn mapped_resting(self) -> u64 {
        match self.policy {
            Policy::Copy | Policy::Map => 0,
            Policy::Persistent | Policy::Staging => self.resting_buffers().min(self.quota),
        }
    }

    /// Returns the most areas of the backend's address space: one per map call, the journal's, and
    /// one for each thread of the kernel.
    pub fn areas(self) -> u64 {
        self.rings() + 1 + self.buffer_areas() + 1 + self.kernel_threads()
    }

    /// Returns the most areas of buffers.
    pub fn buffer_areas(self) -> u64 {
        (self.queues * areas(self.policy)).min(self.quota)
    }

    /// Returns the bytes of the backend's journal.
    pub fn journal(self) -> u64 {
        JOURNAL_PAGES as u64 * 4096
    }

    /// Returns the most bytes of memory that frames that wait for the guest may hold.
    pub fn waiting(self) -> u64 {
        self.queues * QUEUE_MEMORY_MAX as u64
    }

    /// Returns the most descriptors of the backend: a handle of the TAP and a bell per queue, and
    /// five for the vif. One of the five is its guest's gntdev. A thread of the kernel has four more.
    pub fn descriptors(self) -> u64 {
        2 * self.queues + 5 + self.kernel_threads() * VhostTap::DESCRIPTORS as u64
    }

    /// Returns the nodes of the store that the guest owns.
    pub fn guest_nodes(self) -> u64 {
        // A vif with one queue uses the flat keys.
        GUEST_NODES + if self.queues == 1 { 4 } else { 1 + 5 * self.queues }
    }

    /// Returns the nodes of the store that the backend owns.
    pub fn backend_nodes(self) -> u64 {
        BACKEND_NODES
    }

    /// Returns the watches of the backend.
    pub fn watches(self) -> u64 {
        BACKEND_WATCHES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the grants of rings, control and buffers, the mapped pages, areas, ports, and nodes
    /// of the guest.
    fn figures(policy: Policy, queues: u64) -> [u64; 7] {
        let vif = Footprint::new(policy, queues, 4096);
        let [rings, control, buffers] = [vif.rings(), vif.control(), vif.buffers()];
        [rings, control, buffers, vif.mapped(), vif.areas(), vif.ports(), vif.guest_nodes()]
    }

    #[test]
    fn one_queue_by_hand() {
        // 256 / 16 pages for small buffers, 256 / 2 to send longer frames, 256 / 2 to receive into,
        // and 128 for either.
        assert_eq!(figures(Policy::Copy, 1), [2, 3, 400, 3, 4, 3, 21]);
        assert_eq!(figures(Policy::Map, 1), [2, 3, 400, 3 + 256, 4 + 256, 3, 21]);
        assert_eq!(figures(Policy::Persistent, 1), [2, 3, 400, 3 + 528, 4 + 16, 3, 21]);
        assert_eq!(figures(Policy::Staging, 1), [2, 3, 400, 3 + 400, 4 + 3, 3, 21]);
        assert_eq!(Footprint::new(Policy::Copy, 1, 4096).grants(), 405);
        assert_eq!(Footprint::new(Policy::Staging, 1, 4096).grants(), 405);
        assert_eq!(Footprint::largest_queue(), 402);
        // At rest a queue has no further ones.
        for (policy, quota, mapped) in [
            (Policy::Copy, 4096, 0),
            (Policy::Map, 4096, 0),
            (Policy::Persistent, 4096, 272),
            (Policy::Staging, 4096, 272),
            (Policy::Staging, 100, 100),
        ] {
            let vif = Footprint::new(policy, 1, quota);
            assert_eq!((vif.resting_buffers(), vif.mapped_resting()), (272, mapped), "{policy}");
        }
    }

    #[test]
    fn several_queues_by_hand() {
        assert_eq!(figures(Policy::Copy, 2), [4, 3, 800, 5, 6, 5, 28]);
        assert_eq!(figures(Policy::Staging, 4), [8, 3, 1600, 9 + 1600, 10 + 12, 9, 38]);
        // Eleven queues would have 4400 pages mapped, and a vif may have 4096.
        assert_eq!(figures(Policy::Staging, 11), [22, 3, 4400, 23 + 4096, 24 + 33, 23, 73]);
        assert_eq!(figures(Policy::Persistent, 11)[3..5], [23 + 4096, 24 + 11 * 16]);
    }

    #[test]
    fn what_the_backend_keeps_to_itself() {
        let vif = Footprint::new(Policy::Copy, 4, 4096);
        // 16 queues, with one page each and two for staging: 48 pages.
        assert_eq!(vif.journal(), 196_608);
        // Frames that wait: 2 MiB, and from other queues 1 MiB and 1024 heads of 32 bytes.
        assert_eq!(vif.waiting(), 4 * (3 * 1_048_576 + 1024 * 32));
        assert_eq!(vif.descriptors(), 13);
    }

    #[test]
    fn vhost_takes_memory_an_area_and_descriptors_per_queue() {
        let tap = Footprint::new(Policy::Copy, 2, 4096);
        let vhost = tap.by_vhost();
        assert_eq!((tap.kernel_threads(), tap.kernel_memory()), (0, 0));
        // 4 MiB of frames, and tables of 1024 and 256 entries of 26 bytes: nine pages.
        assert_eq!((vhost.kernel_threads(), vhost.kernel_memory()), (2, 2 * (1024 + 9) * 4096));
        assert_eq!(vhost.areas() - tap.areas(), 2);
        assert_eq!(vhost.descriptors() - tap.descriptors(), 2 * 4);
    }
}
