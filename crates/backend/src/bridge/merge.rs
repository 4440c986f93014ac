//! TCP segments of a turn on the bridge, merged for who takes large frames.

use super::forward::{Forward, Others};
use crate::VifError;
use crate::lists::{Lists, UPLINK};
use crate::outlet::{Outgoing, Rest, Tally};
use crate::policy::{Piece, Policy};
use crate::receive::Frame;
use crate::scratch::{BURST, HEADS, Scratch};
use crate::stats::VifStats;
use grantway_netif::slots::tx::TxFragment;
use grantway_netif::tx::status;
use grantway_vector::Verdict;

/// What a packet of the turn is to the others.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
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
enum Outcome {
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
    some: bool,
    parts: [Part; BURST],
    /// By the number of the first packet.
    outcomes: [Outcome; BURST],
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

    fn clear(&mut self) {
        self.parts = [Part::Alone; BURST];
        self.outcomes = [Outcome::Given; BURST];
        self.pieces.clear();
        self.of.clear();
    }

    /// Says where in the arena each merged frame is to lie, all of it, and each other
    /// packet may: no more room than they had before. Brings there what is private.
    fn place(&mut self, lists: &Lists, scratch: &mut Scratch) {
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
    fn fetch(&mut self, policy: &mut dyn Policy, arena: &mut [u8]) -> Result<(), VifError> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        policy.fetch(&mut self.pieces, arena)?;
        for (piece, &first) in self.pieces.iter().zip(&self.of) {
            if !piece.status.is_okay() {
                self.outcomes[first] = Outcome::Unreadable;
            }
        }
        Ok(())
    }
}

impl<O: Others> Forward<'_, O> {
    /// Merges the packets of a turn, whose first bytes are private and of which is known
    /// where they go. Merged frames are private then, all of each.
    pub(super) fn merge(
        &mut self,
        scratch: &mut Scratch,
        policy: &mut dyn Policy,
    ) -> Result<(), VifError> {
        let Some(merger) = &mut self.merger else { return Ok(()) };
        let (lists, chains) = (&mut self.bridge.lists, &mut self.hub.chains);
        chains.some = lists.merge(merger, &mut scratch.arena);
        if !chains.some {
            return Ok(());
        }
        chains.clear();
        chains.place(lists, scratch);
        chains.fetch(policy, &mut scratch.arena)
    }

    /// Gives a packet that is part of a merged frame; the status for it, none where it
    /// is by itself.
    pub(super) fn give_merged(
        &mut self,
        packet: &Outgoing<'_>,
        frame: u8,
        arena: &mut [u8],
        stats: &mut Tally<'_>,
    ) -> Option<i16> {
        if !self.hub.chains.some {
            return None;
        }
        let first = match *self.hub.chains.parts.get(packet.number)? {
            Part::Alone => return None,
            Part::With(first) => first,
            Part::First { at, len } => {
                if self.hub.chains.outcomes[packet.number] == Outcome::Given
                    && !self.give_whole(frame, (at, len), arena, stats)
                {
                    self.hub.chains.outcomes[packet.number] = Outcome::Nobody;
                }
                packet.number
            }
        };
        match self.hub.chains.outcomes[first] {
            Outcome::Given => {
                stats.sent(packet.len());
                VifStats::add(&stats.tx_merged, 1);
            }
            Outcome::Nobody => VifStats::add(&stats.tx_dropped_port, 1),
            Outcome::Unreadable => {
                VifStats::add(&stats.tx_dropped_grant, 1);
                return Some(status::ERROR);
            }
        }
        Some(status::OKAY)
    }

    /// Gives a merged frame, which lies in the arena; whether it is for anybody.
    fn give_whole(
        &mut self,
        frame: u8,
        (at, len): (usize, usize),
        arena: &mut [u8],
        stats: &VifStats,
    ) -> bool {
        let offload = self.bridge.lists.frame(frame).offload;
        match self.bridge.lists.verdict(frame) {
            Verdict::To(UPLINK) if self.bridge.uplink.is_some() => {
                self.give_uplink(&arena[at..at + len], offload, stats);
                true
            }
            Verdict::To(port) => {
                let Some((key, _)) = self.queue_for(port, frame, &arena[at..at + len]) else {
                    return false;
                };
                let from = self.sender;
                let whole = Frame { at, len, offload, from, flooded: None, passed: false };
                self.give_queue(key, whole, arena);
                true
            }
            _ => false,
        }
    }
}
