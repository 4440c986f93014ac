//! A turn whose packets are all of one slot, with nothing said beside: short packets,
//! of which there are millions a second. Each slot is looked at once: what it says is
//! judged, its bytes are fetched, and what becomes of it is listed in fixed room. All
//! else is done for the turn.

use super::{Moved, Transmit};
use crate::VifError;
use crate::journal::{JournalMemory, TxOwed, TxOwedBytes};
use crate::outlet::Outlet;
use crate::policy::{Piece, Take};
use crate::scratch::{BURST, place};
use crate::shared::Shared;
use crate::stats::VifStats;
use crate::trace::TraceRing;
use grantway_hypervisor::{GrantRef, GrantStatus};
use grantway_netif::Offload;
use grantway_netif::slots::tx::{TxFragment, parse_one};
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse, status};
use grantway_ports::{FrameMeta, FramePlace};
use grantway_ring::RingMemory;

/// The packets of such a turn.
pub struct TxPlain {
    frames: [FramePlace; BURST],
    owed: [TxOwedBytes; BURST],
    /// Their answers, if all of them could be fetched.
    answers: [[u32; 3]; BURST],
    /// By number, a bit for each that could not be.
    missed: u64,
}

const _: () = assert!(BURST <= u64::BITS as usize);

/// Whether all packets of these slots are of one slot each, as far as their flags tell.
pub(super) fn are_plain(slots: &[[u32; 3]]) -> bool {
    slots.iter().all(|&words| {
        let flags = TxRequest::from_words(words).flags;
        !flags.intersects(TxFlags::MORE_DATA | TxFlags::EXTRA_INFO)
    })
}

impl TxPlain {
    pub(crate) fn new() -> Self {
        let (frames, owed) = ([FramePlace::default(); BURST], [TxOwedBytes::default(); BURST]);
        Self { frames, owed, answers: [[0; 3]; BURST], missed: 0 }
    }

    /// Lists the packets of these slots, a burst at most, and has each fetched. False
    /// where one of them is of another kind.
    #[inline(always)]
    pub(crate) fn list(&mut self, slots: &[[u32; 3]], fetch: &mut impl Take) -> bool {
        let Self { frames, owed, answers, missed } = self;
        let mut at = 0;
        *missed = 0;
        let places = frames.iter_mut().zip(owed.iter_mut().zip(answers));
        for (number, (&words, (frame, (owed, answer)))) in slots.iter().zip(places).enumerate() {
            let Some((fragment, checksum)) = parse_one(words) else { return false };
            let TxFragment { gref, offset, size, id } = fragment;
            *owed = TxOwed::Request(id).to_bytes();
            // The rest of an answer is zero.
            [answer[0], ..] = TxResponse { id, status: status::OKAY }.to_words();
            let len = usize::from(size);
            at = place(at, 0, len);
            let offload = Offload { checksum, gso: None };
            *frame = FramePlace { at, meta: FrameMeta { len, offload } };
            // Below the end of the arena.
            let (gref, at32) = (GrantRef(gref), at as u32);
            let status = GrantStatus::GENERAL_ERROR;
            if !fetch.take(number, Piece { gref, offset, len: size, at: at32, status }) {
                *missed |= 1 << number;
            }
            // At most a page each, which the arena has room for.
            at = (at + len).next_multiple_of(64);
        }
        true
    }

    /// The packets of so many slots, where each could be fetched.
    pub(crate) fn frames(&self, count: usize) -> &[FramePlace] {
        self.frames.get(..count).unwrap_or(&self.frames)
    }

    /// The packet of this number could not be fetched.
    pub(crate) fn miss(&mut self, number: usize) {
        self.missed |= 1 << number;
    }

    /// The page of the packet of this number, if that was fetched.
    pub(crate) fn fetched(&self, slots: &[[u32; 3]], number: usize) -> Option<GrantRef> {
        let there = self.missed & 1 << number == 0;
        there.then(|| GrantRef(TxRequest::from_words(slots[number]).gref))
    }

    /// Moves the frames that were fetched to the front, of so many, and changes the
    /// answers to the others; how many were.
    #[cold]
    fn drop_missed(&mut self, count: usize) -> usize {
        let mut kept = 0;
        for number in 0..count {
            if self.missed & 1 << number == 0 {
                self.frames[kept] = self.frames[number];
                kept += 1;
            } else {
                let answer = TxResponse::from_words(self.answers[number]);
                self.answers[number] = TxResponse { status: status::ERROR, ..answer }.to_words();
            }
        }
        kept
    }
}

impl<M: RingMemory<3>, J: JournalMemory> Transmit<M, J> {
    /// The turn of the packets that are listed, of so many slots.
    pub(super) fn turn_plain(
        &mut self,
        count: usize,
        arena: &mut [u8],
        plain: &mut TxPlain,
        outlet: &mut impl Outlet,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        self.held_until = None;
        // Killed before this, we leave the requests on the ring: bytes that were read of
        // them went nowhere.
        if let Some(journal) = &self.journal {
            journal.tx_consumed(self.ring.req_cons(), &plain.owed[..count]);
        }
        let mut fetched = count;
        if plain.missed != 0 {
            fetched = plain.drop_missed(count);
            VifStats::add(&shared.stats.tx_dropped_grant, (count - fetched) as u64);
        }
        let frames = &plain.frames[..fetched];
        if shared.tap.is_on() {
            shared.tap.packets(self.queue, TraceRing::Transmit, arena, frames);
        }
        outlet.send_whole(arena, frames, &shared.stats)?;
        // At most a burst.
        let consumed = self.ring.consume(count as u32);
        consumed.map_err(|_| VifError::Internal("consumed unseen slots"))?;
        let answered = self.ring.push_responses(&plain.answers[..count]);
        answered.map_err(|_| VifError::Internal("answered a slot twice"))?;
        let notify = self.publish();
        VifStats::add(&shared.stats.tx_slots, count as u64);
        Ok(Moved { packets: count, notify, call_at: None })
    }
}
