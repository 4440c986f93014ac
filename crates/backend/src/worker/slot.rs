//! A worker's queues. Each has a place of its own, so that a queue is found at once, however many
//! others are attached.

use super::pace::Idle;
use super::share::Account;
use crate::ids::Key;
use crate::ids::VifId;
use crate::turn::queue::Queue;
use grantway_vector::PortId;
use std::collections::BTreeMap;
use std::time::Instant;

/// A queue in service.
pub(super) struct Slot {
    pub queue: Queue,
    pub key: Key,
    /// Number of the queue's vif in lists.
    pub id: PortId,
    pub connection: u64,
    pub active: bool,
    pub watched: bool,
    pub idle: Idle,
    /// Time at which the queue must be served. The worker's timers have it, too.
    pub call_at: Option<Instant>,
    pub account: Account,
}

/// The place of a queue among its worker's queues. Once the queue is gone, another may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(usize);

impl Place {
    /// Returns the place as a number. The first place has the number `first`.
    pub fn token(self, first: u64) -> u64 {
        first + self.0 as u64
    }

    /// Returns the place that has this number, if the first place has the number `first`.
    pub fn of_token(token: u64, first: u64) -> Self {
        Self(token.wrapping_sub(first) as usize)
    }
}

/// All queues of a worker.
#[derive(Default)]
pub(super) struct Queues {
    // Slots are boxed: a slot is large, and is taken out for each turn on the bridge.
    slots: Vec<Option<Box<Slot>>>,
    places: BTreeMap<Key, Place>,
    /// Places that no queue has.
    free: Vec<Place>,
}

impl Queues {
    /// Returns the number of queues.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the place of a queue.
    pub fn place(&self, key: Key) -> Option<Place> {
        self.places.get(&key).copied()
    }

    /// Returns the queues of a vif, in order.
    pub fn of(&self, vif: VifId) -> impl Iterator<Item = &Slot> {
        let places = self.places.range((vif, 0)..=(vif, u16::MAX));
        places.filter_map(|(_, &place)| self.get(place))
    }

    #[inline]
    pub fn get(&self, place: Place) -> Option<&Slot> {
        self.slots.get(place.0)?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, place: Place) -> Option<&mut Slot> {
        self.slots.get_mut(place.0)?.as_deref_mut()
    }

    /// Returns the queue of this key.
    pub fn find(&mut self, key: Key) -> Option<&mut Slot> {
        self.get_mut(self.place(key)?)
    }

    /// Returns the place that the next queue will have.
    pub fn next(&self) -> Place {
        self.free.last().copied().unwrap_or(Place(self.slots.len()))
    }

    /// Puts a queue into service whose key no other queue has. Returns its place.
    pub fn insert(&mut self, slot: Box<Slot>) -> Place {
        let place = self.next();
        self.places.insert(slot.key, place);
        if self.free.pop().is_some() {
            self.put_back(place, slot);
        } else {
            self.slots.push(Some(slot));
        }
        place
    }

    /// Takes a queue out of service. Returns its place and its slot.
    pub fn remove(&mut self, key: Key) -> Option<(Place, Box<Slot>)> {
        let place = self.places.remove(&key)?;
        self.free.push(place);
        Some((place, self.take(place)?))
    }

    /// Takes a queue out for a while. The queue keeps its place, but is not found there.
    pub fn take(&mut self, place: Place) -> Option<Box<Slot>> {
        self.slots.get_mut(place.0)?.take()
    }

    /// Puts a queue back to its place.
    pub fn put_back(&mut self, place: Place, slot: Box<Slot>) {
        if let Some(there) = self.slots.get_mut(place.0) {
            *there = Some(slot);
        }
    }
}
