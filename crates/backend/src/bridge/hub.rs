//! Frames on their way to the receivers of one turn on the bridge.

use super::bundle::Bundle;
use super::parcels::Parcels;
use crate::ids::Key;
use crate::layout::BURST;
use crate::turn::delivery::Delivery;
use crate::turn::plain::RxPlain;
use arrayvec::ArrayVec;
use grantway_ports::FramePlace;
use grantway_vector::News;

/// One receiver's queue, and what it is to be given.
pub(super) struct Target {
    pub key: Key,
    /// Frames of the list, in order: each in private memory, or its first bytes.
    pub burst: ArrayVec<FramePlace, BURST>,
    /// Frames of the burst that other guests get, too: a bit each.
    pub flooded: u64,
    /// Frames of the burst whose rest is in the sender's pages: a bit each. `packets` has the
    /// number of the packet that each of them is.
    pub split: u64,
    pub packets: [u8; BURST],
    /// Frames that the receiver took so far.
    pub delivery: Delivery,
}

/// Lists of a turn that keep their room from turn to turn.
pub(crate) struct Hub {
    /// Receivers of the turn's packets, each with its frames: the first `used` are in use.
    pub(super) targets: Vec<Target>,
    pub(super) used: usize,
    /// Frames for the uplink.
    pub(super) uplink: ArrayVec<FramePlace, BURST>,
    /// The frames of packets that are not all in private memory.
    pub(super) parcels: Box<Parcels>,
    /// For a receiver's burst.
    pub(super) plain: Box<RxPlain>,
    /// Frames for the guests of other workers, by the workers' numbers.
    pub(super) away: Box<[Bundle]>,
    /// News of the list of the turn.
    pub(super) news: Vec<News>,
}

impl Hub {
    /// Makes lists for one worker of `workers`.
    pub fn new(workers: usize) -> Self {
        Self {
            targets: Vec::new(),
            used: 0,
            uplink: ArrayVec::new(),
            parcels: Box::default(),
            plain: Box::new(RxPlain::new()),
            news: Vec::new(),
            away: (0..workers).map(|_| Bundle::default()).collect(),
        }
    }

    /// The receiver's queue of this key, among the targets.
    #[inline]
    pub(super) fn target(&mut self, key: Key) -> &mut Target {
        let used = &self.targets[..self.used];
        let at = used.iter().position(|target| target.key == key).unwrap_or_else(|| {
            if self.used == self.targets.len() {
                self.targets.push(Target::new(key));
            }
            self.targets[self.used].begin(key);
            self.used += 1;
            self.used - 1
        });
        &mut self.targets[at]
    }
}

impl Target {
    fn new(key: Key) -> Self {
        let (burst, delivery) = (ArrayVec::new(), Delivery::new());
        Self { key, burst, flooded: 0, split: 0, packets: [0; BURST], delivery }
    }

    #[inline]
    fn begin(&mut self, key: Key) {
        self.key = key;
        self.burst.clear();
        (self.flooded, self.split) = (0, 0);
        self.delivery.clear();
    }

    /// Adds frames to its burst. `rest` is the packet of which the first has its first bytes
    /// only.
    #[inline]
    pub fn push(&mut self, places: &[FramePlace], rest: Option<u8>, flooded: bool) {
        debug_assert!(rest.is_none() || places.len() == 1, "one packet has a rest");
        let first = self.burst.len();
        // A turn has no more frames than there is room for.
        if self.burst.try_extend_from_slice(places).is_err() {
            return;
        }
        if flooded {
            (first..self.burst.len()).for_each(|number| self.flooded |= 1 << number);
        }
        if let (Some(packet), Some(place)) = (rest, self.packets.get_mut(first)) {
            self.split |= 1 << first;
            *place = packet;
        }
    }
}
