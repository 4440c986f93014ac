//! Parts of a backend that a vif uses.

use super::engine::Engine;
use crate::ids::VifId;
use grantway_hypervisor::Store;
use grantway_ports::{Port, PortError};

/// Description of the port that a vif needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRequest {
    /// The vif.
    pub vif: VifId,
    /// The interface name that the toolstack wrote, or `vif<D>.<N>`.
    pub name: String,
    /// Length of the largest IP packet, in bytes.
    pub mtu: u32,
    /// Index of the interface that a killed process left for the vif. A script may have renamed the
    /// interface.
    pub interface: Option<u32>,
    /// True if a new interface is to be made if no interface was left. False if a left one is only
    /// to be removed.
    pub fresh: bool,
    /// Most queues that the vif may have.
    pub queues: u32,
    /// True if a hotplug script names the interface, joins it to a bridge and sets it up.
    pub scripted: bool,
}

/// Function that opens the port of a vif. After an error the vif is not served. The function is
/// called again later if the error may pass ([`PortError::Io`], [`PortError::Tap`]).
pub type OpenPort = Box<dyn FnMut(&PortRequest) -> Result<Box<dyn Port>, PortError>>;

/// Parts of a backend that a vif uses.
pub(crate) struct Surroundings<'a> {
    pub engine: &'a mut Engine,
    pub store: &'a mut dyn Store,
    pub open_port: &'a mut OpenPort,
}
