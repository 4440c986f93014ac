//! Guest receive: frames from the port into the pages that the guest posted.

use crate::VifError;
use crate::journal::{Journal, JournalMemory};
use crate::policy::{Piece, Policy};
use crate::scratch::{BURST, Scratch};
use crate::shared::Shared;
use crate::stats::VifStats;
use crate::transmit::Moved;
use grantway_hypervisor::GrantStatus;
use grantway_netif::Offload;
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::slots::rx::{RxLayout, RxSlot};
use grantway_netif::tx::status;
use grantway_ports::{ETHERNET_HEADER, Port, RECV_BUFFER};
use grantway_ring::{Back, PAGE_SIZE, RingError, RingMemory, RingPage, SharedPage};
use std::collections::VecDeque;

/// The longest frame that a response's 16-bit lengths can tell of.
const LONGEST: usize = 65_535;

/// One frame given to the guest in this turn.
pub(crate) struct Given {
    len: usize,
    /// Its responses in the list of the turn: first and one past the last.
    answers: (usize, usize),
}

/// One response that is to be pushed: its words, and the piece it depends on.
pub(crate) struct Answer {
    words: [u32; 2],
    piece: Option<usize>,
}

/// A frame that was read from the port and waits for the guest to post pages.
struct Held {
    bytes: Vec<u8>,
    offload: Offload,
}

/// The guest's receive ring, seen from the backend. Generic over where ring and
/// journal lie, so that tests can cut a turn after any write.
pub(crate) struct Receive<M = RingPage<2>, J = SharedPage> {
    ring: Back<M, 2>,
    queue: u16,
    scatter_gather: bool,
    held: Option<Held>,
    /// Slots that the held frame waits for; 0 when nothing is held.
    wanted: u32,
    /// Requests that a killed process had consumed and not answered: their
    /// pages are as good as any, and come before what the ring holds.
    carried: VecDeque<RxRequest>,
    journal: Option<Journal<J>>,
}

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    pub(crate) fn new(
        ring: Back<M, 2>,
        queue: u16,
        scatter_gather: bool,
        journal: Option<Journal<J>>,
        carried: Vec<RxRequest>,
    ) -> Self {
        let carried = carried.into();
        Self { ring, queue, scatter_gather, held: None, wanted: 0, carried, journal }
    }

    /// Whether frames are to be read from the port: not while one waits for
    /// pages, so that the port's own bounded queue fills instead of ours.
    pub(crate) fn wants_frames(&self) -> bool {
        self.held.is_none()
    }

    /// Moves at most a burst from the port to the ring.
    pub(crate) fn turn(
        &mut self,
        scratch: &mut Scratch,
        policy: &mut dyn Policy,
        port: &mut dyn Port,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        let stats = &shared.stats;
        scratch.pieces.clear();
        scratch.rx_frames.clear();
        scratch.rx_responses.clear();
        scratch.rx_taken.clear();
        let mut taken = 0;
        let mut posted = None;
        let mut at = 0;
        while taken < BURST && at <= Scratch::FILL {
            let Some((len, offload)) = self.next_frame(&mut scratch.arena[at..], port)? else {
                break;
            };
            taken += 1;
            if !self.fits(len, stats) {
                continue;
            }
            if !shared.multicast.passes(&scratch.arena[at..at + len]) {
                VifStats::add(&stats.rx_filtered_multicast, 1);
                continue;
            }
            let layout = RxLayout::new(len, 0, offload, None)
                .map_err(|_| VifError::Internal("a frame beyond the checked bounds"))?;
            // At most 17 slots, for 65,535 bytes and one extra.
            let needed = layout.slots() as u32;
            let free = match posted {
                Some(free) if free >= needed => free,
                _ => self.posted()?,
            };
            if free < needed {
                self.held = Some(Held { bytes: scratch.arena[at..at + len].to_vec(), offload });
                self.wanted = needed;
                VifStats::add(&stats.rx_stalls, 1);
                taken -= 1;
                break;
            }
            posted = Some(free - needed);
            self.lay_out(&layout, at, len, scratch)?;
            at = (at + len).next_multiple_of(64);
        }
        if scratch.rx_frames.is_empty() {
            return Ok(Moved { packets: taken, ..Moved::default() });
        }
        if let Some(journal) = &self.journal {
            let count = scratch.rx_taken.len() as u32;
            let first = self.ring.req_cons().wrapping_sub(count);
            journal.rx_consumed(first, scratch.rx_taken.iter().copied());
        }
        policy.store(&mut scratch.pieces, &mut scratch.arena)?;
        self.answer(scratch, stats)?;
        if let Some(journal) = &self.journal {
            journal.rx_publishing(self.ring.rsp_prod_published(), self.ring.rsp_prod_pvt());
        }
        Ok(Moved { packets: taken, notify: self.ring.publish(), call_at: None })
    }

    /// Pages that the guest has posted.
    fn posted(&mut self) -> Result<u32, VifError> {
        // At most a ring of them.
        let carried = self.carried.len() as u32;
        Ok(carried + self.ring.available().map_err(|e| self.ring_error(e))?)
    }

    /// The next posted page; those from the ring are noted for the journal.
    fn next_request(&mut self, scratch: &mut Scratch) -> Result<RxRequest, VifError> {
        if let Some(request) = self.carried.pop_front() {
            return Ok(request);
        }
        let popped = self.ring.pop().map_err(|e| self.ring_error(e))?;
        let (_, words) = popped.ok_or(VifError::Internal("a posted page vanished"))?;
        let request = RxRequest::from_words(words);
        scratch.rx_taken.push(request);
        Ok(request)
    }

    /// The held frame, or the port's next, at the start of `room`.
    fn next_frame(
        &mut self,
        room: &mut [u8],
        port: &mut dyn Port,
    ) -> Result<Option<(usize, Offload)>, VifError> {
        if let Some(held) = self.held.take() {
            if self.posted()? < self.wanted {
                self.held = Some(held);
                return Ok(None);
            }
            self.wanted = 0;
            room[..held.bytes.len()].copy_from_slice(&held.bytes);
            return Ok(Some((held.bytes.len(), held.offload)));
        }
        Ok(port.recv(&mut room[..RECV_BUFFER])?.map(|meta| (meta.len, meta.offload)))
    }

    /// Whether this guest can take such a frame at all.
    fn fits(&self, len: usize, stats: &VifStats) -> bool {
        let longest = if self.scatter_gather { LONGEST } else { PAGE_SIZE };
        if len > longest {
            VifStats::add(&stats.rx_dropped_too_large, 1);
        } else if len < ETHERNET_HEADER {
            VifStats::add(&stats.rx_dropped_too_short, 1);
        }
        (ETHERNET_HEADER..=longest).contains(&len)
    }

    /// Consumes a request for each slot of the frame and lists what is to be
    /// stored and answered.
    fn lay_out(
        &mut self,
        layout: &RxLayout,
        at: usize,
        len: usize,
        scratch: &mut Scratch,
    ) -> Result<(), VifError> {
        let first = scratch.rx_responses.len();
        for slot in 0..layout.slots() {
            let request = self.next_request(scratch)?;
            let piece = match layout.slot(slot) {
                Some(RxSlot::Data { start, len, .. }) => {
                    let piece = Piece::new(request.gref, layout.offset(), len, at + start);
                    scratch.pieces.push(piece);
                    Some(scratch.pieces.len() - 1)
                }
                _ => None,
            };
            let words = layout.words(slot, request.id);
            let words = words.ok_or(VifError::Internal("a slot beyond the frame"))?;
            scratch.rx_responses.push(Answer { words, piece });
        }
        scratch.rx_frames.push(Given { len, answers: (first, scratch.rx_responses.len()) });
        Ok(())
    }

    /// Answers every consumed request, at its own index.
    fn answer(&mut self, scratch: &Scratch, stats: &VifStats) -> Result<(), VifError> {
        for given in &scratch.rx_frames {
            let answers = &scratch.rx_responses[given.answers.0..given.answers.1];
            let whole = answers.iter().filter_map(|a| a.piece).all(|piece| {
                scratch.pieces.get(piece).is_some_and(|p| p.status == GrantStatus::OKAY)
            });
            for answer in answers {
                let mut words = answer.words;
                if !whole && answer.piece.is_some() {
                    // The chain keeps its shape, so that the guest finds its end.
                    let status = status::ERROR;
                    words = RxResponse { status, ..RxResponse::from_words(words) }.to_words();
                }
                self.ring
                    .push_response(words)
                    .map_err(|_| VifError::Internal("answered a slot twice"))?;
            }
            VifStats::add(&stats.rx_slots, answers.len() as u64);
            if whole {
                VifStats::add(&stats.rx_packets, 1);
                VifStats::add(&stats.rx_bytes, given.len as u64);
            } else {
                VifStats::add(&stats.rx_dropped_grant, 1);
            }
        }
        Ok(())
    }

    /// Asks for a signal when the held frame's pages are posted, or, for a port
    /// that is always ready, when any page is; true when they are already.
    pub(crate) fn arm(&mut self, always_ready: bool) -> Result<bool, VifError> {
        // At most a ring of them.
        let carried = self.carried.len() as u32;
        let wanted = if always_ready { self.wanted.max(1) } else { self.wanted };
        match wanted.checked_sub(carried) {
            None | Some(0) => Ok(wanted > 0),
            Some(more) => self.ring.arm_after(more),
        }
        .map_err(|e| self.ring_error(e))
    }

    fn ring_error(&self, source: RingError) -> VifError {
        VifError::Ring { queue: self.queue, ring: "guest receive", source }
    }
}
