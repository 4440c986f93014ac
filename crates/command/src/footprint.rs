//! What one vif takes of what is limited, by the constants of the code that takes
//! it. The guest's side is that of our own frontend; a stock one grants no more
//! by grant copy.

use grantway_backend::policy::{Policy, QUEUE_AREAS};
use grantway_backend::{JOURNAL_PAGES, QUEUE_MEMORY_MAX, QUEUE_PAGES};
use grantway_frontend::{Control, Queue};
use grantway_netif::tx::TX_RING_ENTRIES;

/// Nodes of the store that a guest owns for a vif, those of its queues not
/// counted.
const GUEST_NODES: u64 = 17;
/// Nodes that the backend's domain owns for a vif with everything that xl gives
/// one, and for its guest.
const BACKEND_NODES: u64 = 29;
/// Nodes that a backend watches for a vif.
const BACKEND_WATCHES: u64 = 2;
/// Areas of memory that a queue's staged pages are mapped in: two lists, the first
/// of pages that are read and pages that are written.
const STAGED_AREAS: u64 = 3;

/// Pages of buffers that a queue grants.
const GRANTED: u64 = Queue::BUFFER_PAGES as u64;

/// Pages of buffers that are mapped for a queue at once, at most.
fn mapped(policy: Policy) -> u64 {
    match policy {
        Policy::Copy => 0,
        Policy::Map => TX_RING_ENTRIES as u64,
        Policy::Persistent | Policy::Staging => GRANTED.min(QUEUE_PAGES as u64),
    }
}

/// Areas of memory that these are in, at most.
fn areas(policy: Policy) -> u64 {
    match policy {
        // At worst a page was mapped at a time.
        Policy::Copy | Policy::Map => mapped(policy),
        Policy::Persistent => QUEUE_AREAS as u64,
        Policy::Staging => STAGED_AREAS,
    }
}

/// What one vif takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    policy: Policy,
    queues: u64,
    /// Most pages of buffers that the backend keeps mapped for a vif.
    quota: u64,
}

impl Footprint {
    /// Of a vif with so many queues, whose backend keeps at most `quota` pages of
    /// buffers mapped for it.
    pub fn new(policy: Policy, queues: u64, quota: u64) -> Self {
        Self { policy, queues, quota }
    }

    /// Pages of one queue, buffers and rings, where all of them stay mapped.
    pub const fn largest_queue() -> u64 {
        (Queue::RING_PAGES + Queue::BUFFER_PAGES) as u64
    }

    /// Its queues.
    pub fn queues(self) -> u64 {
        self.queues
    }

    /// Grants of rings.
    pub fn rings(self) -> u64 {
        self.queues * Queue::RING_PAGES as u64
    }

    /// Grants of the control ring, and of what its requests point to.
    pub fn control(self) -> u64 {
        Control::PAGES as u64
    }

    /// Grants of buffers.
    pub fn buffers(self) -> u64 {
        self.queues * GRANTED
    }

    /// Grants in all: pages of the guest.
    pub fn grants(self) -> u64 {
        self.rings() + self.control() + self.buffers()
    }

    /// Event channels, the same at both ends: one each way for a queue, and the
    /// control ring's.
    pub fn ports(self) -> u64 {
        2 * self.queues + 1
    }

    /// Pages of buffers that the backend would have mapped, were there no quota.
    pub fn to_map(self) -> u64 {
        self.queues * mapped(self.policy)
    }

    /// Pages that the backend has mapped at once, at most: of rings, and of
    /// buffers.
    pub fn mapped(self) -> u64 {
        self.rings() + 1 + self.mapped_buffers()
    }

    /// Pages of them that are of buffers.
    pub fn mapped_buffers(self) -> u64 {
        self.to_map().min(self.quota)
    }

    /// Areas of the backend's address space, at most: a map call each, and the
    /// journal's.
    pub fn areas(self) -> u64 {
        self.rings() + 1 + self.buffer_areas() + 1
    }

    /// Areas that are of buffers.
    pub fn buffer_areas(self) -> u64 {
        (self.queues * areas(self.policy)).min(self.quota)
    }

    /// Bytes of the backend's journal.
    pub fn journal(self) -> u64 {
        JOURNAL_PAGES as u64 * 4096
    }

    /// Bytes of memory that frames may hold which wait for the guest, at most.
    pub fn waiting(self) -> u64 {
        self.queues * QUEUE_MEMORY_MAX as u64
    }

    /// Descriptors of the backend, at most: a handle of the TAP and a bell for a
    /// queue, and some for the vif, of which one is its guest's gntdev.
    pub fn descriptors(self) -> u64 {
        2 * self.queues + 5
    }

    /// Nodes of the store that are the guest's.
    pub fn guest_nodes(self) -> u64 {
        // One queue uses the flat keys.
        GUEST_NODES + if self.queues == 1 { 4 } else { 1 + 5 * self.queues }
    }

    /// Nodes of the store that are the backend's.
    pub fn backend_nodes(self) -> u64 {
        BACKEND_NODES
    }

    /// Watches of the backend.
    pub fn watches(self) -> u64 {
        BACKEND_WATCHES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rings, control, buffers; mapped; areas; ports; nodes of the guest.
    fn figures(policy: Policy, queues: u64) -> [u64; 7] {
        let vif = Footprint::new(policy, queues, 4096);
        let [rings, control, buffers] = [vif.rings(), vif.control(), vif.buffers()];
        [rings, control, buffers, vif.mapped(), vif.areas(), vif.ports(), vif.guest_nodes()]
    }

    #[test]
    fn one_queue_by_hand() {
        // 2 * 256 pages, and 256 / 16 more of small buffers.
        assert_eq!(figures(Policy::Copy, 1), [2, 3, 528, 3, 4, 3, 21]);
        assert_eq!(figures(Policy::Map, 1), [2, 3, 528, 3 + 256, 4 + 256, 3, 21]);
        assert_eq!(figures(Policy::Persistent, 1), [2, 3, 528, 3 + 528, 4 + 16, 3, 21]);
        assert_eq!(figures(Policy::Staging, 1), [2, 3, 528, 3 + 528, 4 + 3, 3, 21]);
        assert_eq!(Footprint::new(Policy::Copy, 1, 4096).grants(), 533);
        assert_eq!(Footprint::new(Policy::Staging, 1, 4096).grants(), 533);
        assert_eq!(Footprint::largest_queue(), 530);
    }

    #[test]
    fn several_queues_by_hand() {
        assert_eq!(figures(Policy::Copy, 2), [4, 3, 1056, 5, 6, 5, 28]);
        assert_eq!(figures(Policy::Staging, 4), [8, 3, 2112, 9 + 2112, 10 + 12, 9, 38]);
        // Eight queues would have 4224 pages mapped, and a vif may have 4096.
        assert_eq!(figures(Policy::Staging, 8), [16, 3, 4224, 17 + 4096, 18 + 24, 17, 58]);
        assert_eq!(figures(Policy::Persistent, 8)[3..5], [17 + 4096, 18 + 8 * 16]);
    }

    #[test]
    fn what_the_backend_keeps_to_itself() {
        let vif = Footprint::new(Policy::Copy, 4, 4096);
        // 16 queues, a page each and two for what is staged: 48 pages.
        assert_eq!(vif.journal(), 196_608);
        // Frames for it: 2 MiB, and of other queues 1 MiB and 1024 heads of 32 bytes.
        assert_eq!(vif.waiting(), 4 * (3 * 1_048_576 + 1024 * 32));
        assert_eq!(vif.descriptors(), 13);
    }
}
