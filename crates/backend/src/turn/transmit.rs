//! Guest transmit: slots off the ring, packets to a sink, every slot answered once.

mod hand_over;
mod in_place;
mod likely;
mod mapped;

pub(crate) use in_place::{InPlace, Pause};
pub(crate) use mapped::Mapped;

use hand_over::{HandOver, within};
use likely::Likely;

use crate::VifError;
use crate::journal::{Journal, JournalMemory, TxOwed};
use crate::layout::{BURST, RING_SLOTS};
use crate::policy::Buffers;
use crate::state::shared::QueueState;
use crate::state::stats::VifStats;
use crate::state::trace::{TraceKind, TraceRing};
use crate::turn::Moved;
use crate::turn::plain::TxPlain;
use crate::turn::scratch::Scratch;
use crate::turn::sink::Sink;
use crate::turn::stages::Stages;
use crate::turn::stretches::Stretches;
use grantway_netif::slots::tx::{SLOTS_SENT, TxFatal, parse_one};
use grantway_netif::tx::{TxFlags, TxRequest, status};
use grantway_ring::{Back, PAGE_SIZE, RingMemory, RingPage, SharedPage};
use std::time::Instant;

/// Slots in use with which a guest has no room for its longest packet.
const FULL: usize = RING_SLOTS - (SLOTS_SENT + 1);

/// The guest's transmit ring, seen from the backend. Generic over where ring and
/// journal lie, so that tests can cut a turn after any write.
pub(crate) struct Transmit<M = RingPage<3>, J = SharedPage> {
    ring: Back<M, 3>,
    queue: u16,
    journal: Option<Journal<J>>,
    /// Time at which the guest may send again. Requests that it has published wait until then.
    held_until: Option<Instant>,
    /// True if the last turn that could be one of packets of a slot each was so: the next one is
    /// likely to be.
    plain: bool,
    /// True if the last report to the trace's reader said that the ring is full.
    full: bool,
    likely: Likely,
}

impl<M: RingMemory<3>, J: JournalMemory> Transmit<M, J> {
    pub(crate) fn new(ring: Back<M, 3>, queue: u16, journal: Option<Journal<J>>) -> Self {
        let likely = Likely::new();
        Self { ring, queue, journal, held_until: None, plain: false, full: false, likely }
    }

    /// Answers what a killed process had consumed and not answered: each slot once, by its id in
    /// the journal. The fate of those packets is unknown, and to send one twice would be worse than
    /// to lose it. A change of the multicast list that may not have been made is answered with an
    /// error, so that the guest asks again.
    pub(crate) fn answer_owed(&mut self, owed: &[TxOwed]) -> Result<(), VifError> {
        let answer = |slot: &TxOwed| {
            let changes = matches!(slot, TxOwed::Change(_));
            slot.response(if changes { status::ERROR } else { status::OKAY }).to_words()
        };
        // The caller signals whatever this says: the killed process may have
        // published and not signalled.
        self.respond(&owed.iter().map(answer).collect::<Vec<_>>()).map(drop)
    }

    /// Answers consumed slots, in the order of the ring. Returns whether to signal the guest.
    #[inline(always)]
    fn respond(&mut self, answers: &[[u32; 3]]) -> Result<bool, VifError> {
        let answered = self.ring.push_responses(answers);
        answered.map_err(|_| VifError::Internal("answered a slot twice"))?;
        if let Some(journal) = &self.journal {
            journal.tx_publishing(self.ring.rsp_prod_published(), self.ring.rsp_prod_pvt());
        }
        Ok(self.ring.publish())
    }

    /// Records in the trace when the ring became full, and when it has room again: a turn after it
    /// was full has taken and answered some of it. A ring whose next packet is held by the rate
    /// counts as full. That packet is not looked at before it may be sent, and a guest with more to
    /// send has filled the ring long before.
    #[cold]
    #[inline(never)]
    fn tell_of_room(&mut self, stretches: Option<&mut Stretches>, shared: &QueueState) {
        let unanswered = stretches.map_or(0, |stretches| stretches.answers());
        let full = self.held_until.is_some() || self.ring.shown() as usize + unanswered >= FULL;
        if full != self.full {
            let kind = if full { TraceKind::RingFull } else { TraceKind::RingDrained };
            shared.tap.event(self.queue, TraceRing::Transmit, kind);
            self.full = full;
        }
    }

    /// Moves at most a burst from the ring through the stages.
    pub(crate) fn turn<S: Sink>(
        &mut self,
        scratch: &mut Scratch,
        mut stages: Stages<'_, '_, S>,
    ) -> Result<Moved, VifError> {
        let (shared, stages) = (stages.shared, &mut stages);
        let Scratch { arena, left, tx, tx_plain, .. } = scratch;
        let arena = &mut arena[..];
        let waiting = self.look(&mut tx.slots, stages.buffers)?;
        if shared.tap.is_on() {
            self.tell_of_room(stages.sink.stretches(), shared);
        }
        if waiting == 0 {
            let notify = self.settle(stages.sink.stretches())?;
            return Ok(Moved { notify, ..Moved::default() });
        }
        left.void();
        let slots = tx.slots.get(..waiting).unwrap_or(&[]);
        if self.fetch_plain(slots, tx_plain, arena, stages)? {
            self.held_until = None;
            return self.carry_out(&mut **tx_plain, None, arena, stages);
        }
        let limited = shared.credit.is_limited().then(|| shared.now());
        let parsed = tx.parse(waiting, stages.sink.limits(), |bytes| match limited {
            Some(now) => shared.credit.take(bytes as u64, now),
            None => Ok(()),
        });
        let (held_until, fatal) = match parsed {
            Ok(held_until) => (held_until, None),
            Err(fatal) => (None, Some(fatal)),
        };
        self.held_until = held_until;
        if held_until.is_some() && shared.tap.is_on() {
            self.tell_of_room(stages.sink.stretches(), shared);
        }
        if tx.packets.is_empty() && fatal.is_none() {
            let notify = self.settle(stages.sink.stretches())?;
            return Ok(Moved { notify, call_at: held_until, ..Moved::default() });
        }
        stages.buffers.fetch(&mut tx.pieces, arena)?;
        self.carry_out(tx, fatal, arena, stages)
    }

    /// Lists and fetches the packets of these slots where each is of one slot, is not held by a
    /// rate, and is no longer than the sink takes whole. Returns whether all are so.
    #[inline(always)]
    fn fetch_plain<S: Sink>(
        &mut self,
        slots: &[[u32; 3]],
        plain: &mut TxPlain,
        arena: &mut [u8],
        stages: &mut Stages<'_, '_, S>,
    ) -> Result<bool, VifError> {
        let whole = stages.sink.limits().whole;
        if whole == 0 || stages.shared.credit.is_limited() {
            return Ok(false);
        }
        // Where the last turn was so, this one is likely to be.
        self.plain = (self.plain || are_plain(slots))
            && slots.len() <= BURST
            && are_within(slots, whole)
            && plain.fetch(slots, stages.buffers, arena)?;
        Ok(self.plain)
    }

    /// Has packets whose first bytes are private sent, as many as are within a turn's work, and
    /// answers their slots. `fatal` is what comes behind the last of them.
    #[inline(always)]
    fn carry_out<B: HandOver, S: Sink>(
        &mut self,
        batch: &mut B,
        mut fatal: Option<TxFatal>,
        arena: &mut [u8],
        stages: &mut Stages<'_, '_, S>,
    ) -> Result<Moved, VifError> {
        let shared = stages.shared;
        let within = within(batch, arena, stages.sink);
        if within < batch.packets() {
            shared.credit.give_back(batch.leave(within));
            (self.held_until, fatal) = (None, None);
        }
        // Killed before this, we leave the requests on the ring: bytes that were read of
        // them went nowhere.
        if let Some(journal) = &self.journal {
            journal.tx_consumed(self.ring.req_cons(), batch.owed());
        }
        batch.hand_over(self.queue, arena, stages)?;
        // At most a ring.
        let slots = batch.slots();
        let consumed = self.ring.consume(slots as u32);
        consumed.map_err(|_| VifError::Internal("consumed unseen slots"))?;
        let notify = match stages.sink.stretches() {
            Some(stretches) if stretches.are_used() => {
                stretches.wait(batch.answers());
                let left = self.ring.known() as usize;
                match fatal.is_some() || stretches.are_due(left, shared.now()) {
                    true => self.settle(Some(stretches))?,
                    false => false,
                }
            }
            _ => self.respond(batch.answers())?,
        };
        VifStats::add(&shared.stats.tx_slots, slots as u64);
        match fatal {
            // What came before the broken chain was served and answered.
            Some(source) => {
                Err(VifError::Slots { queue: self.queue, index: self.ring.req_cons(), source })
            }
            None => Ok(Moved { packets: batch.packets(), notify, call_at: self.held_until }),
        }
    }

    /// Copies as many slots as a burst of single ones takes; all that the ring
    /// has where the first packet is a chain.
    fn look(
        &mut self,
        slots: &mut [[u32; 3]; RING_SLOTS],
        buffers: &mut Buffers,
    ) -> Result<usize, VifError> {
        let first = self.ring.req_cons();
        let mut known = self.ring.known() as usize;
        if known < BURST {
            let alone = known == 0;
            let shown = self.ring.available().map_err(|e| self.ring_error(e))?;
            if shown == 0 {
                self.likely.found_nothing();
                return Ok(0);
            }
            if alone {
                self.likely.fetch(first, shown, buffers);
            }
            known = shown as usize;
        }
        let mut waiting = self.ring.peek_batch(&mut slots[..known.min(BURST)]);
        if waiting == Ok(BURST) && parse_one(slots[0]).is_none() {
            waiting = self.ring.peek_batch(slots);
        }
        let waiting = waiting.map_err(|e| self.ring_error(e))?;
        self.likely.learn(first, slots.get(..waiting).unwrap_or(&[]));
        Ok(waiting)
    }

    /// Unmaps pages, and then publishes the answers that waited for this. After that the guest may
    /// use those pages. Returns true if the guest must be signalled.
    pub(crate) fn settle(&mut self, stretches: Option<&mut Stretches>) -> Result<bool, VifError> {
        match stretches.filter(|stretches| stretches.owe()) {
            None => Ok(false),
            Some(stretches) => {
                let notify = self.respond(stretches.unmap())?;
                stretches.clear();
                Ok(notify)
            }
        }
    }

    /// Returns true if the guest has requests for the next turn.
    #[inline]
    pub(crate) fn has_requests(&mut self) -> Result<bool, VifError> {
        self.ring.has(1).map_err(|e| self.ring_error(e))
    }

    /// Requests that wait, as the guest has it.
    pub(crate) fn waiting(&self) -> u32 {
        self.ring.shown()
    }

    /// Asks for a signal at the next request. Returns true if a request is there already. Asks for
    /// none while the guest may not send.
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

/// Returns true if all packets have one slot each, by the flags of these slots.
fn are_plain(slots: &[[u32; 3]]) -> bool {
    slots.iter().all(|&words| {
        let flags = TxRequest::from_words(words).flags;
        !flags.intersects(TxFlags::MORE_DATA | TxFlags::EXTRA_INFO)
    })
}

/// Returns true if none of these slots names more than `most` bytes. Each packet has one slot.
#[inline]
fn are_within(slots: &[[u32; 3]], most: usize) -> bool {
    most >= PAGE_SIZE
        || slots.iter().all(|&words| usize::from(TxRequest::from_words(words).size) <= most)
}
