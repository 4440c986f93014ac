//! The backend's own bridge: frames from guest to guest without leaving the process.
//!
//! The first bytes of a packet ([`HEAD`]) are copied into private memory, judged
//! there, and from there given to the receiver. The rest crosses in one copy, from
//! the sender's page to the receiver's, and only where the receiver has pages posted;
//! where it has not, or where there are several receivers or the uplink, the whole
//! packet is copied into private memory once, and from there on it is a frame like
//! any other.
//!
//! All of one bridge's queues belong to one worker, so nothing here is locked.

mod forward;
mod table;

pub(crate) use forward::{Forward, Hub, Key, Others};
pub(crate) use table::Place;

use crate::queue::VifId;
use grantway_ports::{Port, PortError};
use std::collections::BTreeMap;
use table::Table;

/// Bytes of a packet that are private before it is known where it goes: enough for
/// every header that is looked at.
pub(crate) const HEAD: usize = 128;

/// Who is on the bridge.
pub(crate) struct Bridge {
    table: Table,
    /// The guests, and how many queues each has.
    members: BTreeMap<VifId, u16>,
    /// A port beside the guests.
    pub uplink: Option<Box<dyn Port>>,
    /// Why the uplink is of no more use.
    failure: Option<PortError>,
}

impl Bridge {
    pub fn new(uplink: Option<Box<dyn Port>>) -> Self {
        Self { table: Table::default(), members: BTreeMap::new(), uplink, failure: None }
    }

    /// The uplink is of no more use; the worker is told when it next turns to it.
    fn fail(&mut self, error: PortError) {
        self.failure.get_or_insert(error);
    }

    /// A queue of a guest joins.
    pub fn join(&mut self, vif: VifId) {
        *self.members.entry(vif).or_default() += 1;
    }

    /// A queue of a guest leaves; with the last its addresses are forgotten.
    pub fn leave(&mut self, vif: VifId) {
        let Some(queues) = self.members.get_mut(&vif) else { return };
        *queues -= 1;
        if *queues == 0 {
            self.members.remove(&vif);
            self.table.forget_place(Place::Vif(vif));
        }
    }

    /// The queue of a member that takes what comes by this queue of another: flows
    /// keep to one queue, as they do at their sender.
    fn queue(&self, vif: VifId, from: u16) -> Option<u16> {
        self.members.get(&vif).map(|&queues| from % queues.max(1))
    }
}
