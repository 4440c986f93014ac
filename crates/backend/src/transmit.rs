//! Guest transmit: slots in, frames out to the port, every slot answered once.

use crate::VifError;
use crate::journal::{Journal, JournalMemory, TxOwed};
use crate::outlet::{Outgoing, Outlet};
use crate::policy::{Piece, Policy};
use crate::scratch::{BURST, HEADS, RING_SLOTS, Scratch};
use crate::shared::Shared;
use crate::stats::VifStats;
use grantway_netif::slots::tx::{
    Outcome, Parsed, TxFatal, TxFragment, TxPacket, TxRefusal, parse_tx,
};
use grantway_netif::tx::{TxResponse, status};
use grantway_ring::{Back, RingMemory, RingPage, SharedPage};
use std::time::Instant;

/// Slots that one turn looks at: the longest chain that is followed at all,
/// behind a burst of single ones.
const LOOK: usize = RING_SLOTS;

/// One packet taken off the ring in this turn.
pub(crate) struct Taken {
    parsed: Parsed,
    /// Where its private bytes are to lie in the arena.
    at: usize,
    /// Where there is room for all of it, if that is asked for.
    whole_at: usize,
    /// Its pieces in the list of the turn: first and one past the last.
    pieces: (usize, usize),
}

impl Taken {
    /// Its slots, as far as their answers need them.
    fn owed(&self) -> impl Iterator<Item = TxOwed> + '_ {
        self.parsed.responses(status::OKAY).map(|response| match response.status {
            status::NULL => TxOwed::Extra,
            _ => TxOwed::Request(response.id),
        })
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
            let response = match *slot {
                TxOwed::Request(id) => TxResponse { id, status: status::OKAY },
                TxOwed::Extra => TxResponse::NULL,
            };
            self.respond(response)?;
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
        let stats = &shared.stats;
        let waiting =
            self.ring.peek_batch(&mut scratch.tx_slots[..LOOK]).map_err(|e| self.ring_error(e))?;
        if waiting == 0 {
            return Ok(Moved::default());
        }
        let (slots, fatal) = self.take(waiting, scratch, outlet.head(), shared);
        if scratch.tx_packets.is_empty() && fatal.is_none() {
            return Ok(Moved { call_at: self.held_until, ..Moved::default() });
        }
        if let Some(journal) = &self.journal {
            let taken = scratch.tx_packets.iter();
            journal.tx_consumed(self.ring.req_cons(), taken.flat_map(Taken::owed));
        }
        policy.fetch(&mut scratch.pieces, &mut scratch.arena)?;
        deliver(scratch, policy, outlet, shared)?;
        self.answer(scratch)?;
        VifStats::add(&stats.tx_slots, slots as u64);
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

    /// Parses the owned copies into packets and lists what is to be fetched.
    /// A packet that the guest may not send yet stays on the ring.
    fn take(
        &mut self,
        waiting: usize,
        scratch: &mut Scratch,
        head: usize,
        shared: &Shared,
    ) -> (usize, Option<TxFatal>) {
        scratch.tx_packets.clear();
        scratch.pieces.clear();
        self.held_until = None;
        let limited = shared.credit.is_limited().then(|| shared.now());
        let (mut slots, mut at, mut whole_at) = (0, 0, HEADS);
        while scratch.tx_packets.len() < BURST {
            let parsed = match parse_tx(&scratch.tx_slots[slots..waiting]) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                Err(fatal) => return (slots, Some(fatal)),
            };
            if let (Some(now), Outcome::Packet(packet)) = (limited, &parsed.outcome)
                && let Err(more) = shared.credit.take(packet.len.into(), now)
            {
                self.held_until = Some(more);
                break;
            }
            slots += parsed.slots;
            let first = scratch.pieces.len();
            let mut end = at;
            let mut len = 0;
            if let Outcome::Packet(packet) = &parsed.outcome {
                len = usize::from(packet.len);
                for fragment in packet.fragments.iter().filter(|f| !f.is_empty()) {
                    // At most a page.
                    let size = usize::from(fragment.size).min(at + head.min(len) - end) as u16;
                    if size == 0 {
                        break;
                    }
                    let TxFragment { gref, offset, .. } = *fragment;
                    scratch.pieces.push(Piece::new(gref, offset, size, end));
                    end += usize::from(size);
                }
            }
            let pieces = (first, scratch.pieces.len());
            scratch.tx_packets.push(Taken { parsed, at, whole_at, pieces });
            at = end.next_multiple_of(64);
            whole_at = (whole_at + len).next_multiple_of(64);
        }
        (slots, None)
    }

    /// Answers each slot of the turn's packets once.
    fn answer(&mut self, scratch: &Scratch) -> Result<(), VifError> {
        for (taken, &status) in scratch.tx_packets.iter().zip(&scratch.tx_statuses) {
            let slots = taken.parsed.slots.try_into();
            let slots = slots.map_err(|_| VifError::Internal("a chain beyond the ring"))?;
            self.ring.consume(slots).map_err(|_| VifError::Internal("consumed unseen slots"))?;
            for response in taken.parsed.responses(status) {
                self.respond(response)?;
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
    let stats = &shared.stats;
    let head = outlet.head();
    scratch.tx_statuses.clear();
    for (number, taken) in scratch.tx_packets.iter().enumerate() {
        let status = match &taken.parsed.outcome {
            Outcome::Refused(refused) => {
                let counter = match refused.reason {
                    TxRefusal::TooManySlots { .. } => &stats.tx_dropped_slots,
                    _ => &stats.tx_dropped_malformed,
                };
                VifStats::add(counter, 1);
                status::ERROR
            }
            Outcome::Packet(TxPacket { multicast: Some(change), .. }) => {
                let done = shared.multicast.change(*change);
                VifStats::add(&stats.tx_dropped_multicast, u64::from(!done));
                if done { status::OKAY } else { status::ERROR }
            }
            Outcome::Packet(packet) => {
                let pieces = &scratch.pieces[taken.pieces.0..taken.pieces.1];
                if pieces.iter().all(|piece| piece.status.is_okay()) {
                    let (at, whole_at) = (taken.at, taken.whole_at);
                    let packet = Outgoing { packet, number, at, head, whole_at };
                    outlet.send(&packet, &mut scratch.arena, policy, stats)?
                } else {
                    VifStats::add(&stats.tx_dropped_grant, 1);
                    status::ERROR
                }
            }
        };
        scratch.tx_statuses.push(status);
    }
    outlet.finish(&mut scratch.arena, policy, &mut scratch.tx_statuses)
}
