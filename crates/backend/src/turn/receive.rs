//! Guest receive: frames from the port into the pages that the guest posted.

mod cut;
mod incoming;
mod listed;
mod plain;
mod waited;

pub(crate) use incoming::{Incoming, Origin};

use crate::VifError;
use crate::bell::Bell;
use crate::ids::Key;
use crate::journal::{Journal, JournalMemory, rx_owed_bytes};
use crate::layout::{BURST, RING_SLOTS};
use crate::policy::{Buffers, Cross, Piece};
use crate::state::guest::Guest;
use crate::state::shared::QueueState;
use crate::state::stats::VifStats;
use crate::state::steer::{LaneEnd, Steers};
use crate::state::trace::TraceRing;
use crate::turn::Moved;
use crate::turn::delivery::{Accepted, Delivery, Given};
use crate::turn::outgoing::Outgoing;
use crate::turn::scratch::Scratch;
use crate::turn::showing::Showing;
use crate::turn::stages::Filter;
use crate::turn::waiting::Waiting;
use arrayvec::ArrayVec;
use grantway_hypervisor::{GrantRef, GrantStatus};
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::slots::rx::{RxLayout, RxSlot};
use grantway_netif::tx::status;
use grantway_netif::{Offload, colour};
use grantway_ports::{ETHERNET_HEADER, FramePlace, Port, RECV_BUFFER, TapOffloads};
use grantway_ring::{Back, PAGE_SIZE, RingError, RingMemory, RingPage, SharedPage};
use grantway_vector::receivers::Takes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{collections::VecDeque, sync::Arc, time::Instant};

/// Number of the next receive half.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The longest frame that a response's 16-bit lengths can tell of.
const LONGEST: usize = 65_535;

/// Least bytes in the first page of a frame over several pages: the headers that a guest's own TCP
/// writes.
const FIRST_LEAST: usize = ETHERNET_HEADER + 20 + 20;

/// The guest's receive ring, seen from the backend. Generic over where ring and
/// journal lie, so that tests can cut a turn after any write.
pub(crate) struct Receive<M = RingPage<2>, J = SharedPage> {
    ring: Back<M, 2>,
    queue: u16,
    /// Number of this half of a queue, unique in the process.
    id: u64,
    guest: Guest,
    waiting: Waiting,
    /// Requests that a killed process had consumed and not answered: their
    /// pages are as good as any, and come before what the ring holds.
    carried: VecDeque<RxRequest>,
    journal: Option<Journal<J>>,
    /// Chooses the vif's queue for a frame, as the guest set it.
    steers: Steers,
    /// The way to and from the vif's other queues, if there are any.
    lane: Option<LaneEnd>,
    /// Packets given to the guest.
    packets: u64,
    showing: Showing,
}

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    pub(crate) fn new(
        ring: Back<M, 2>,
        queue: u16,
        guest: Guest,
        journal: Option<Journal<J>>,
        carried: Vec<RxRequest>,
        now: Instant,
    ) -> Self {
        let waiting = Waiting::new(guest.patience, now);
        let (carried, steers) = (carried.into(), Steers::default());
        let (id, lane, packets) = (NEXT.fetch_add(1, Relaxed), None, 0);
        let showing = Showing::default();
        Self { ring, queue, id, guest, waiting, carried, journal, steers, lane, packets, showing }
    }

    /// Gives it a way to the vif's other queues.
    pub(crate) fn with_lane(self, lane: Option<LaneEnd>) -> Self {
        Self { lane, ..self }
    }

    /// Returns the vif's queue for a frame, or `None` if the guest set no hash.
    pub(crate) fn steers(&mut self, frame: &[u8], shared: &QueueState) -> Option<u16> {
        self.steers.queue(&shared.steering, frame)
    }

    /// Unfinished frames that the guest takes.
    pub(crate) fn takes(&self) -> Takes {
        let TapOffloads { checksum, tso4, tso6, uso: _ } = self.guest.offloads;
        let large = |accepted| self.guest.takes_large(accepted);
        Takes { checksum, gso_v4: large(tso4), gso_v6: large(tso6), udp: false }
    }

    /// Leaves `headroom` bytes free in front of each frame from now on, also of waiting ones.
    pub(crate) fn set_headroom(&mut self, headroom: u16) {
        self.guest.headroom = headroom;
        self.waiting.move_to(headroom, self.guest.scatter_gather);
    }

    /// Packets given to the guest.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Pages that the guest has posted, as it has it.
    pub(crate) fn shown(&self) -> u32 {
        self.ring.shown()
    }

    /// Bytes of frames that wait for pages.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.bytes()
    }

    /// Sets the bell that rings when another queue of the vif passes a frame on.
    pub(crate) fn wake_by(&self, bell: &Arc<Bell>, key: Key) {
        if let Some(lane) = &self.lane {
            lane.wake_by(bell, key);
        }
    }

    /// Returns true if another queue of the vif passed a frame to this one, and no frame waits for
    /// pages.
    pub(crate) fn is_passed_to(&self) -> bool {
        self.waiting.is_empty() && self.lane.as_ref().is_some_and(LaneEnd::is_pending)
    }

    /// Returns true if frames may be read from the port. While a frame waits for pages this is
    /// false, so that the port's own bounded queue fills, and not the backend's.
    pub(crate) fn wants_frames(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Moves at most a burst from the port to the ring, by rules if there are any. If `may_wait` is
    /// true, the answers may be left to a later call of this function or of [`Receive::show`].
    pub(crate) fn turn(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        port: &mut dyn Port,
        rules: Option<&mut Filter<'_>>,
        shared: &QueueState,
        may_wait: bool,
    ) -> Result<Moved, VifError> {
        let before = self.ring.rsp_prod_pvt();
        let mut moved = self.give(scratch, buffers, port, rules, shared)?;
        let answered = self.ring.rsp_prod_pvt() != before;
        if self.showing.is_due(answered, self.ring.unpublished()) || !may_wait {
            moved.notify = self.show();
        }
        Ok(moved)
    }

    /// Shows the guest all answers. Returns true if it asked to be signalled for one of them.
    #[inline]
    pub(crate) fn show(&mut self) -> bool {
        if self.ring.unpublished() == 0 {
            return false;
        }
        if let Some(journal) = &self.journal {
            journal.rx_publishing(self.ring.rsp_prod_published(), self.ring.rsp_prod_pvt());
        }
        let asked = self.ring.publish();
        if asked {
            self.showing.is_asked();
        }
        asked
    }

    /// Returns true if the guest does not see all answers yet.
    #[inline]
    pub(crate) fn has_unshown(&self) -> bool {
        self.ring.unpublished() > 0
    }

    /// Moves at most a burst from the port to the ring, and answers. The answers are not shown yet.
    #[inline(always)]
    fn give(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        port: &mut dyn Port,
        rules: Option<&mut Filter<'_>>,
        shared: &QueueState,
    ) -> Result<Moved, VifError> {
        scratch.waited_from.clear();
        // Frames that waited are brought to the arena.
        if !self.waiting.is_empty() {
            scratch.left.void();
        }
        let now = self.look_at_the_time(port, shared)?;
        if let Some(now) = now
            && let Some(moved) = self.turn_waited(scratch, buffers, now, shared)?
        {
            return Ok(moved);
        }
        if rules.is_none()
            && port.caps().short
            && self.is_plain(shared)
            && self.has_posted(BURST)?
        {
            return self.turn_plain(scratch, buffers, port, shared);
        }
        scratch.left.void();
        self.turn_listed(scratch, buffers, port, rules, shared)
    }

    /// Returns true if a frame from the port only has to fit a page. That holds if the guest set no
    /// hash, no filter and no headroom, no frame waits, no other queue passed a frame on, and a
    /// killed process left no pages.
    fn is_plain(&mut self, shared: &QueueState) -> bool {
        self.waiting.is_empty()
            && !self.lane.as_ref().is_some_and(LaneEnd::is_pending)
            && self.carried.is_empty()
            && !shared.multicast.is_wanted()
            && !self.steers.are_set(&shared.steering)
            && self.guest.headroom == 0
    }

    /// The next frame for this guest, brought to `at` in the arena: one that
    /// another queue passed on, or one from the port.
    #[inline]
    fn next_frame(
        &mut self,
        arena: &mut [u8],
        at: usize,
        port: &mut dyn Port,
        shared: &QueueState,
    ) -> Result<Option<Incoming>, VifError> {
        let room = &mut arena[at..at + RECV_BUFFER];
        let passed = self.lane.as_ref().and_then(|lane| lane.take(room));
        if let Some((len, offload)) = passed {
            VifStats::add(&shared.stats.rx_steered, 1);
            return Ok(Some(Incoming { at, len, offload, origin: Origin::Lane }));
        }
        let meta = port.recv(room)?;
        Ok(meta.map(|meta| Incoming::new(FramePlace { at, meta }, Origin::Port)))
    }

    /// Passes a frame on if it belongs to another queue of the vif. Returns true if the frame needs
    /// nothing further here. A frame that was passed on before stays, since the settings may change
    /// under way.
    fn pass_on(&mut self, frame: Incoming, arena: &[u8], shared: &QueueState) -> bool {
        let Some(lane) = self.lane.as_ref().filter(|_| frame.origin != Origin::Lane) else {
            return false;
        };
        let bytes = frame.bytes(arena);
        match self.steers.queue(&shared.steering, bytes) {
            Some(queue) if queue != self.queue => {
                let passed = lane.pass(queue, bytes, frame.offload);
                VifStats::add(&shared.stats.rx_dropped_steered, u64::from(!passed));
                true
            }
            _ => false,
        }
    }

    /// Drops frames that waited too long, and tells the port if there is a carrier. Returns the
    /// time if any frame waits.
    #[inline(always)]
    fn look_at_the_time(
        &mut self,
        port: &mut dyn Port,
        shared: &QueueState,
    ) -> Result<Option<Instant>, VifError> {
        match self.waiting.wanted() {
            0 => Ok(None),
            _ => self.judge(port, shared).map(Some),
        }
    }

    #[cold]
    fn judge(&mut self, port: &mut dyn Port, shared: &QueueState) -> Result<Instant, VifError> {
        let now = shared.now();
        let posted = self.posted()?;
        let verdict = self.waiting.judge(posted, now);
        VifStats::add(&shared.stats.rx_dropped_drained, verdict.dropped);
        if let Some(carrier) = verdict.carrier {
            shared.stalled_queue(!carrier, |up| port.set_link(up))?;
        }
        Ok(now)
    }

    /// Lays a frame out on posted pages, or lets it wait for some.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        frame: Incoming,
        arena: &[u8],
        delivery: &mut Delivery,
        shared: &QueueState,
    ) -> Result<Accepted, VifError> {
        let bytes = frame.bytes(arena);
        if !self.guest.takes(bytes, frame.offload) {
            return self.accept_unfinished(bytes, frame, shared);
        }
        let Some(layout) = self.layout(bytes, frame.len, frame.offload, shared)? else {
            return Ok(Accepted::Dropped);
        };
        // At most 18 slots, for 65,535 bytes and two extras.
        if self.waiting.is_empty() && self.has_posted(layout.slots())? {
            self.lay_out(&layout, frame.at, frame.len, None, delivery)?;
            return Ok(Accepted::Laid);
        }
        VifStats::add(&shared.stats.rx_stalls, 1);
        Ok(self.wait(bytes, layout, &frame, shared))
    }

    /// Lays another guest's packet out on posted pages: its private bytes from the
    /// arena, the rest from page to page.
    pub(crate) fn accept_split(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &[u8],
        delivery: &mut Delivery,
        shared: &QueueState,
    ) -> Result<Accepted, VifError> {
        let head = packet.head(arena);
        if !self.guest.takes(head, packet.offload()) {
            return Ok(Accepted::Short);
        }
        let (offset, offload) = (meeting(packet), packet.offload());
        let Some(layout) = self.layout_at(offset, head, packet.len(), offload, shared)? else {
            return Ok(Accepted::Dropped);
        };
        if !self.waiting.is_empty() || !self.has_posted(layout.slots())? {
            return Ok(match self.waiting.has_room_for(packet.len(), false) {
                true => Accepted::Short,
                false => {
                    VifStats::add(&shared.stats.rx_dropped_drained, 1);
                    Accepted::Dropped
                }
            });
        }
        self.lay_out(&layout, packet.at(), packet.len(), Some(packet), delivery)?;
        Ok(Accepted::Laid)
    }

    /// Lays out a frame on slots. Returns `None`, and counts the frame, if the guest cannot take it
    /// or does not want it.
    #[inline]
    fn layout(
        &mut self,
        head: &[u8],
        len: usize,
        offload: Offload,
        shared: &QueueState,
    ) -> Result<Option<RxLayout>, VifError> {
        self.layout_at(colour(self.ring.req_cons(), len), head, len, offload, shared)
    }

    /// Lays a frame out as [`Receive::layout`], from `offset` in the first page on, or behind the
    /// headroom that the guest asked for.
    #[inline]
    fn layout_at(
        &mut self,
        offset: u16,
        head: &[u8],
        len: usize,
        offload: Offload,
        shared: &QueueState,
    ) -> Result<Option<RxLayout>, VifError> {
        if !self.fits(len, &shared.stats) {
            return Ok(None);
        }
        if !shared.multicast.passes(head) {
            VifStats::add(&shared.stats.rx_filtered_multicast, 1);
            return Ok(None);
        }
        let hash = self.steers.hash(&shared.steering, head);
        let offset = if self.guest.headroom == 0 { offset } else { self.guest.headroom };
        let layout = RxLayout::new(len, offset, offload, hash);
        layout.map(Some).map_err(|_| VifError::Internal("a frame beyond the checked bounds"))
    }

    /// Stores the frames that are laid out, and answers their requests. [`Receive::show`] has to
    /// follow.
    pub(crate) fn finish(
        &mut self,
        delivery: &mut Delivery,
        arena: &mut [u8],
        buffers: &mut Buffers,
        sender: Option<&mut Buffers>,
        shared: &QueueState,
    ) -> Result<(), VifError> {
        if delivery.frames.is_empty() {
            return Ok(());
        }
        if let Some(journal) = self.journal.as_ref().filter(|_| !delivery.consumed.is_empty()) {
            // At most a ring of them, the last that were consumed.
            let first = self.ring.req_cons().wrapping_sub(delivery.consumed.len() as u32);
            let owed = delivery.consumed.iter().take(RING_SLOTS).copied().map(rx_owed_bytes);
            journal.rx_consumed(first, &owed.collect::<ArrayVec<_, RING_SLOTS>>());
        }
        buffers.store(&mut delivery.pieces, arena)?;
        if let Some(sender) = sender.filter(|_| !delivery.crosses.is_empty()) {
            buffers.cross(sender, &mut delivery.crosses)?;
        }
        if shared.tap.is_on() {
            let heads = delivery.frames.iter().map(|given| (given.at, given.len));
            shared.tap.heads(self.queue, TraceRing::Receive, arena, heads);
        }
        self.answer(delivery, &shared.stats)
    }

    /// Pages that the guest has posted.
    fn posted(&mut self) -> Result<u32, VifError> {
        // At most a ring of them.
        let carried = self.carried.len() as u32;
        Ok(carried + self.ring.available().map_err(|e| self.ring_error(e))?)
    }

    /// Returns true if the guest has posted `pages` pages. Reads the guest's index only if fewer
    /// are known.
    #[inline]
    fn has_posted(&mut self, pages: usize) -> Result<bool, VifError> {
        // At most 20 for a frame.
        let more = pages.saturating_sub(self.carried.len()) as u32;
        self.ring.has(more).map_err(|e| self.ring_error(e))
    }

    /// Returns true if the guest can take a frame of `len` bytes.
    fn fits(&self, len: usize, stats: &VifStats) -> bool {
        let longest = match self.guest.scatter_gather {
            true => LONGEST,
            false => PAGE_SIZE - usize::from(self.guest.headroom),
        };
        if len > longest {
            VifStats::add(&stats.rx_dropped_too_large, 1);
        } else if len < ETHERNET_HEADER {
            VifStats::add(&stats.rx_dropped_too_short, 1);
        }
        (ETHERNET_HEADER..=longest).contains(&len)
    }

    /// Consumes a request for each slot of a frame of `len` bytes, and lists what is
    /// to be stored and answered. All of it is in the arena from `at` on, or what is
    /// private of another guest's packet.
    fn lay_out(
        &mut self,
        layout: &RxLayout,
        at: usize,
        len: usize,
        packet: Option<&Outgoing<'_>>,
        delivery: &mut Delivery,
    ) -> Result<(), VifError> {
        let first = delivery.answers.len();
        let private = packet.map_or(len, Outgoing::private);
        let mut rest = packet.map(|packet| (packet.number(), packet.rest()));
        for slot in 0..layout.slots() {
            let request = self.next_request(delivery)?;
            let (pieces, crosses) = (delivery.pieces.len(), delivery.crosses.len());
            if let Some(RxSlot::Data { offset, start, len, .. }) = layout.slot(slot) {
                let gref = request.gref;
                // At most a page.
                let here = private.saturating_sub(start).min(len.into()) as u16;
                if here > 0 {
                    delivery.pieces.push(Piece::new(gref, offset, here, at + start));
                }
                if let Some((packet, rest)) = &mut rest {
                    let (mut to, end) = (offset + here, offset + len);
                    while to < end
                        && let Some(from) = rest.take((end - to).into())
                    {
                        delivery.crosses.push(Cross {
                            packet: *packet,
                            from: (GrantRef(from.gref), from.offset),
                            to: (GrantRef(gref), to),
                            len: from.size,
                            status: GrantStatus::GENERAL_ERROR,
                        });
                        to += from.size;
                    }
                }
            }
            let Some(words) = layout.words(slot, request.id) else {
                return Err(VifError::Internal("a slot beyond the frame"));
            };
            delivery.answer(words, pieces, crosses);
        }
        delivery.frames.push(Given { at, len, answers: (first, delivery.answers.len()) });
        Ok(())
    }

    /// The next posted page; those from the ring are noted for the journal.
    #[inline]
    fn next_request(&mut self, delivery: &mut Delivery) -> Result<RxRequest, VifError> {
        if let Some(request) = self.carried.pop_front() {
            return Ok(request);
        }
        let Some((_, words)) = self.ring.pop().map_err(|e| self.ring_error(e))? else {
            return Err(VifError::Internal("a posted page vanished"));
        };
        let request = RxRequest::from_words(words);
        delivery.consumed.push(request);
        Ok(request)
    }

    /// Answers every consumed request, at its own index.
    fn answer(&mut self, delivery: &Delivery, stats: &VifStats) -> Result<(), VifError> {
        let (mut packets, mut bytes, mut broken) = (0, 0, 0);
        let all = delivery.is_all_whole();
        for given in &delivery.frames {
            let answers = &delivery.answers[given.answers.0..given.answers.1];
            let whole = all || answers.iter().all(|answer| delivery.is_whole(answer));
            for answer in answers {
                let mut words = answer.words;
                if !whole && answer.pieces.1 + answer.crosses.1 > answer.pieces.0 + answer.crosses.0
                {
                    // The chain keeps its shape, so that the guest finds its end.
                    let status = status::ERROR;
                    words = RxResponse { status, ..RxResponse::from_words(words) }.to_words();
                }
                self.ring
                    .push_response(words)
                    .map_err(|_| VifError::Internal("answered a slot twice"))?;
            }
            if whole {
                packets += 1;
                bytes += given.len as u64;
            } else {
                broken += 1;
            }
        }
        VifStats::add(&stats.rx_slots, delivery.answers.len() as u64);
        VifStats::add(&stats.rx_packets, packets);
        self.packets += packets;
        VifStats::add(&stats.rx_bytes, bytes);
        VifStats::add(&stats.rx_dropped_grant, broken);
        Ok(())
    }

    /// Asks for a signal when the pages that a frame waits for are posted. For a port that is
    /// always ready, any posted page suffices. Returns true if the pages are posted already.
    pub(crate) fn arm(&mut self, always_ready: bool) -> Result<bool, VifError> {
        // At most a ring of them.
        let carried = self.carried.len() as u32;
        let wanted = self.waiting.wanted();
        let wanted = if always_ready { wanted.max(1) } else { wanted };
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

/// Returns the offset in the receiver's first page where another guest's packet begins. With it
/// each of the packet's pages fills one page of the receiver, and crosses in one operation.
fn meeting(packet: &Outgoing<'_>) -> u16 {
    match packet.lead().map(|lead| lead % PAGE_SIZE) {
        // Below a page.
        Some(lead @ FIRST_LEAST..) => (PAGE_SIZE - lead) as u16,
        _ => 0,
    }
}
