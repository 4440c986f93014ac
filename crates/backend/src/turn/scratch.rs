//! A worker's private memory for one turn: owned copies of slots, the bytes of
//! a burst, and lists that keep their room from turn to turn.

use crate::ids::Key;
use crate::layout::{ARENA, BURST, RING_SLOTS};
use crate::turn::batch::TxBatch;
use crate::turn::delivery::Delivery;
use crate::turn::plain::{RxPlain, TxPlain};
use grantway_hypervisor::{Arena, BackendPlatform};
use grantway_ports::PageAligned;
use grantway_ring::PAGE_SIZE;
use std::time::Duration;

/// Frames that a queue's port left in the arena. A port whose frames are much alike writes only
/// what differs ([`Port::recv_own_burst`](grantway_ports::Port::recv_own_burst)). Whoever writes
/// anything else to the arena says so.
#[derive(Default)]
pub(crate) struct Left {
    of: u64,
    frames: usize,
}

impl Left {
    /// Notes that something else was written to the arena.
    #[inline]
    pub fn void(&mut self) {
        self.frames = 0;
    }

    /// Returns the number of frames that the port of this queue left, for the port to change.
    #[inline]
    pub fn of(&mut self, queue: u64) -> &mut usize {
        if self.of != queue {
            *self = Self { of: queue, frames: 0 };
        }
        &mut self.frames
    }
}

/// Everything that a turn needs and no turn keeps.
pub(crate) struct Scratch {
    /// The bytes of the burst.
    pub arena: Arena,
    /// Frames of the last turn in the arena.
    pub left: Left,
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
    /// Allocates the memory, from the platform if it has such memory.
    pub(crate) fn new(platform: Option<&dyn BackendPlatform>) -> Self {
        let arena = platform.and_then(|platform| platform.arena(ARENA));
        Self {
            arena: arena.unwrap_or_else(|| Box::new(PageAligned::new(ARENA))),
            left: Left::default(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_a_port_left_are_void_once_another_wrote_to_the_arena() {
        let mut left = Left::default();
        assert_eq!(*left.of(1), 0);
        *left.of(1) = 5;
        assert_eq!((*left.of(1), *left.of(2), *left.of(1)), (5, 0, 0));
        *left.of(1) = 5;
        left.void();
        assert_eq!(*left.of(1), 0);
    }
}
