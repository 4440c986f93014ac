//! Packets and frames of one slot each, as a turn lists them while they are moved: each slot is
//! looked at once, what it says is judged, its bytes are moved, and what becomes of it is noted
//! in fixed room.

use super::{Piece, Take};
use crate::journal::{RxOwedBytes, TxOwed, TxOwedBytes, rx_owed_bytes};
use crate::layout::{BURST, place};
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
    pub(crate) frames: [FramePlace; BURST],
    pub(crate) owed: [TxOwedBytes; BURST],
    /// Their answers, if all of them could be fetched.
    pub(crate) answers: [[u32; 3]; BURST],
    /// By number, a bit for each that could not be.
    pub(crate) missed: u64,
}

const _: () = assert!(BURST <= u64::BITS as usize);

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
    pub(crate) fn drop_missed(&mut self, count: usize) -> usize {
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
            // Within the arena.
            let (gref, at) = (GrantRef(request.gref), frame.at as u32);
            let status = GrantStatus::GENERAL_ERROR;
            if !store.take(number, Piece { gref, offset, len, at, status }) {
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

/// Whether a frame fits a page and leaves nothing to be done.
#[inline]
pub(crate) fn is_short(place: &FramePlace) -> bool {
    let offload = place.meta.offload;
    (ETHERNET_HEADER..=PAGE_SIZE).contains(&place.meta.len)
        && offload.gso.is_none()
        && offload.checksum != Checksum::Partial
}
