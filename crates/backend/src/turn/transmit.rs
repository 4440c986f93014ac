//! Guest transmit: slots in, frames out to the port, every slot answered once.
//!
//! Under the map policy answers wait for their packets' pages to be unmapped, which
//! is done for many at once: when [`UNANSWERED_MOST`] slots wait, when the guest is
//! about to run out of slots, when it sent nothing in a turn, when the queue is
//! to wait for others, and at the latest at the first turn after [`UNANSWERED_LONGEST`].
//! A queue is never armed with answers that wait.

mod mapped;
mod plain;

pub(crate) use mapped::{Mapped, Stretches};
use plain::are_plain;

use crate::VifError;
use crate::journal::{Journal, JournalMemory, TxOwed};
use crate::layout::{BURST, HEADS, RING_SLOTS, place};
use crate::policy::{Buffers, Piece};
use crate::state::shared::Shared;
use crate::state::stats::VifStats;
use crate::state::trace::{TraceKind, TraceRing};
use crate::turn::outlet::{Outgoing, Outlet, Tally, lead};
use crate::turn::scratch::Scratch;
use crate::turn::taken::{Moved, Taken};
use crate::turn::work;
use arrayvec::ArrayVec;
use grantway_netif::slots::tx::{
    Outcome, SLOTS_SENT, TxFatal, TxFragment, TxPacket, TxRefusal, parse_one, parse_tx,
};
use grantway_netif::tx::{TxRequest, TxResponse, status};
use grantway_ring::{Back, PAGE_SIZE, RingMemory, RingPage, SharedPage};
use std::time::{Duration, Instant};

/// Slots that wait to be answered before pages are unmapped for it: half a ring,
/// so that the guest has the other half to fill.
const UNANSWERED_MOST: usize = RING_SLOTS / 2;
/// How long the first of them waits while packets keep coming.
const UNANSWERED_LONGEST: Duration = Duration::from_micros(100);
/// Slots that the guest is to have free: a guest stops to send when it has fewer
/// than its longest packet takes, and one more packet is to go meanwhile.
const FREE_LEAST: usize = 2 * (SLOTS_SENT + 2);

/// Slots in use with which a guest has no room for its longest packet.
const FULL: usize = RING_SLOTS - (SLOTS_SENT + 1);

/// The guest's transmit ring, seen from the backend. Generic over where ring and
/// journal lie, so that tests can cut a turn after any write.
pub(crate) struct Transmit<M = RingPage<3>, J = SharedPage> {
    ring: Back<M, 3>,
    queue: u16,
    journal: Option<Journal<J>>,
    /// When the guest may send again: what it has published waits until then.
    held_until: Option<Instant>,
    /// Answers, in ring order, that wait for pages to be unmapped.
    unanswered: Vec<TxResponse>,
    /// Since when the first of them does.
    unanswered_since: Option<Instant>,
    /// Whether all packets of the last turn were of one slot.
    plain: bool,
    /// Whether the ring was full when that was last told to who listens.
    full: bool,
}

impl<M: RingMemory<3>, J: JournalMemory> Transmit<M, J> {
    pub(crate) fn new(ring: Back<M, 3>, queue: u16, journal: Option<Journal<J>>) -> Self {
        let unanswered = Vec::new();
        Self {
            ring,
            queue,
            journal,
            held_until: None,
            unanswered,
            unanswered_since: None,
            plain: false,
            full: false,
        }
    }

    /// Answers what a killed process had consumed and not answered: each slot
    /// once, by its journalled id. What became of those packets nobody knows;
    /// to send one twice would be worse than to lose it. A change of the multicast list
    /// that may not have been made has failed, for who asked for it to ask again.
    pub(crate) fn answer_owed(&mut self, owed: &[TxOwed]) -> Result<(), VifError> {
        for slot in owed {
            let changes = matches!(slot, TxOwed::Change(_));
            self.respond(slot.response(if changes { status::ERROR } else { status::OKAY }))?;
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

    /// Tells who listens when the ring became full, and when it has room again: the turn
    /// after it was full has taken and answered some of it. One whose next packet the rate
    /// holds counts as full: nobody looks at it before that may go, and a guest that has
    /// more to send has filled it long before.
    #[cold]
    #[inline(never)]
    fn tell_of_room(&mut self, shared: &Shared) {
        let full =
            self.held_until.is_some() || self.ring.shown() as usize + self.unanswered.len() >= FULL;
        if full != self.full {
            let kind = if full { TraceKind::RingFull } else { TraceKind::RingDrained };
            shared.tap.event(self.queue, TraceRing::Transmit, kind);
            self.full = full;
        }
    }

    /// Moves at most a burst from the ring to the outlet.
    pub(crate) fn turn<O: Outlet>(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        outlet: &mut O,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        let waiting = self.look(&mut scratch.tx_slots)?;
        if shared.tap.is_on() {
            self.tell_of_room(shared);
        }
        if waiting == 0 {
            return Ok(Moved { notify: self.settle(|| outlet.unmap())?, ..Moved::default() });
        }
        if O::WHOLE > 0 && !self.owes() && !shared.credit.is_limited() {
            let Scratch { arena, tx_slots, tx_plain, .. } = scratch;
            let (arena, slots) = (&mut arena[..], tx_slots.get(..waiting).unwrap_or(&[]));
            // Where the last turn was so, this one is likely to be.
            self.plain = (self.plain || are_plain(slots))
                && slots.len() <= BURST
                && are_within(slots, O::WHOLE)
                && tx_plain.fetch(slots, buffers, arena)?;
            if self.plain {
                let within = match O::IS_PRICED {
                    true => outlet.within_whole(tx_plain.frames(waiting), arena).min(waiting),
                    false => waiting,
                };
                return self.turn_plain(within, arena, tx_plain, outlet, shared);
            }
        }
        let mut fatal = self.take(waiting, scratch, outlet, shared);
        if self.held_until.is_some() && shared.tap.is_on() {
            self.tell_of_room(shared);
        }
        if scratch.tx_packets.is_empty() && fatal.is_none() {
            let notify = self.settle(|| outlet.unmap())?;
            return Ok(Moved { notify, call_at: self.held_until, ..Moved::default() });
        }
        buffers.fetch(&mut scratch.pieces, &mut scratch.arena)?;
        if O::IS_PRICED {
            let within = outlet.within(&scratch.tx_packets, &scratch.arena);
            if within < scratch.tx_packets.len() {
                self.leave(within, scratch, shared);
                fatal = None;
            }
        }
        // Killed before this, we leave the requests on the ring: bytes that were read of
        // them went nowhere.
        if let Some(journal) = &self.journal {
            let owed: ArrayVec<_, RING_SLOTS> =
                scratch.tx_owed.iter().take(RING_SLOTS).map(|owed| owed.to_bytes()).collect();
            journal.tx_consumed(self.ring.req_cons(), &owed);
        }
        if shared.tap.is_on() {
            self.tell_of_packets(scratch, shared);
        }
        outlet.prepare(scratch, buffers, &shared.stats)?;
        deliver(scratch, buffers, outlet, shared)?;
        // At most a ring.
        let consumed = self.ring.consume(scratch.tx_owed.len() as u32);
        consumed.map_err(|_| VifError::Internal("consumed unseen slots"))?;
        let notify = if outlet.mapped() == 0 && !self.owes() {
            each_answer(scratch, |response| self.respond(response))?;
            self.publish()
        } else {
            each_answer(scratch, |response| {
                self.unanswered.push(response);
                Ok(())
            })?;
            match fatal.is_some() || self.is_due(shared.now()) {
                true => self.settle(|| outlet.unmap())?,
                false => false,
            }
        };
        VifStats::add(&shared.stats.tx_slots, scratch.tx_owed.len() as u64);
        let packets = scratch.tx_packets.len();
        let moved = Moved { packets, notify, call_at: self.held_until };
        match fatal {
            // What came before the broken chain was served and answered.
            Some(source) => {
                Err(VifError::Slots { queue: self.queue, index: self.ring.req_cons(), source })
            }
            None => Ok(moved),
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_of_packets(&self, scratch: &Scratch, shared: &Shared) {
        let Scratch { arena, tx_slots, tx_packets, pieces, .. } = scratch;
        let heads = tx_packets.iter().filter_map(|taken| {
            let packet = taken.here(&tx_slots[..], pieces)?;
            Some((taken.at as usize, packet.len.into()))
        });
        shared.tap.heads(self.queue, TraceRing::Transmit, arena, heads);
    }

    /// Copies as many slots as a burst of single ones takes; all that the ring
    /// has where the first packet is a chain.
    fn look(&mut self, slots: &mut [[u32; 3]; RING_SLOTS]) -> Result<usize, VifError> {
        let mut waiting = self.ring.peek_batch(&mut slots[..BURST]);
        if waiting == Ok(BURST) && parse_one(slots[0]).is_none() {
            waiting = self.ring.peek_batch(slots);
        }
        waiting.map_err(|e| self.ring_error(e))
    }

    /// Parses the owned copies into packets and lists what is to be fetched.
    /// A packet that the guest may not send yet stays on the ring.
    fn take<O: Outlet>(
        &mut self,
        waiting: usize,
        scratch: &mut Scratch,
        outlet: &O,
        shared: &Shared,
    ) -> Option<TxFatal> {
        let head = outlet.head();
        let Scratch { tx_slots, tx_packets, tx_owed, pieces, .. } = scratch;
        tx_packets.clear();
        tx_owed.clear();
        pieces.clear();
        self.held_until = None;
        let limited = shared.credit.is_limited().then(|| shared.now());
        let (mut slot, mut at, mut whole_at) = (0, 0, HEADS);
        while tx_packets.len() < BURST && !outlet.has_enough(slot) {
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
            let owed = tx_owed.len();
            tx_owed.extend(parsed.responses(status::OKAY).map(TxOwed::from));
            if packet.as_ref().is_some_and(|packet| packet.multicast.is_some()) {
                tx_owed[owed..].iter_mut().for_each(|owed| *owed = owed.changing());
            }
            let first = pieces.len();
            let (mut len, mut price) = (0, 0);
            if let Some(packet) = &packet {
                len = usize::from(packet.len);
                if O::IS_PRICED {
                    price = work::price(len, packet.offload.gso);
                }
                at = place(at, lead(packet).unwrap_or(0).min(head), len.min(head));
            }
            let mut end = at;
            if let Some(packet) = packet {
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
            // Slots and pieces are at most a ring's, the arena is small, and a packet's length
            // is of 16 bits.
            tx_packets.push(Taken {
                slots: (slot as u16, (slot + parsed.slots) as u16),
                pieces: (first as u16, pieces.len() as u16),
                at: at as u32,
                whole_at: whole_at as u32,
                len: len as u16,
                price,
            });
            slot += parsed.slots;
            at = end.next_multiple_of(64);
            whole_at = (whole_at + len).next_multiple_of(64);
        }
        None
    }

    /// Leaves the packets behind so many of a turn's on the ring, for the next turn, and
    /// what comes behind them.
    #[cold]
    fn leave(&mut self, within: usize, scratch: &mut Scratch, shared: &Shared) {
        let Scratch { tx_packets, tx_owed, .. } = scratch;
        let left = tx_packets.get(within..).unwrap_or_default();
        // They pay when they go; a refused one, which has no length here, never does.
        let paid = left.iter().map(|taken| u64::from(taken.len)).sum();
        shared.credit.give_back(paid);
        if let Some(first) = left.first() {
            tx_owed.truncate(first.slots.0.into());
        }
        tx_packets.truncate(within);
        self.held_until = None;
    }

    /// Whether the answers that wait are to be given now.
    fn is_due(&mut self, now: Instant) -> bool {
        let left = self.ring.known() as usize;
        let since = *self.unanswered_since.get_or_insert(now);
        let slots = self.unanswered.len();
        slots >= UNANSWERED_MOST
            || slots + left > RING_SLOTS - FREE_LEAST
            || now.saturating_duration_since(since) >= UNANSWERED_LONGEST
    }

    /// Whether answers wait.
    pub(crate) fn owes(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Gives the answers that wait, once `unmap` has unmapped their packets' pages: from
    /// then on the guest may do with those as it likes. Whether to signal it.
    pub(crate) fn settle(&mut self, unmap: impl FnOnce()) -> Result<bool, VifError> {
        if !self.owes() {
            return Ok(false);
        }
        unmap();
        let mut answers = std::mem::take(&mut self.unanswered);
        answers.drain(..).try_for_each(|response| self.respond(response))?;
        (self.unanswered, self.unanswered_since) = (answers, None);
        Ok(self.publish())
    }

    /// Requests that wait, as the guest has it.
    pub(crate) fn waiting(&self) -> u32 {
        self.ring.shown()
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

/// Whether no packet of these is longer, were each of one slot.
#[inline]
fn are_within(slots: &[[u32; 3]], most: usize) -> bool {
    most >= PAGE_SIZE
        || slots.iter().all(|&words| usize::from(TxRequest::from_words(words).size) <= most)
}

/// Calls `take` with the answer to each slot of the turn's packets, in the order of
/// the ring.
#[inline]
fn each_answer(
    scratch: &Scratch,
    mut take: impl FnMut(TxResponse) -> Result<(), VifError>,
) -> Result<(), VifError> {
    let mut owed = scratch.tx_owed.iter();
    for (taken, &status) in scratch.tx_packets.iter().zip(&scratch.tx_statuses) {
        for owed in owed.by_ref().take((taken.slots.1 - taken.slots.0).into()) {
            take(owed.response(status))?;
        }
    }
    Ok(())
}

/// Hands each packet of a turn over, and notes what its slots are to be answered
/// with.
fn deliver(
    scratch: &mut Scratch,
    buffers: &mut Buffers,
    outlet: &mut impl Outlet,
    shared: &Shared,
) -> Result<(), VifError> {
    let Scratch { arena, tx_slots, tx_packets, tx_statuses, pieces, .. } = scratch;
    let arena = &mut arena[..];
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
                    outlet.send(&packet, arena, buffers, &mut stats)?
                } else {
                    VifStats::add(&stats.tx_dropped_grant, 1);
                    status::ERROR
                }
            }
        };
        tx_statuses.push(status);
    }
    drop(stats);
    outlet.finish(arena, buffers, tx_statuses)
}
