//! A turn whose packets are all of one slot, with nothing said beside: short packets,
//! of which there are millions a second. What is known of each is kept in two lists of
//! fixed room, and each step is taken for all of them before the next.

use super::{Moved, Transmit};
use crate::VifError;
use crate::journal::{JournalMemory, TxOwed};
use crate::outlet::Outlet;
use crate::policy::{Piece, Policy};
use crate::scratch::{BURST, Scratch, place};
use crate::shared::Shared;
use crate::stats::VifStats;
use grantway_netif::Offload;
use grantway_netif::slots::tx::{TxFragment, parse_one};
use grantway_netif::tx::{TxRequest, TxResponse, status};
use grantway_ports::{FrameMeta, FramePlace};
use grantway_ring::RingMemory;

/// The packets of such a turn.
pub(crate) struct Plain {
    pieces: [Piece; BURST],
    frames: [FramePlace; BURST],
}

impl Plain {
    pub fn new() -> Self {
        Self { pieces: [Piece::new(0, 0, 0, 0); BURST], frames: [FramePlace::default(); BURST] }
    }

    /// Lists the packets of these slots; false where one of them is of another
    /// kind, or there are more slots than a turn has packets.
    pub fn list(&mut self, slots: &[[u32; 3]]) -> bool {
        let mut at = 0;
        let places = self.pieces.iter_mut().zip(&mut self.frames);
        for (&words, (piece, frame)) in slots.iter().zip(places) {
            let Some((fragment, checksum)) = parse_one(words) else { return false };
            let TxFragment { gref, offset, size, .. } = fragment;
            let len = usize::from(size);
            at = place(at, 0, len);
            *piece = Piece::new(gref, offset, size, at);
            *frame = FramePlace {
                at,
                meta: FrameMeta { len, offload: Offload { checksum, gso: None } },
            };
            // At most a page each, which the arena has room for.
            at = (at + len).next_multiple_of(64);
        }
        slots.len() <= BURST
    }
}

impl<M: RingMemory<3>, J: JournalMemory> Transmit<M, J> {
    /// The turn of the packets that are listed, of so many slots.
    pub(super) fn turn_plain(
        &mut self,
        count: usize,
        scratch: &mut Scratch,
        policy: &mut dyn Policy,
        outlet: &mut impl Outlet,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        let Scratch { arena, tx_slots, tx_plain, .. } = scratch;
        let Plain { pieces, frames } = &mut **tx_plain;
        let (slots, pieces) = (&mut tx_slots[..count], &mut pieces[..count]);
        let id = |words: [u32; 3]| TxRequest::from_words(words).id;
        self.held_until = None;
        if let Some(journal) = &self.journal {
            let owed = slots.iter().map(|&words| TxOwed::Request(id(words)));
            journal.tx_consumed(self.ring.req_cons(), owed);
        }
        policy.fetch(pieces, arena)?;
        let fetched = keep_fetched(&mut frames[..count], pieces);
        VifStats::add(&shared.stats.tx_dropped_grant, (count - fetched) as u64);
        outlet.send_whole(arena, &frames[..fetched], &shared.stats)?;
        // At most a burst.
        let consumed = self.ring.consume(count as u32);
        consumed.map_err(|_| VifError::Internal("consumed unseen slots"))?;
        // A burst's answers are written together, over the copies of their requests.
        for (words, piece) in slots.iter_mut().zip(&*pieces) {
            let status = if piece.status.is_okay() { status::OKAY } else { status::ERROR };
            *words = TxResponse { id: id(*words), status }.to_words();
        }
        let answered = self.ring.push_responses(slots);
        answered.map_err(|_| VifError::Internal("answered a slot twice"))?;
        let notify = self.publish();
        VifStats::add(&shared.stats.tx_slots, count as u64);
        Ok(Moved { packets: count, notify, call_at: None })
    }
}

/// Moves the frames whose bytes are here to the front; how many they are.
fn keep_fetched(frames: &mut [FramePlace], pieces: &[Piece]) -> usize {
    if pieces.iter().fold(true, |all, piece| all & piece.status.is_okay()) {
        return frames.len();
    }
    let mut kept = 0;
    for (number, piece) in pieces.iter().enumerate() {
        if piece.status.is_okay() {
            frames[kept] = frames[number];
            kept += 1;
        }
    }
    kept
}
