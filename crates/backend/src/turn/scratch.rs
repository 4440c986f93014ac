//! A worker's private memory for one turn: owned copies of slots, the bytes of
//! a burst, and lists that keep their room from turn to turn.

use crate::ids::Key;
use crate::layout::{ARENA, BURST, RING_SLOTS};
use crate::turn::batch::TxBatch;
use crate::turn::delivery::Delivery;
use crate::turn::plain::{RxPlain, TxPlain};
use grantway_hypervisor::{Arena, Platform};
use grantway_ring::PAGE_SIZE;
use std::time::Duration;

/// Private memory that begins with a page: a grant copy takes one operation for
/// each page that it touches, on either side.
struct Aligned {
    bytes: Vec<u8>,
    first: usize,
}

impl Aligned {
    fn new() -> Self {
        let bytes = vec![0; ARENA + PAGE_SIZE];
        let first = bytes.as_ptr().addr().wrapping_neg() % PAGE_SIZE;
        Self { bytes, first }
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.first..]
    }
}

impl std::ops::DerefMut for Aligned {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.first..]
    }
}

/// Everything that a turn needs and no turn keeps.
pub(crate) struct Scratch {
    /// The bytes of the burst.
    pub arena: Arena,
    /// The packets of a turn's guest transmit.
    pub tx: TxBatch,
    /// The packets of a turn in which all are of one slot.
    pub tx_plain: Box<TxPlain>,
    /// The frames of a turn to the guest in which each takes one page.
    pub rx_plain: Box<RxPlain>,
    /// Frames and answers of this turn's guest receive.
    pub delivery: Delivery,
    /// The sending queue of each frame that had waited, and the most time that giving the frame
    /// takes.
    pub waited_from: Vec<(Key, Duration)>,
    /// True if the queue that has its turn has the worker for itself.
    pub alone: bool,
}

impl Scratch {
    /// With memory of the platform's, where that has such.
    pub(crate) fn new(platform: Option<&dyn Platform>) -> Self {
        let arena = platform.and_then(|platform| platform.arena(ARENA));
        Self {
            arena: arena.unwrap_or_else(|| Box::new(Aligned::new())),
            tx: TxBatch::new(),
            tx_plain: Box::new(TxPlain::new()),
            rx_plain: Box::new(RxPlain::new()),
            delivery: Delivery::new(),
            waited_from: Vec::with_capacity(BURST),
            alone: true,
        }
    }

    /// Bytes that packets may fill, the room for one more frame not counted.
    pub(crate) const FILL: usize = RING_SLOTS * PAGE_SIZE;
}
