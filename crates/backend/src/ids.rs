//! Names and numbers that all of the backend knows: which vif, which queue, where its rings are,
//! and how much of each there is.

use grantway_hypervisor::{DomId, GrantRef, Port as EventPort};

/// Which vif: the guest and the number of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VifId {
    /// The guest.
    pub domain: DomId,
    /// The device's number in that guest.
    pub devid: u32,
}

impl std::fmt::Display for VifId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vif{}.{}", self.domain, self.devid)
    }
}

/// A queue: which vif, which of its queues.
pub(crate) type Key = (VifId, u16);

/// What a frontend published for one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRefs {
    /// The page of the guest's transmit ring.
    pub tx_ring: GrantRef,
    /// The page of the guest's receive ring.
    pub rx_ring: GrantRef,
    /// The event channel for transmit, and for receive too where they are not
    /// split.
    pub tx_event: EventPort,
    /// The event channel for receive where they are split.
    pub rx_event: Option<EventPort>,
}

/// What a frontend published of its control ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CtrlRefs {
    /// The page of the ring.
    pub ring: GrantRef,
    /// Its event channel.
    pub event: EventPort,
}

/// Most queues that a vif may have, whatever is asked for.
pub const MAX_QUEUES: u32 = 16;

/// Most pages of one queue that stay mapped, staged or persistent: two rings' worth
/// of whole pages, and as many again for a frontend that has its pages in stock.
pub const QUEUE_PAGES: usize = 1024;

/// Pages of a journal for what a queue has staged.
pub(crate) const STAGED_PAGES: usize = 2;

/// Addresses that a guest may list, as in Linux's netback.
pub(crate) const LISTED_MAX: usize = 64;
