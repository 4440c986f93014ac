//! The backend's own bridge: frames from guest to guest without leaving the process.
//!
//! A turn's packets are one list ([`Lists`]), and the nodes of the graph judge them by their first
//! bytes ([`HEAD`]), which are private. Short packets are copied whole, and receivers get them as
//! bursts. Of a longer packet the head goes to the receiver from private memory, and the rest
//! crosses in one copy, from the sender's page to the receiver's. If the receiver has no pages
//! posted, or there are several receivers or the uplink, the whole packet is copied into private
//! memory once, and is a frame like any other from then on.
//!
//! A guest belongs to one worker, and each worker has a bridge of its own, so nothing here is locked.
//! What is for a guest of another worker is copied whole, too, and goes there by the mesh
//! ([`Mesh`]): the workers are switches, each linked with each other one, and what came by a
//! link goes to none.

mod arrive;
mod bundle;
mod forward;
mod give;
mod hub;
mod mesh;
mod parcels;
mod route;
mod send;

pub(crate) use bundle::Bundle;
pub(crate) use forward::{Forward, Others};
pub(crate) use hub::Hub;
pub(crate) use mesh::{Mesh, mesh};

use crate::ids::VifId;
use crate::state::shared::Shared;
use crate::turn::lists::{Lists, UPLINK};
use grantway_ports::{Port, PortError};
use grantway_vector::{PortId, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A guest on the bridge.
#[derive(Debug, Clone, Copy)]
struct Member {
    vif: VifId,
    /// Number of its queues.
    queues: u16,
}

/// A guest of another worker.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    pub vif: VifId,
    /// Number of the worker.
    pub worker: usize,
    /// State that the vif's queues share.
    pub shared: Arc<Shared>,
}

/// The bridge and its members, as one worker knows them.
pub(crate) struct Bridge {
    /// The graph that decides where frames go.
    pub lists: Lists,
    /// The guests of the worker, by their numbers in lists and rules.
    members: BTreeMap<PortId, Member>,
    /// All guests of other workers, by their numbers.
    elsewhere: BTreeMap<PortId, Elsewhere>,
    /// Their numbers.
    numbers: BTreeMap<VifId, PortId>,
    /// Number of guests of each other worker, by the workers' numbers.
    others: Vec<usize>,
    /// A port beside the guests.
    pub uplink: Option<Box<dyn Port>>,
    /// The worker that has the uplink, if that is another.
    uplink_at: Option<usize>,
    /// The error that ended the uplink, until the worker reports it.
    failure: Option<PortError>,
}

impl Bridge {
    pub fn new(lists: Lists, uplink: Option<Box<dyn Port>>, uplink_at: Option<usize>) -> Self {
        let (members, elsewhere, numbers, others) = Default::default();
        Self { lists, members, elsewhere, numbers, others, uplink, uplink_at, failure: None }
    }

    /// Drops the uplink, which failed. The guests continue without it.
    #[cold]
    fn fail(&mut self, error: PortError) {
        self.uplink = None;
        self.failure = Some(error);
    }

    /// Notes that the uplink of another worker failed.
    pub fn lose_uplink(&mut self) {
        self.uplink_at = None;
    }

    /// Takes the error that ended the uplink, once.
    #[inline]
    pub fn take_failure(&mut self) -> Option<PortError> {
        self.failure.take()
    }

    /// Adds a queue of a guest. `id` is the guest's number in lists and rules.
    pub fn join(&mut self, vif: VifId, id: PortId) {
        self.members.entry(id).or_insert(Member { vif, queues: 0 }).queues += 1;
    }

    /// Removes a queue of a guest. The graph forgets the guest's addresses with its last queue.
    pub fn leave(&mut self, id: PortId) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.queues -= 1;
        if member.queues == 0 {
            self.members.remove(&id);
            self.lists.forget(id);
        }
    }

    /// Notes a guest of another worker.
    pub fn join_elsewhere(&mut self, id: PortId, guest: Elsewhere) {
        if self.others.len() <= guest.worker {
            self.others.resize(guest.worker + 1, 0);
        }
        self.others[guest.worker] += 1;
        self.numbers.insert(guest.vif, id);
        self.elsewhere.insert(id, guest);
    }

    /// Returns true if another worker has receivers of what is flooded.
    #[inline]
    fn floods_to(&self, worker: usize) -> bool {
        self.others.get(worker).is_some_and(|&guests| guests > 0) || self.uplink_at == Some(worker)
    }

    /// Returns the state that the queues of a guest of another worker share.
    pub fn shared_of(&self, id: PortId) -> Option<&Arc<Shared>> {
        self.elsewhere.get(&id).map(|guest| &guest.shared)
    }

    /// Returns the same of a vif.
    pub fn shared_of_vif(&self, vif: VifId) -> Option<&Arc<Shared>> {
        self.shared_of(*self.numbers.get(&vif)?)
    }

    /// Forgets a guest that is gone, whichever worker had it.
    pub fn forget(&mut self, id: PortId) {
        if let Some(guest) = self.elsewhere.remove(&id) {
            self.numbers.remove(&guest.vif);
            self.others[guest.worker] -= 1;
        }
        self.lists.forget(id);
    }

    /// Receivers that what is flooded may reach, of all workers.
    #[inline]
    fn reach(&self) -> u32 {
        let uplink = usize::from(self.has_uplink());
        // No bridge has that many.
        (self.members.len() + self.elsewhere.len() + uplink) as u32
    }

    #[inline]
    fn has_uplink(&self) -> bool {
        self.uplink.is_some() || self.uplink_at.is_some()
    }

    /// Returns the worker of a port, if that is another one.
    #[inline]
    fn worker_of(&self, port: PortId) -> Option<usize> {
        if port == UPLINK {
            return self.uplink_at;
        }
        self.elsewhere.get(&port).map(|guest| guest.worker)
    }

    /// Returns true if frames with this verdict leave the worker, or go to several receivers: then
    /// all of each has to be private.
    #[inline]
    fn wants_whole(&self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Flood => true,
            Verdict::To(UPLINK) => self.has_uplink(),
            Verdict::To(port) => self.worker_of(port).is_some(),
            _ => false,
        }
    }
}
