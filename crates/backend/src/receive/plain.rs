//! A turn whose frames each fit one posted page, with nothing to be done to them: as
//! in `transmit/plain.rs`, each step is taken for all of them before the next.

use super::{Frame, Receive};
use crate::VifError;
use crate::journal::{JournalMemory, RxOwedBytes, rx_owed_bytes};
use crate::policy::{Piece, Policy, Take};
use crate::scratch::{BURST, Scratch};
use crate::shared::Shared;
use crate::stats::VifStats;
use crate::trace::TraceRing;
use crate::transmit::Moved;
use arrayvec::ArrayVec;
use grantway_hypervisor::GrantRef;
use grantway_netif::rx::{RxFlags, RxRequest, RxResponse};
use grantway_netif::tx::status;
use grantway_netif::{Checksum, colour};
use grantway_ports::{ETHERNET_HEADER, FramePlace, Port};
use grantway_ring::{PAGE_SIZE, RingMemory};

/// The frames of such a turn.
pub struct RxPlain {
    pub(super) frames: ArrayVec<FramePlace, BURST>,
    /// The index of the first request whose page they go to, and copies of all.
    first: u32,
    slots: [[u32; 2]; BURST],
    owed: [RxOwedBytes; BURST],
    /// The answers, if all of them could be stored.
    answers: [[u32; 2]; BURST],
    /// The bytes of all frames.
    bytes: u64,
    /// By number, a bit for each that could not be stored.
    missed: u64,
}

const _: () = assert!(BURST <= u64::BITS as usize);

impl RxPlain {
    pub(crate) fn new() -> Self {
        Self {
            frames: ArrayVec::new(),
            first: 0,
            slots: [[0; 2]; BURST],
            owed: [RxOwedBytes::default(); BURST],
            answers: [[0; 2]; BURST],
            bytes: 0,
            missed: 0,
        }
    }

    /// Frames of the turn.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Lists what becomes of the frames and the requests, and has each frame stored.
    /// False where one is of another kind.
    #[inline(always)]
    pub(crate) fn list(&mut self, store: &mut impl Take) -> bool {
        let Self { frames, first, slots, owed, answers, bytes, missed } = self;
        let (first, mut sum) = (*first, 0);
        *missed = 0;
        let places = slots.iter().zip(owed.iter_mut().zip(answers));
        for (number, (frame, (&words, (owed, answer)))) in frames.iter().zip(places).enumerate() {
            if !is_short(frame) {
                return false;
            }
            let request = RxRequest::from_words(words);
            // Below a burst.
            let offset = colour(first.wrapping_add(number as u32), frame.meta.len);
            // At most a page.
            let len = frame.meta.len as u16;
            let mut flags = RxFlags::empty();
            flags.set(RxFlags::DATA_VALIDATED, frame.meta.offload.checksum == Checksum::Complete);
            *owed = rx_owed_bytes(request);
            *answer = RxResponse { id: request.id, offset, flags, status: len as i16 }.to_words();
            sum += u64::from(len);
            if !store.take(number, Piece::new(request.gref, offset, len, frame.at)) {
                *missed |= 1 << number;
            }
        }
        *bytes = sum;
        true
    }

    /// The frame of this number could not be stored.
    pub(crate) fn miss(&mut self, number: usize) {
        self.missed |= 1 << number;
    }

    /// The page of the frame of this number, if that was stored.
    pub(crate) fn stored(&self, number: usize) -> Option<GrantRef> {
        let there = self.missed & 1 << number == 0;
        there.then(|| GrantRef(RxRequest::from_words(self.slots[number]).gref))
    }

    /// Changes the answers to frames that could not be stored: how many, and their
    /// bytes.
    #[cold]
    fn drop_missed(&mut self) -> (u64, u64) {
        let (mut frames, mut bytes) = (0, 0);
        for (number, (frame, answer)) in self.frames.iter().zip(&mut self.answers).enumerate() {
            if self.missed & 1 << number != 0 {
                let status = status::ERROR;
                *answer = RxResponse { status, ..RxResponse::from_words(*answer) }.to_words();
                frames += 1;
                bytes += frame.meta.len as u64;
            }
        }
        (frames, bytes)
    }
}

/// Whether a frame fits a page and leaves nothing to be done.
#[inline]
pub(super) fn is_short(place: &FramePlace) -> bool {
    let offload = place.meta.offload;
    (ETHERNET_HEADER..=PAGE_SIZE).contains(&place.meta.len)
        && offload.gso.is_none()
        && offload.checksum != Checksum::Partial
}

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    /// The turn of a port that gives such frames, where a page is posted for each
    /// frame of a burst.
    #[inline(always)]
    pub(super) fn turn_plain(
        &mut self,
        scratch: &mut Scratch,
        policy: &mut dyn Policy,
        port: &mut dyn Port,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        let Scratch { arena, delivery, rx_plain, .. } = scratch;
        let (arena, plain) = (&mut arena[..], &mut **rx_plain);
        plain.frames.clear();
        port.recv_burst(arena, &mut plain.frames)?;
        let count = plain.frames.len();
        if count == 0 {
            return Ok(Moved { call_at: self.waiting.call_at(), ..Moved::default() });
        }
        if let Some(notify) = self.store_short(plain, arena, policy, shared)? {
            return Ok(Moved { packets: count, notify, call_at: self.waiting.call_at() });
        }
        // The port gave what it said that it does not give.
        delivery.clear();
        for &FramePlace { at, meta } in &plain.frames {
            self.accept(Frame::from_port(at, meta), arena, delivery, shared)?;
        }
        let notify = self.finish(delivery, arena, policy, None, shared)?;
        Ok(Moved { packets: count, notify, call_at: self.waiting.call_at() })
    }

    /// Takes frames that came by the bridge, where no more is to be asked about them:
    /// as many as pages are posted for. How many, and whether to signal the guest.
    pub(crate) fn take_short(
        &mut self,
        frames: &[FramePlace],
        plain: &mut RxPlain,
        arena: &mut [u8],
        policy: &mut dyn Policy,
        shared: &Shared,
    ) -> Result<(usize, bool), VifError> {
        let takes = self.is_plain(shared) && frames.iter().all(is_short);
        let posted = match takes {
            false => 0,
            true if self.has_posted(frames.len())? => frames.len(),
            // At most a ring of them.
            true => self.posted()? as usize,
        };
        plain.frames.clear();
        // No more than a burst.
        let room = posted.min(plain.frames.capacity()).min(frames.len());
        plain.frames.extend(frames.iter().copied().take(room));
        if plain.frames.is_empty() {
            return Ok((0, false));
        }
        match self.store_short(plain, arena, policy, shared)? {
            Some(notify) => Ok((plain.frames.len(), notify)),
            None => Ok((0, false)),
        }
    }

    /// Stores the listed frames, for each of which a page is posted, and answers;
    /// whether to signal the guest. None where one is of another kind: then nothing
    /// has been said of any.
    #[inline(always)]
    pub(super) fn store_short(
        &mut self,
        plain: &mut RxPlain,
        arena: &mut [u8],
        policy: &mut dyn Policy,
        shared: &Shared,
    ) -> Result<Option<bool>, VifError> {
        let count = plain.frames.len();
        plain.first = self.ring.req_cons();
        let peeked = self.ring.peek_batch(&mut plain.slots[..count]);
        if peeked.map_err(|e| self.ring_error(e))? < count {
            return Err(VifError::Internal("a posted page vanished"));
        }
        if !policy.store_plain(plain, arena)? {
            return Ok(None);
        }
        // At most a burst.
        let consumed = self.ring.consume(count as u32);
        consumed.map_err(|_| VifError::Internal("consumed unseen slots"))?;
        // Killed before this, we leave the pages posted, and a successor writes them anew.
        if let Some(journal) = &self.journal {
            journal.rx_consumed(plain.first, &plain.owed[..count]);
        }
        if shared.tap.is_on() {
            shared.tap.packets(self.queue, TraceRing::Receive, arena, &plain.frames);
        }
        let (mut stored, mut bytes) = (count as u64, plain.bytes);
        if plain.missed != 0 {
            let (frames, of_them) = plain.drop_missed();
            VifStats::add(&shared.stats.rx_dropped_grant, frames);
            stored -= frames;
            bytes -= of_them;
        }
        let answered = self.ring.push_responses(&plain.answers[..count]);
        answered.map_err(|_| VifError::Internal("answered a slot twice"))?;
        if let Some(journal) = &self.journal {
            journal.rx_publishing(self.ring.rsp_prod_published(), self.ring.rsp_prod_pvt());
        }
        let notify = self.ring.publish();
        VifStats::add(&shared.stats.rx_slots, count as u64);
        VifStats::add(&shared.stats.rx_packets, stored);
        self.packets += stored;
        VifStats::add(&shared.stats.rx_bytes, bytes);
        Ok(Some(notify))
    }
}
