//! What is under way to one guest in a turn: the stretches that are to be stored in
//! its pages, and the answers that depend on them.

use crate::policy::Piece;
use crate::scratch::{BURST, RING_SLOTS};

/// Lists that keep their room from turn to turn.
pub(crate) struct Delivery {
    /// What is to be stored.
    pub pieces: Vec<Piece>,
    /// The frames, in the order of the ring.
    pub frames: Vec<Given>,
    /// One response a consumed request, in the order of the ring.
    pub answers: Vec<Answer>,
}

/// One frame given to the guest in this turn.
pub(crate) struct Given {
    /// Its length in bytes.
    pub len: usize,
    /// Its responses among the answers: first and one past the last.
    pub answers: (usize, usize),
}

/// One response that is to be pushed: its words, and the piece it depends on.
pub(crate) struct Answer {
    pub words: [u32; 2],
    pub piece: Option<usize>,
}

impl Delivery {
    pub fn new() -> Self {
        Self {
            pieces: Vec::with_capacity(RING_SLOTS),
            frames: Vec::with_capacity(BURST),
            answers: Vec::with_capacity(RING_SLOTS),
        }
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
        self.frames.clear();
        self.answers.clear();
    }
}
