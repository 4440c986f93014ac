//! What is under way to one guest in a turn: the stretches that are to be stored in
//! its pages, and the answers that depend on them.

use crate::policy::{Cross, Piece};
use crate::scratch::{BURST, RING_SLOTS};

/// Lists that keep their room from turn to turn.
pub(crate) struct Delivery {
    /// What is to be stored.
    pub pieces: Vec<Piece>,
    /// What is to cross from another guest's pages.
    pub crosses: Vec<Cross>,
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

/// One response that is to be pushed: its words, and what it depends on.
pub(crate) struct Answer {
    pub words: [u32; 2],
    /// Its pieces: first and one past the last.
    pub pieces: (usize, usize),
    /// Its crosses, likewise.
    pub crosses: (usize, usize),
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is laid out on the guest's pages.
    Laid,
    /// There are too few pages: it waits, or, where it is not in private memory,
    /// has to be brought there to wait.
    Short,
    /// It is dropped, and counted.
    Dropped,
}

impl Delivery {
    pub fn new() -> Self {
        Self {
            pieces: Vec::with_capacity(RING_SLOTS),
            crosses: Vec::new(),
            frames: Vec::with_capacity(BURST),
            answers: Vec::with_capacity(RING_SLOTS),
        }
    }

    /// Whether all that an answer depends on was done.
    pub fn is_whole(&self, answer: &Answer) -> bool {
        let pieces = self.pieces.get(answer.pieces.0..answer.pieces.1);
        let crosses = self.crosses.get(answer.crosses.0..answer.crosses.1);
        pieces.is_some_and(|pieces| pieces.iter().all(|piece| piece.status.is_okay()))
            && crosses.is_some_and(|crosses| crosses.iter().all(|cross| cross.status.is_okay()))
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
        self.crosses.clear();
        self.frames.clear();
        self.answers.clear();
    }
}
