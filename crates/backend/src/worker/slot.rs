//! A worker's queues: each at a place of its own, so that who is served is found at
//! once, however many others are attached.

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
    /// Its vif's number in lists.
    pub id: PortId,
    pub connection: u64,
    pub active: bool,
    pub watched: bool,
    pub idle: Idle,
    /// When it is to be called, also in the worker's timers.
    pub call_at: Option<Instant>,
    pub account: Account,
}

/// Where a queue is among its worker's; once it is gone another may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(usize);

impl Place {
    /// As a number beside others, the first of which is `first`.
    pub fn token(self, first: u64) -> u64 {
        first + self.0 as u64
    }

    /// The place of such a number.
    pub fn of_token(token: u64, first: u64) -> Self {
        Self(token.wrapping_sub(first) as usize)
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Queues {
    // A slot is long, and stands aside for each turn on the bridge.
    slots: Vec<Option<Box<Slot>>>,
    places: BTreeMap<Key, Place>,
    /// Places that nobody has.
    free: Vec<Place>,
}

impl Queues {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Where a queue is.
    pub fn place(&self, key: Key) -> Option<Place> {
        self.places.get(&key).copied()
    }

    /// Those of a vif, in order.
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

    /// The same, by its key.
    pub fn find(&mut self, key: Key) -> Option<&mut Slot> {
        self.get_mut(self.place(key)?)
    }

    /// Where the next one will be.
    pub fn next(&self) -> Place {
        self.free.last().copied().unwrap_or(Place(self.slots.len()))
    }

    /// Puts one into service, whose key none has; where it is.
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

    /// Takes one out of service.
    pub fn remove(&mut self, key: Key) -> Option<(Place, Box<Slot>)> {
        let place = self.places.remove(&key)?;
        self.free.push(place);
        Some((place, self.take(place)?))
    }

    /// Has one stand aside: it keeps its place, and is not found there.
    pub fn take(&mut self, place: Place) -> Option<Box<Slot>> {
        self.slots.get_mut(place.0)?.take()
    }

    /// Gives it back.
    pub fn put_back(&mut self, place: Place, slot: Box<Slot>) {
        if let Some(there) = self.slots.get_mut(place.0) {
            *there = Some(slot);
        }
    }
}
