//! A turn whose frames each fit one posted page, with nothing to be done to them: as
//! in `transmit/plain.rs`, each step is taken for all of them before the next.

use super::{Frame, Receive};
use crate::VifError;
use crate::journal::JournalMemory;
use crate::policy::{Piece, Policy};
use crate::scratch::{BURST, Scratch};
use crate::shared::Shared;
use crate::stats::VifStats;
use crate::transmit::Moved;
use arrayvec::ArrayVec;
use grantway_netif::rx::{RxFlags, RxRequest, RxResponse};
use grantway_netif::tx::status;
use grantway_netif::{Checksum, colour};
use grantway_ports::{ETHERNET_HEADER, FramePlace, Port};
use grantway_ring::{PAGE_SIZE, RingMemory};

/// The frames of such a turn.
pub(crate) struct RxPlain {
    frames: ArrayVec<FramePlace, BURST>,
    /// Copies of the requests whose pages they go to, later their answers.
    slots: [[u32; 2]; BURST],
    pieces: [Piece; BURST],
}

impl RxPlain {
    pub fn new() -> Self {
        let pieces = [Piece::new(0, 0, 0, 0); BURST];
        Self { frames: ArrayVec::new(), slots: [[0; 2]; BURST], pieces }
    }
}

/// Whether a frame fits a page and leaves nothing to be done.
#[inline]
fn is_short(place: &FramePlace) -> bool {
    let offload = place.meta.offload;
    (ETHERNET_HEADER..=PAGE_SIZE).contains(&place.meta.len)
        && offload.gso.is_none()
        && offload.checksum != Checksum::Partial
}

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    /// The turn of a port that gives such frames, where a page is posted for each
    /// frame of a burst.
    pub(super) fn turn_plain(
        &mut self,
        scratch: &mut Scratch,
        policy: &mut dyn Policy,
        port: &mut dyn Port,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        let Scratch { arena, delivery, rx_plain, .. } = scratch;
        let RxPlain { frames, slots, pieces } = &mut **rx_plain;
        frames.clear();
        port.recv_burst(arena, frames)?;
        let count = frames.len();
        if count == 0 {
            return Ok(Moved { call_at: self.waiting.call_at(), ..Moved::default() });
        }
        if !frames.iter().all(is_short) {
            // The port gave what it said that it does not give.
            delivery.clear();
            for &FramePlace { at, meta } in &*frames {
                self.accept(Frame::from_port(at, meta), arena, delivery, shared)?;
            }
            let notify = self.finish(delivery, arena, policy, None, &shared.stats)?;
            return Ok(Moved { packets: count, notify, call_at: self.waiting.call_at() });
        }
        let (slots, pieces) = (&mut slots[..count], &mut pieces[..count]);
        let first = self.ring.req_cons();
        if self.ring.peek_batch(slots).map_err(|e| self.ring_error(e))? < count {
            return Err(VifError::Internal("a posted page vanished"));
        }
        for (((piece, place), &words), number) in
            pieces.iter_mut().zip(&*frames).zip(&*slots).zip(0..)
        {
            let offset = colour(first.wrapping_add(number), place.meta.len);
            // At most a page.
            let len = place.meta.len as u16;
            *piece = Piece::new(RxRequest::from_words(words).gref, offset, len, place.at);
        }
        // At most a burst.
        let consumed = self.ring.consume(count as u32);
        consumed.map_err(|_| VifError::Internal("consumed unseen slots"))?;
        if let Some(journal) = &self.journal {
            journal.rx_consumed(first, slots.iter().map(|&words| RxRequest::from_words(words)));
        }
        policy.store(pieces, arena)?;
        let (mut stored, mut bytes) = (0, 0);
        for ((words, piece), place) in slots.iter_mut().zip(&*pieces).zip(&*frames) {
            let id = RxRequest::from_words(*words).id;
            let mut flags = RxFlags::empty();
            flags.set(RxFlags::DATA_VALIDATED, place.meta.offload.checksum == Checksum::Complete);
            let whole = piece.status.is_okay();
            let status = if whole { piece.len as i16 } else { status::ERROR };
            *words = RxResponse { id, offset: piece.offset, flags, status }.to_words();
            stored += u64::from(whole);
            bytes += if whole { u64::from(piece.len) } else { 0 };
        }
        let answered = self.ring.push_responses(slots);
        answered.map_err(|_| VifError::Internal("answered a slot twice"))?;
        if let Some(journal) = &self.journal {
            journal.rx_publishing(self.ring.rsp_prod_published(), self.ring.rsp_prod_pvt());
        }
        let notify = self.ring.publish();
        VifStats::add(&shared.stats.rx_slots, count as u64);
        VifStats::add(&shared.stats.rx_packets, stored);
        VifStats::add(&shared.stats.rx_bytes, bytes);
        VifStats::add(&shared.stats.rx_dropped_grant, count as u64 - stored);
        Ok(Moved { packets: count, notify, call_at: self.waiting.call_at() })
    }
}
