//! What is under way to the receivers of one turn on the bridge.

use super::chains::Chains;
use crate::ids::Key;
use crate::layout::BURST;
use crate::policy::Piece;
use crate::turn::delivery::Delivery;
use crate::turn::plain::RxPlain;
use arrayvec::ArrayVec;
use grantway_ports::FramePlace;

/// One receiver's queue, and what it is to be given.
pub(super) struct Target {
    pub key: Key,
    /// Frames in private memory that it is to be given as one burst.
    pub burst: ArrayVec<FramePlace, BURST>,
    /// Which of those others are given, too: a bit each.
    pub flooded: u64,
    /// What it took so far.
    pub delivery: Delivery,
}

/// Lists of a turn that keep their room from turn to turn.
pub(crate) struct Hub {
    /// Whom the turn's packets go to, and what: the first `used` are in use.
    pub(super) targets: Vec<Target>,
    pub(super) used: usize,
    /// Frames for the uplink.
    pub(super) uplink: ArrayVec<FramePlace, BURST>,
    /// What of a packet is brought into private memory.
    pub(super) pieces: Vec<Piece>,
    /// Packets that are merged with others.
    pub(super) chains: Box<Chains>,
    /// For a receiver's burst.
    pub(super) plain: Box<RxPlain>,
}

impl Hub {
    pub fn new() -> Self {
        Self {
            targets: Vec::new(),
            used: 0,
            uplink: ArrayVec::new(),
            pieces: Vec::new(),
            chains: Box::new(Chains::new()),
            plain: Box::new(RxPlain::new()),
        }
    }

    /// The place of a receiver's queue among the targets.
    pub(super) fn target(&mut self, key: Key) -> usize {
        if let Some(at) = self.targets[..self.used].iter().position(|target| target.key == key) {
            return at;
        }
        if self.used == self.targets.len() {
            let (burst, delivery) = (ArrayVec::new(), Delivery::new());
            self.targets.push(Target { key, burst, flooded: 0, delivery });
        }
        let target = &mut self.targets[self.used];
        target.key = key;
        target.burst.clear();
        target.flooded = 0;
        target.delivery.clear();
        self.used += 1;
        self.used - 1
    }
}

impl Target {
    /// Adds frames to its burst.
    pub fn push(&mut self, places: &[FramePlace], flooded: bool) {
        let first = self.burst.len();
        // A turn has no more frames than there is room for.
        if self.burst.try_extend_from_slice(places).is_ok() && flooded {
            (first..self.burst.len()).for_each(|number| self.flooded |= 1 << number);
        }
    }
}
