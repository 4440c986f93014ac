//! Packets and frames of one slot each, as a turn lists them while they are moved: each slot is
//! looked at once, what it says is judged, its bytes are moved, and what becomes of it is noted
//! in fixed room.

use crate::VifError;
use crate::journal::{RxOwedBytes, TxOwed, TxOwedBytes, rx_owed_bytes};
use crate::layout::{BURST, place};
use crate::policy::{Buffers, Moving, Near, Piece, Way};
use crate::turn::batch::Batch;
use crate::turn::work;
use arrayvec::ArrayVec;
use grantway_hypervisor::{GrantRef, GrantStatus};
use grantway_netif::rx::{RxFlags, RxRequest, RxResponse};
use grantway_netif::slots::tx::{TxFragment, parse_one};
use grantway_netif::tx::{TxRequest, TxResponse, status};
use grantway_netif::{Checksum, Offload, colour};
use grantway_ports::{ETHERNET_HEADER, FrameMeta, FramePlace};
use grantway_ring::PAGE_SIZE;

/// The packets of a turn in which each is of one slot, with nothing said beside.
pub struct TxPlain {
    /// Number of packets.
    count: usize,
    frames: [FramePlace; BURST],
    owed: [TxOwedBytes; BURST],
    /// Their answers, if all of them could be fetched.
    answers: [[u32; 3]; BURST],
    /// By number, a bit for each that could not be.
    missed: u64,
}

const _: () = assert!(BURST <= u64::BITS as usize);

/// Bytes of a cache line. The processor fetches the further lines of longer packets by itself, and
/// to be told of the first only makes it fetch fewer.
const LINE: u16 = 64;
/// Fewest packets whose bytes are fetched before their slots are gone through.
const BURST_OF_LINES: usize = 8;

impl TxPlain {
    pub(crate) fn new() -> Self {
        let (frames, owed) = ([FramePlace::default(); BURST], [TxOwedBytes::default(); BURST]);
        Self { count: 0, frames, owed, answers: [[0; 3]; BURST], missed: 0 }
    }

    /// Lists the packets of these slots, a burst at most, and fetches each at once. Returns false
    /// if one of them is not plain. The bytes fetched so far are then ignored.
    #[inline(never)]
    pub(crate) fn fetch(
        &mut self,
        slots: &[[u32; 3]],
        buffers: &mut Buffers,
        arena: &mut [u8],
    ) -> Result<bool, VifError> {
        let way = Way::Fetch;
        self.count = slots.len().min(BURST);
        let listed = match buffers.begin(way) {
            Moving::Near(mut near) => {
                fetch_ahead(slots, &mut near);
                self.list(slots, |_, piece| near.moves(piece, arena))
            }
            Moving::Copies(copies) => self.list(slots, |n, piece| copies.list(n, way, piece)),
        };
        if listed {
            let (frames, count) = (&self.frames, (slots.len(), self.missed));
            self.missed = buffers.finish(way, count, arena, |number| {
                let FramePlace { at, meta } = frames[number];
                let TxRequest { gref, offset, .. } = TxRequest::from_words(slots[number]);
                // At most a page.
                Piece::new(gref, offset, meta.len as u16, at)
            })?;
        }
        Ok(listed)
    }

    /// Lists the packets, and calls `moves` for each. Leaves a bit for each packet that `moves` did
    /// not move.
    #[inline(always)]
    fn list(&mut self, slots: &[[u32; 3]], mut moves: impl FnMut(usize, Piece) -> bool) -> bool {
        let Self { frames, owed, answers, missed, .. } = self;
        let mut at = 0;
        *missed = 0;
        for number in 0..slots.len().min(BURST) {
            let Some((fragment, checksum)) = parse_one(slots[number]) else { return false };
            let TxFragment { gref, offset, size, id } = fragment;
            owed[number] = TxOwed::Request(id).to_bytes();
            // The rest of an answer is zero.
            [answers[number][0], ..] = TxResponse { id, status: status::OKAY }.to_words();
            let len = usize::from(size);
            at = place(at, 0, len);
            let offload = Offload { checksum, gso: None };
            frames[number] = FramePlace { at, meta: FrameMeta { len, offload } };
            // Below the end of the arena.
            let (gref, at32) = (GrantRef(gref), at as u32);
            let status = GrantStatus::GENERAL_ERROR;
            if !moves(number, Piece { gref, offset, len: size, at: at32, status }) {
                *missed |= 1 << number;
            }
            // At most a page each, which the arena has room for.
            at = (at + len).next_multiple_of(64);
        }
        true
    }

    /// Returns the frames that were fetched, and how many could not be: those are answered as
    /// errors.
    #[inline]
    pub(super) fn fetched(&mut self) -> (&[FramePlace], usize) {
        let fetched = if self.missed == 0 { self.count } else { self.drop_missed() };
        (self.frames.get(..fetched).unwrap_or(&[]), self.count - fetched)
    }

    /// Moves the frames that were fetched to the front, and changes the answers to the others.
    /// Returns how many were fetched.
    #[cold]
    fn drop_missed(&mut self) -> usize {
        let mut kept = 0;
        for number in 0..self.count {
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

impl Batch for TxPlain {
    #[inline]
    fn packets(&self) -> usize {
        self.count
    }

    #[inline]
    fn slots(&self) -> usize {
        self.count
    }

    #[inline]
    fn price<'a>(&self, number: usize, arena: &'a [u8]) -> (u32, &'a [u8]) {
        (work::SHORT_PRICE, self.frames.get(number).map_or(&[], |place| place.bytes(arena)))
    }

    #[cold]
    fn leave(&mut self, within: usize) -> u64 {
        self.count = within;
        // A packet that a limit may hold is in no such list.
        0
    }

    #[inline]
    fn owed(&mut self) -> &[TxOwedBytes] {
        self.owed.get(..self.count).unwrap_or(&[])
    }

    #[inline]
    fn answers(&mut self) -> &[[u32; 3]] {
        self.answers.get(..self.count).unwrap_or(&[])
    }
}

/// Has the bytes of a burst's short packets fetched. The lines of a burst are under way together
/// only as far as the processor looks ahead, and the pass over its slots is 70 instructions for
/// each. Nothing is judged here: what a slot says wrongly is fetched for nothing.
#[inline(always)]
fn fetch_ahead(slots: &[[u32; 3]], near: &mut Near<'_>) {
    if slots.len() < BURST_OF_LINES {
        return;
    }
    for &words in slots {
        let TxRequest { gref, offset, size, .. } = TxRequest::from_words(words);
        if size <= LINE {
            near.expect(GrantRef(gref), offset);
        }
    }
}

/// The frames of a turn in which each fits one posted page, with nothing to be done to it.
pub struct RxPlain {
    pub(crate) frames: ArrayVec<FramePlace, BURST>,
    /// The index of the first request whose page they go to, and copies of all.
    pub(crate) first: u32,
    pub(crate) slots: [[u32; 2]; BURST],
    pub(crate) owed: [RxOwedBytes; BURST],
    /// The answers, if all of them could be stored.
    pub(crate) answers: [[u32; 2]; BURST],
    /// The bytes of all frames.
    pub(crate) bytes: u64,
    /// By number, a bit for each that could not be stored.
    pub(crate) missed: u64,
}

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

    /// Lists the frames' requests and answers, and stores each frame at once. Returns false if a
    /// frame is not plain. The bytes stored so far are then ignored.
    #[inline(never)]
    pub(crate) fn store(
        &mut self,
        buffers: &mut Buffers,
        arena: &mut [u8],
    ) -> Result<bool, VifError> {
        let way = Way::Store;
        let listed = match buffers.begin(way) {
            Moving::Near(mut near) => self.list(|_, piece| near.moves(piece, arena)),
            Moving::Copies(copies) => self.list(|n, piece| copies.list(n, way, piece)),
        };
        if listed {
            let Self { frames, slots, answers, missed, .. } = self;
            let count = (frames.len(), *missed);
            *missed = buffers.finish(way, count, arena, |number| {
                let FramePlace { at, meta } = frames[number];
                let RxRequest { gref, .. } = RxRequest::from_words(slots[number]);
                let RxResponse { offset, .. } = RxResponse::from_words(answers[number]);
                // At most a page.
                Piece::new(gref, offset, meta.len as u16, at)
            })?;
        }
        Ok(listed)
    }

    /// Lists the frames' requests and answers, and calls `moves` for each frame. Leaves a bit for
    /// each frame that `moves` did not move.
    #[inline(always)]
    fn list(&mut self, mut moves: impl FnMut(usize, Piece) -> bool) -> bool {
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
            // Within the arena.
            let (gref, at) = (GrantRef(request.gref), frame.at as u32);
            if !moves(number, Piece { gref, offset, len, at, status: GrantStatus::GENERAL_ERROR }) {
                *missed |= 1 << number;
            }
        }
        *bytes = sum;
        true
    }

    /// Changes the answers to frames that could not be stored. Returns their number and their
    /// bytes.
    #[cold]
    pub(crate) fn drop_missed(&mut self) -> (u64, u64) {
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

/// Returns true if a frame fits a page and needs no finishing.
#[inline]
pub(crate) fn is_short(place: &FramePlace) -> bool {
    let offload = place.meta.offload;
    (ETHERNET_HEADER..=PAGE_SIZE).contains(&place.meta.len)
        && offload.gso.is_none()
        && offload.checksum != Checksum::Partial
}
