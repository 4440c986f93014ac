//! Names and numbers of vifs and queues, the references of their rings, and limits on each.

use grantway_hypervisor::{DomId, GrantRef, Port as EventPort};

/// Name of a vif: the guest and the number of its device.
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

/// Name of a queue: its vif, and its number there.
pub(crate) type Key = (VifId, u16);

/// The references that a frontend published for one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRefs {
    /// The page of the guest's transmit ring.
    pub tx_ring: GrantRef,
    /// The page of the guest's receive ring.
    pub rx_ring: GrantRef,
    /// The event channel for transmit, and for receive too if they are not split.
    pub tx_event: EventPort,
    /// The event channel for receive if they are split.
    pub rx_event: Option<EventPort>,
}

/// The references that a frontend published for its control ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CtrlRefs {
    /// The page of the ring.
    pub ring: GrantRef,
    /// The event channel of the ring.
    pub event: EventPort,
}

/// Most queues of a vif, whatever is configured.
pub const MAX_QUEUES: u32 = 16;

/// Most pages of one queue that stay mapped, staged or persistent. The pages of two full rings are
/// half of this number. The other half is for a frontend that keeps a stock of pages.
pub const QUEUE_PAGES: usize = 1024;

/// Pages of a journal for the pages that a queue has staged.
pub(crate) const STAGED_PAGES: usize = 2;

/// Most addresses that a guest may list, as in Linux's netback.
pub(crate) const LISTED_MAX: usize = 64;
