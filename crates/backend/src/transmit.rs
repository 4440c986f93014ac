//! Guest transmit: slots in, frames out to the port, every slot answered once.

use crate::VifError;
use crate::journal::{Journal, JournalMemory, TxOwed};
use crate::outlet::{Outgoing, Outlet, Tally};
use crate::policy::{Piece, Policy};
use crate::scratch::{BURST, HEADS, RING_SLOTS, Scratch};
use crate::shared::Shared;
use crate::stats::VifStats;
use grantway_netif::slots::tx::{Outcome, TxFatal, TxFragment, TxPacket, TxRefusal, parse_tx};
use grantway_netif::tx::{TxResponse, status};
use grantway_ring::{Back, RingMemory, RingPage, SharedPage};
use std::time::Instant;

/// One packet taken off the ring in this turn. What it says is read again from the
/// private copies of its slots, which costs less than to keep it.
pub(crate) struct Taken {
    /// Its slots among those copies: first and one past the last.
    slots: (u16, u16),
    /// Its pieces in the list of the turn, likewise.
    pieces: (u16, u16),
    /// Where its private bytes are to lie in the arena.
    at: u32,
    /// Where there is room for all of it, if that is asked for.
    whole_at: u32,
}

impl Taken {
    /// What was parsed of these copies before.
    #[inline]
    fn parsed<'a>(&self, slots: &'a [[u32; 3]]) -> Result<Outcome<'a>, VifError> {
        let own = slots.get(self.slots.0.into()..self.slots.1.into()).unwrap_or(&[]);
        match parse_tx(own) {
            Ok(Some(parsed)) => Ok(parsed.outcome),
            _ => Err(VifError::Internal("slots that parse only once")),
        }
    }

    /// Its pieces in the list of the turn.
    #[inline]
    fn pieces<'a>(&self, pieces: &'a [Piece]) -> &'a [Piece] {
        pieces.get(self.pieces.0.into()..self.pieces.1.into()).unwrap_or(&[])
    }
}

/// What a turn of one direction did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Packets taken from one side, delivered or dropped.
    pub packets: usize,
    /// The peer asked to be signalled.
    pub notify: bool,
    /// When the next packet may go that may not go now.
    pub call_at: Option<Instant>,
}

/// The guest's transmit ring, seen from the backend. Generic over where ring and
/// journal lie, so that tests can cut a turn after any write.
pub(crate) struct Transmit<M = RingPage<3>, J = SharedPage> {
    ring: Back<M, 3>,
    queue: u16,
    journal: Option<Journal<J>>,
    /// When the guest may send again: what it has published waits until then.
    held_until: Option<Instant>,
}

impl<M: RingMemory<3>, J: JournalMemory> Transmit<M, J> {
    pub(crate) fn new(ring: Back<M, 3>, queue: u16, journal: Option<Journal<J>>) -> Self {
        Self { ring, queue, journal, held_until: None }
    }

    /// Answers what a killed process had consumed and not answered: each slot
    /// once, by its journalled id. What became of those packets nobody knows;
    /// to send one twice would be worse than to lose it.
    pub(crate) fn answer_owed(&mut self, owed: &[TxOwed]) -> Result<(), VifError> {
        for slot in owed {
            self.respond(slot.response(status::OKAY))?;
        }
        // The caller signals whatever this says: the killed process may have
        // published and not signalled.
        self.publish();
        Ok(())
    }

    fn respond(&mut self, response: TxResponse) -> Result<(), VifError> {
        let pushed = self.ring.push_response(response.to_words());
        pushed.map(drop).map_err(|_| VifError::Internal("answered a slot twice"))
    }

    fn publish(&mut self) -> bool {
        if let Some(journal) = &self.journal {
            journal.tx_publishing(self.ring.rsp_prod_published(), self.ring.rsp_prod_pvt());
        }
        self.ring.publish()
    }

    /// Moves at most a burst from the ring to the outlet.
    pub(crate) fn turn(
        &mut self,
        scratch: &mut Scratch,
        policy: &mut dyn Policy,
        outlet: &mut impl Outlet,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        let waiting = self.look(&mut scratch.tx_slots)?;
        if waiting == 0 {
            return Ok(Moved::default());
        }
        let fatal = self.take(waiting, scratch, outlet.head(), shared);
        if scratch.tx_packets.is_empty() && fatal.is_none() {
            return Ok(Moved { call_at: self.held_until, ..Moved::default() });
        }
        if let Some(journal) = &self.journal {
            journal.tx_consumed(self.ring.req_cons(), &scratch.tx_owed);
        }
        policy.fetch(&mut scratch.pieces, &mut scratch.arena)?;
        deliver(scratch, policy, outlet, shared)?;
        self.answer(scratch)?;
        VifStats::add(&shared.stats.tx_slots, scratch.tx_owed.len() as u64);
        let packets = scratch.tx_packets.len();
        let moved = Moved { packets, notify: self.publish(), call_at: self.held_until };
        match fatal {
            // What came before the broken chain was served and answered.
            Some(source) => {
                Err(VifError::Slots { queue: self.queue, index: self.ring.req_cons(), source })
            }
            None => Ok(moved),
        }
    }

    /// Copies as many slots as a burst of single ones takes; all that the ring
    /// has where the first chain is longer.
    fn look(&mut self, slots: &mut [[u32; 3]; RING_SLOTS]) -> Result<usize, VifError> {
        let mut waiting = self.ring.peek_batch(&mut slots[..BURST]);
        if waiting == Ok(BURST)
            && matches!(parse_tx(&slots[..BURST]), Err(TxFatal::Truncated { .. }))
        {
            waiting = self.ring.peek_batch(slots);
        }
        waiting.map_err(|e| self.ring_error(e))
    }

    /// Parses the owned copies into packets and lists what is to be fetched.
    /// A packet that the guest may not send yet stays on the ring.
    fn take(
        &mut self,
        waiting: usize,
        scratch: &mut Scratch,
        head: usize,
        shared: &Shared,
    ) -> Option<TxFatal> {
        let Scratch { tx_slots, tx_packets, tx_owed, pieces, .. } = scratch;
        tx_packets.clear();
        tx_owed.clear();
        pieces.clear();
        self.held_until = None;
        let limited = shared.credit.is_limited().then(|| shared.now());
        let (mut slot, mut at, mut whole_at) = (0, 0, HEADS);
        while tx_packets.len() < BURST {
            let parsed = match parse_tx(&tx_slots[slot..waiting]) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                // Its end may be behind what was looked at.
                Err(TxFatal::Truncated { .. }) if waiting == BURST && slot > 0 => break,
                Err(fatal) => return Some(fatal),
            };
            let packet = match parsed.outcome {
                Outcome::Packet(packet) => Some(packet),
                Outcome::Refused(_) => None,
            };
            if let (Some(now), Some(packet)) = (limited, &packet)
                && let Err(more) = shared.credit.take(packet.len.into(), now)
            {
                self.held_until = Some(more);
                break;
            }
            tx_owed.extend(parsed.responses(status::OKAY).map(TxOwed::from));
            let first = pieces.len();
            let mut end = at;
            let mut len = 0;
            if let Some(packet) = packet {
                len = usize::from(packet.len);
                for fragment in packet.fragments().filter(|f| !f.is_empty()) {
                    // At most a page.
                    let size = usize::from(fragment.size).min(at + head.min(len) - end) as u16;
                    if size == 0 {
                        break;
                    }
                    let TxFragment { gref, offset, .. } = fragment;
                    pieces.push(Piece::new(gref, offset, size, end));
                    end += usize::from(size);
                }
            }
            // Slots and pieces are at most a ring's, and the arena is small.
            tx_packets.push(Taken {
                slots: (slot as u16, (slot + parsed.slots) as u16),
                pieces: (first as u16, pieces.len() as u16),
                at: at as u32,
                whole_at: whole_at as u32,
            });
            slot += parsed.slots;
            at = end.next_multiple_of(64);
            whole_at = (whole_at + len).next_multiple_of(64);
        }
        None
    }

    /// Answers each slot of the turn's packets once.
    fn answer(&mut self, scratch: &Scratch) -> Result<(), VifError> {
        let Scratch { tx_packets, tx_statuses, tx_owed, .. } = scratch;
        // At most a ring.
        self.ring
            .consume(tx_owed.len() as u32)
            .map_err(|_| VifError::Internal("consumed unseen slots"))?;
        for (taken, &status) in tx_packets.iter().zip(tx_statuses) {
            for &owed in tx_owed.get(taken.slots.0.into()..taken.slots.1.into()).unwrap_or(&[]) {
                self.respond(owed.response(status))?;
            }
        }
        Ok(())
    }

    /// Asks for a signal at the next request; true when one is there already.
    /// None is of any use while the guest may not send.
    pub(crate) fn arm(&mut self) -> Result<bool, VifError> {
        if self.held_until.is_some() {
            return Ok(false);
        }
        self.ring.arm().map_err(|e| self.ring_error(e))
    }

    fn ring_error(&self, source: grantway_ring::RingError) -> VifError {
        VifError::Ring { queue: self.queue, ring: "guest transmit", source }
    }
}

/// Hands each packet of a turn over, and notes what its slots are to be answered
/// with.
fn deliver(
    scratch: &mut Scratch,
    policy: &mut dyn Policy,
    outlet: &mut impl Outlet,
    shared: &Shared,
) -> Result<(), VifError> {
    let Scratch { arena, tx_slots, tx_packets, tx_statuses, pieces, .. } = scratch;
    let mut stats = Tally::new(&shared.stats);
    let head = outlet.head();
    tx_statuses.clear();
    for (number, taken) in tx_packets.iter().enumerate() {
        let status = match taken.parsed(&tx_slots[..])? {
            Outcome::Refused(refused) => {
                let counter = match refused.reason {
                    TxRefusal::TooManySlots { .. } => &stats.tx_dropped_slots,
                    _ => &stats.tx_dropped_malformed,
                };
                VifStats::add(counter, 1);
                status::ERROR
            }
            Outcome::Packet(TxPacket { multicast: Some(change), .. }) => {
                let done = shared.multicast.change(change);
                VifStats::add(&stats.tx_dropped_multicast, u64::from(!done));
                if done { status::OKAY } else { status::ERROR }
            }
            Outcome::Packet(packet) => {
                if taken.pieces(pieces).iter().all(|piece| piece.status.is_okay()) {
                    let (at, whole_at) = (taken.at as usize, taken.whole_at as usize);
                    let packet = Outgoing { packet: &packet, number, at, head, whole_at };
                    outlet.send(&packet, arena, policy, &mut stats)?
                } else {
                    VifStats::add(&stats.tx_dropped_grant, 1);
                    status::ERROR
                }
            }
        };
        tx_statuses.push(status);
    }
    drop(stats);
    outlet.finish(arena, policy, tx_statuses)
}
