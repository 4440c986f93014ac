//! What a vif is given to act with.

use super::succession::Journals;
use crate::ids::VifId;
use crate::policy::{Budget, PolicyLimits};
use crate::state::guest::Patience;
use crate::state::shared::Clock;
use crate::state::trace::Trace;
use crate::worker::Workers;
use grantway_hypervisor::{EventChannels, Platform, Store};
use grantway_ports::{Port, PortError};
use std::sync::Arc;

/// What a vif's port is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRequest {
    /// For which vif.
    pub vif: VifId,
    /// The interface name that the toolstack asked for, or `vif<D>.<N>`.
    pub name: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The interface that a killed process left behind for the vif, by its
    /// index: a script may have renamed it.
    pub interface: Option<u32>,
    /// Whether one is made where none was left behind: not where it is only to
    /// be removed.
    pub fresh: bool,
    /// Queues that the vif may have.
    pub queues: u32,
    /// Whether a hotplug script names the interface, joins it to a bridge and
    /// sets it up.
    pub scripted: bool,
}

/// Opens the port of a vif.
pub type OpenPort = Box<dyn FnMut(&PortRequest) -> Result<Box<dyn Port>, PortError>>;

/// What a vif borrows from its backend to act.
pub(crate) struct Surroundings<'a> {
    pub platform: &'a Arc<dyn Platform>,
    pub store: &'a mut dyn Store,
    /// The event channels of the control rings.
    pub events: &'a mut dyn EventChannels,
    pub workers: &'a Workers,
    pub open_port: &'a mut OpenPort,
    pub journals: &'a Journals,
    /// Whether hotplug scripts set interfaces up, as under a Xen toolstack.
    pub hotplug: bool,
    /// Most queues that a vif may have.
    pub queues: u32,
    /// What is borne of a guest that posts no pages.
    pub patience: Patience,
    /// Tells the time.
    pub clock: Clock,
    /// How its buffers may cross.
    pub policy: PolicyLimits,
    /// What all vifs may have mapped.
    pub budget: &'a Arc<Budget>,
    /// Whether segments are merged, as [`crate::BackendConfig::merge`].
    pub merge: bool,
    /// What queues say they do.
    pub trace: &'a Arc<Trace>,
}
