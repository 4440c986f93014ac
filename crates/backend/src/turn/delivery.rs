//! Frames on their way to one guest in a turn: the pieces to be stored in its pages, and the
//! answers that depend on them.

use crate::layout::{BURST, RING_SLOTS};
use crate::policy::{Cross, Piece};
use grantway_netif::rx::RxRequest;

/// Lists that keep their room from turn to turn.
pub(crate) struct Delivery {
    /// Pieces to be stored.
    pub pieces: Vec<Piece>,
    /// Crosses: stretches of bytes to be copied from another guest's pages.
    pub crosses: Vec<Cross>,
    /// Requests that were consumed from the ring, and are not in the journal yet.
    pub consumed: Vec<RxRequest>,
    /// The frames, in the order of the ring.
    pub frames: Vec<Given>,
    /// One response a consumed request, in the order of the ring.
    pub answers: Vec<Answer>,
}

/// One frame given to the guest in this turn.
pub(crate) struct Given {
    /// Start in the arena of its bytes, or of its private bytes.
    pub at: usize,
    /// Length of the frame in bytes.
    pub len: usize,
    /// Responses of the frame among the answers: index of the first, and index behind the last.
    pub answers: (usize, usize),
}

/// One response that is to be pushed: its words, and what it depends on.
pub(crate) struct Answer {
    pub words: [u32; 2],
    /// Pieces of the frame: index of the first, and index behind the last.
    pub pieces: (u16, u16),
    /// Crosses of the frame: index of the first, and index behind the last.
    pub crosses: (u16, u16),
}

/// Fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The frame is laid out on the guest's pages.
    Laid,
    /// There are too few pages. The frame waits, or has to be brought into private memory to wait.
    Short,
    /// The frame is dropped, and counted.
    Dropped,
}

impl Delivery {
    pub fn new() -> Self {
        Self {
            pieces: Vec::with_capacity(RING_SLOTS),
            crosses: Vec::new(),
            consumed: Vec::with_capacity(RING_SLOTS),
            frames: Vec::with_capacity(BURST),
            answers: Vec::with_capacity(RING_SLOTS),
        }
    }

    /// Adds a response that depends on all pieces and crosses from these on.
    #[inline]
    pub fn answer(&mut self, words: [u32; 2], pieces: usize, crosses: usize) {
        // A few a slot, and slots are a ring's.
        let pieces = (pieces as u16, self.pieces.len() as u16);
        let crosses = (crosses as u16, self.crosses.len() as u16);
        self.answers.push(Answer { words, pieces, crosses });
    }

    /// Returns true if all pieces and crosses were moved.
    pub fn is_all_whole(&self) -> bool {
        self.pieces.iter().all(|piece| piece.status.is_okay())
            && self.crosses.iter().all(|cross| cross.status.is_okay())
    }

    /// Returns true if all pieces and crosses that an answer depends on were moved.
    #[inline]
    pub fn is_whole(&self, answer: &Answer) -> bool {
        let range = |(first, end): (u16, u16)| usize::from(first)..usize::from(end);
        let pieces = self.pieces.get(range(answer.pieces));
        let crosses = self.crosses.get(range(answer.crosses));
        pieces.is_some_and(|pieces| pieces.iter().all(|piece| piece.status.is_okay()))
            && crosses.is_some_and(|crosses| crosses.iter().all(|cross| cross.status.is_okay()))
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
        self.crosses.clear();
        self.consumed.clear();
        self.frames.clear();
        self.answers.clear();
    }
}
