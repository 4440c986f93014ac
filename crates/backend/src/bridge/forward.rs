//! One sender's way through the bridge: what it is made of.

use super::hub::Hub;
use super::{Bridge, Mesh};
use crate::VifError;
use crate::ids::Key;
use crate::turn::queue::Queue;
use grantway_hypervisor::EventChannels;
use grantway_vector::{Merger, PortId};
use std::time::Instant;

/// The queues beside the sender's own.
pub(crate) trait Others {
    /// Returns the queue of this key, if it is in service.
    fn queue(&mut self, key: Key) -> Option<&mut Queue>;
    /// Tells the worker that a queue has something to do.
    fn wake(&mut self, key: Key);
    /// Tells the worker that a queue has something to do at this time, if nothing wakes it before.
    fn call(&mut self, key: Key, at: Instant);
    /// Reports to the worker that a receiver's queue is broken. The sender continues.
    fn broken(&mut self, key: Key, error: VifError);
}

/// The sink of a vif that is on the bridge, for one turn.
pub(crate) struct Forward<'a, O> {
    pub bridge: &'a mut Bridge,
    pub hub: &'a mut Hub,
    /// The way to other workers.
    pub mesh: &'a Mesh,
    pub others: O,
    pub events: &'a mut dyn EventChannels,
    /// Merges the sender's segments, if they are to be merged.
    pub merger: Option<&'a mut Merger>,
    /// The sender's number in lists.
    pub from: PortId,
    /// The sender's queue, or `None` for the uplink.
    pub sender: Option<Key>,
    pub now: Instant,
}
