//! Which packets of a turn on the bridge are merged with others, and where in the arena a
//! merged frame lies.

use crate::VifError;
use crate::layout::{BURST, HEADS};
use crate::policy::{Buffers, Piece};
use crate::turn::lists::Lists;
use crate::turn::outlet::Rest;
use crate::turn::scratch::Scratch;
use grantway_netif::slots::tx::TxFragment;
use grantway_vector::Verdict;

/// What a packet of the turn is to the others.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It is by itself.
    #[default]
    Alone,
    /// The first of some that are one frame of so many bytes, at this place of the
    /// arena.
    First { at: usize, len: usize },
    /// It goes with an earlier packet, of this number.
    With(usize),
}

/// What became of a merged frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is on its way.
    Given,
    /// It is for nobody.
    Nobody,
    /// Not all of it could be read.
    Unreadable,
}

/// The packets of a turn that are merged with others.
pub(super) struct Chains {
    /// Whether there may be any in this turn.
    pub some: bool,
    pub parts: [Part; BURST],
    /// By the number of the first packet.
    pub outcomes: [Outcome; BURST],
    /// What is to be brought into the arena, and the number of the first packet of each.
    pieces: Vec<Piece>,
    of: Vec<usize>,
}

impl Chains {
    pub fn new() -> Self {
        let (pieces, of) = (Vec::new(), Vec::new());
        let (parts, outcomes) = ([Part::Alone; BURST], [Outcome::Given; BURST]);
        Self { some: false, parts, outcomes, pieces, of }
    }

    pub fn clear(&mut self) {
        self.parts = [Part::Alone; BURST];
        self.outcomes = [Outcome::Given; BURST];
        self.pieces.clear();
        self.of.clear();
    }

    /// Says where in the arena each merged frame is to lie, all of it, and each other
    /// packet may: no more room than they had before. Brings there what is private.
    pub fn place(&mut self, lists: &Lists, scratch: &mut Scratch) {
        let mut at = HEADS;
        for number in 0..scratch.tx_packets.len() {
            let Some(frame) = lists.frame_of(number) else { continue };
            if lists.verdict(frame) == Verdict::Merged {
                continue;
            }
            let len = match lists.is_merged(frame) {
                false => lists.frame(frame).len as usize,
                true => self.chain(number, frame, at, lists, scratch),
            };
            // Below the end of the arena.
            scratch.tx_packets[number].place_whole(at as u32);
            at = (at + len).next_multiple_of(64);
        }
    }

    /// The same for one merged frame, from its first packet on; how long it is.
    fn chain(
        &mut self,
        first: usize,
        frame: u8,
        at: usize,
        lists: &Lists,
        scratch: &mut Scratch,
    ) -> usize {
        let Scratch { arena, tx_packets, tx_slots, pieces, .. } = scratch;
        let mut end = at;
        for (part, skip) in lists.pieces(frame) {
            let number = part.token as usize;
            let taken = tx_packets.get(number);
            let Some(packet) = taken.and_then(|taken| taken.here(&tx_slots[..], pieces)) else {
                self.outcomes[first] = Outcome::Unreadable;
                continue;
            };
            let (from, private) = (part.at as usize, part.head as usize);
            arena.copy_within(from + skip as usize..from + private, end);
            end += private - skip as usize;
            let mut left = (part.len - part.head) as usize;
            let mut rest = Rest::behind(&packet, private);
            while left > 0
                && let Some(TxFragment { gref, offset, size, .. }) = rest.take(left)
            {
                self.pieces.push(Piece::new(gref, offset, size, end));
                self.of.push(first);
                end += usize::from(size);
                left -= usize::from(size);
            }
            self.parts[number] = Part::With(first);
        }
        self.parts[first] = Part::First { at, len: end - at };
        end - at
    }

    /// Brings the rest there.
    pub fn fetch(&mut self, buffers: &mut Buffers, arena: &mut [u8]) -> Result<(), VifError> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        buffers.fetch(&mut self.pieces, arena)?;
        for (piece, &first) in self.pieces.iter().zip(&self.of) {
            if !piece.status.is_okay() {
                self.outcomes[first] = Outcome::Unreadable;
            }
        }
        Ok(())
    }
}
