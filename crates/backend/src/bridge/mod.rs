//! The backend's own bridge: frames from guest to guest without leaving the process.
//!
//! A turn's packets are one list ([`Lists`]), and the nodes of the graph judge them by their first
//! bytes ([`HEAD`]), which are private. Short packets are copied whole, and receivers get them as
//! bursts. Of a longer packet the head goes to the receiver from private memory, and the rest
//! crosses in one copy, from the sender's page to the receiver's. If the receiver has no pages
//! posted, or there are several receivers or the uplink, the whole packet is copied into private
//! memory once, and is a frame like any other from then on.
//!
//! All of one bridge's queues belong to one worker, so nothing here is locked.

mod forward;
mod give;
mod hub;
mod parcels;
mod route;
mod send;

pub(crate) use forward::{Forward, Others};
pub(crate) use hub::Hub;

use crate::ids::VifId;
use crate::turn::lists::Lists;
use grantway_ports::{Port, PortError};
use grantway_vector::PortId;
use std::collections::BTreeMap;

/// A guest on the bridge.
#[derive(Debug, Clone, Copy)]
struct Member {
    /// Its number in lists and rules.
    id: PortId,
    /// Number of its queues.
    queues: u16,
}

/// The bridge and its members.
pub(crate) struct Bridge {
    /// The graph that decides where frames go.
    pub lists: Lists,
    members: BTreeMap<VifId, Member>,
    /// The members, by their numbers.
    by_id: BTreeMap<PortId, VifId>,
    /// A port beside the guests.
    pub uplink: Option<Box<dyn Port>>,
    /// The error that ended the uplink, until the worker reports it.
    failure: Option<PortError>,
}

impl Bridge {
    pub fn new(lists: Lists, uplink: Option<Box<dyn Port>>) -> Self {
        let (members, by_id) = (BTreeMap::new(), BTreeMap::new());
        Self { lists, members, by_id, uplink, failure: None }
    }

    /// Drops the uplink, which failed. The guests go on without it.
    #[cold]
    fn fail(&mut self, error: PortError) {
        self.uplink = None;
        self.failure = Some(error);
    }

    /// Takes the error that ended the uplink, once.
    #[inline]
    pub fn take_failure(&mut self) -> Option<PortError> {
        self.failure.take()
    }

    /// Adds a queue of a guest. `id` is the guest's number in lists and rules.
    pub fn join(&mut self, vif: VifId, id: PortId) {
        self.members.entry(vif).or_insert(Member { id, queues: 0 }).queues += 1;
        self.by_id.insert(id, vif);
    }

    /// Removes a queue of a guest. The graph forgets the guest's addresses with its last queue.
    pub fn leave(&mut self, vif: VifId) {
        let Some(member) = self.members.get_mut(&vif) else { return };
        member.queues -= 1;
        if member.queues == 0 {
            let id = member.id;
            self.members.remove(&vif);
            self.by_id.remove(&id);
            self.lists.forget(id);
        }
    }

    /// Receivers that what is flooded may reach.
    #[inline]
    fn reach(&self) -> u32 {
        // No bridge has that many.
        (self.by_id.len() + usize::from(self.uplink.is_some())) as u32
    }

    fn member(&self, id: PortId) -> Option<(VifId, Member)> {
        let vif = *self.by_id.get(&id)?;
        Some((vif, *self.members.get(&vif)?))
    }
}
