//! Frames that are written directly into the place that they are sent from.

use super::{HEAD, Stream, TestFrames};
use crate::frame::BURST;
use crate::testframe::SEQUENCE_IN_TAG;
use alloc::boxed::Box;

/// Number of heads that are kept: those of a burst, and of the burst behind it.
const AHEAD: u64 = 2 * BURST as u64;

/// Heads of the next frames, in private memory, written a burst ahead. A sequence that was just
/// written cannot be read together with the bytes around it before its store is complete. That
/// store waits behind all stores to cache lines that the other end has.
pub(super) struct Ahead {
    /// Head of each frame, at the index of its sequence modulo `AHEAD`.
    heads: Box<[[u8; HEAD]; AHEAD as usize]>,
    /// Flow of the heads.
    flow: usize,
    /// Sequence behind the last one that was written.
    until: u64,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { heads: Box::new([[0; HEAD]; AHEAD as usize]), flow: usize::MAX, until: 0 }
    }
}

impl Ahead {
    /// Prepares the heads of `frames` frames, a burst at most, from sequence `first` on, and those
    /// of a burst behind them.
    #[inline]
    fn prepare(
        &mut self,
        (flow, head): (usize, &[u8; HEAD]),
        (first, frames): (u64, u64),
        sequence_at: Option<usize>,
    ) {
        if self.flow != flow || !(first..=first + AHEAD).contains(&self.until) {
            self.heads.fill(*head);
            (self.flow, self.until) = (flow, first);
        }
        let until = first + (frames + BURST as u64).min(AHEAD);
        if let Some(at) = sequence_at {
            for sequence in self.until..until {
                let head = &mut self.heads[(sequence % AHEAD) as usize];
                head[at..at + 8].copy_from_slice(&sequence.to_be_bytes());
            }
        }
        self.until = self.until.max(until);
    }
}

impl TestFrames {
    /// Returns the next frames, at most `most` and at most a burst, for the caller to write in
    /// place. All are of one flow, and no frame carries a time. Afterwards the caller passes the
    /// number of frames that it wrote to [`TestFrames::made_in_place`].
    pub fn run(&mut self, most: usize) -> Run<'_> {
        let most = if self.stream.heads.len() > 1 { most.min(1) } else { most.min(BURST) };
        // A burst at most, so it fits.
        let frames = self.left().min(most as u64) as usize;
        let Stream { heads, sequences, flow, ahead, .. } = &mut self.stream;
        let first = sequences[*flow];
        let sequence_at = self.tagged.map(|tagged| tagged.offset() + SEQUENCE_IN_TAG);
        ahead.prepare((*flow, &heads[*flow]), (first, frames as u64), sequence_at);
        Run {
            frames,
            size: self.size,
            first,
            heads: &ahead.heads,
            rest: self.pattern.get(HEAD..).unwrap_or(&[]),
        }
    }

    /// Notes that the first `frames` frames of the last [`Run`] were made.
    pub fn made_in_place(&mut self, frames: usize) {
        let Stream { sequences, made, .. } = &mut self.stream;
        match &mut sequences[..] {
            [sequence] => {
                *sequence += frames as u64;
                *made += frames as u64;
            }
            _ => (0..frames).for_each(|_| {
                let _ = self.advance();
            }),
        }
    }
}

/// [`TestFrames`] that are to be written in place. A short frame takes two stores. Its sequence is
/// part of them. A third store would wait for the cache line.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    frames: usize,
    size: usize,
    first: u64,
    heads: &'a [[u8; HEAD]; AHEAD as usize],
    rest: &'a [u8],
}

impl Run<'_> {
    /// Returns the number of frames.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Returns the length of each frame in bytes.
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Makes the frame of this number, counted from 0. Calls `put` with an offset in the frame and
    /// the bytes for this place.
    #[inline]
    pub fn write(&self, number: usize, mut put: impl FnMut(usize, &[u8])) {
        let head = &self.heads[(self.first.wrapping_add(number as u64) % AHEAD) as usize];
        put(0, head.get(..self.size).unwrap_or(head));
        if !self.rest.is_empty() {
            put(HEAD, self.rest);
        }
    }
}
