//! Grants and event channels that a frontend publishes in the store.

use grantway_hypervisor::{GrantRef, Port};

/// Grants of a queue's rings, and its event channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueRefs {
    pub tx_ring: GrantRef,
    pub rx_ring: GrantRef,
    pub tx_event: Port,
    pub rx_event: Port,
}

/// Grant of a control ring, and its event channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CtrlRefs {
    pub ring: GrantRef,
    pub event: Port,
}
