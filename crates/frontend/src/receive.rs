//! Receive: pages are posted, responses are checked against the posted pages, and frames are copied
//! out once.

mod pages;

use self::pages::Pages;
use crate::PeerError;
use crate::demand::{Change, Ready};
use crate::frame::{LentFrame, RxFrame};
use crate::pool::Pool;
use crate::stats::QueueStats;
use alloc::vec;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::slots::rx::{RxOutcome, RxPacket, parse_one, parse_rx};
use grantway_netif::{Hash, Offload, colour};
use grantway_ring::{Front, RingPage, SharedPage, VolatileSlice};

/// Responses copied from the ring at a time: more than any legal chain has.
const LOOK: usize = 64;
const SLOTS: usize = 256;
/// Pages of a queue at rest. A busy queue has twice as many: one for each slot of the ring.
pub(crate) const RESTING: u16 = SLOTS as u16 / 2;
/// Waiting responses by which a queue counts as busy: three quarters of the pages at rest.
const CROWD: u32 = RESTING as u32 / 4 * 3;
/// Free pages that are worth a publish.
const REFILL: usize = SLOTS / 4;
/// Most pages that are lent for calls before they are posted again, if no frame has more pages. The
/// backend has the other pages while the caller looks at a burst.
const LOOKED: usize = REFILL;
/// Frames whose bytes are prefetched before their slots are known. The cache lines of further
/// frames are fetched in parallel anyway.
const FEW: u32 = 4;

/// A frame that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Length in bytes, from the start of the caller's buffer.
    pub len: usize,
    /// Checksum and segmentation state.
    pub offload: Offload,
    /// Hash of the frame, if the backend was asked for it. The backend may have written anything.
    pub hash: Option<Hash>,
}

/// The receive half of a queue.
pub(crate) struct Receive {
    ring: Front<RingPage<2>, 2>,
    /// Owned copies of the next responses, so that each is read from the ring once.
    seen: [[u32; 2]; LOOK],
    /// Index of the next of `seen`, and the index behind the last.
    next: usize,
    end: usize,
    pages: Pages,
    /// Room for a frame of an untrusted backend, as long as the longest frame so far.
    room: Vec<u8>,
    /// Length in the first response of the last look. The next frames are likely to be as long.
    likely: usize,
}

impl Receive {
    pub fn new(ring: Front<RingPage<2>, 2>, pool: Pool, lends: bool) -> Self {
        let pages = Pages::new(pool, lends);
        Self { ring, seen: [[0; 2]; LOOK], next: 0, end: 0, pages, room: Vec::new(), likely: 0 }
    }

    /// Returns the pool of the posted pages.
    pub fn pool(&self) -> &Pool {
        &self.pages.pool
    }

    /// Returns the pool of the posted pages, to grant further ones.
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pages.pool
    }

    /// Posts all free pages, and further ones if the queue is busy and they are `ready`. Returns
    /// true if the backend asked for a signal.
    #[must_use]
    pub fn refill(&mut self, ready: Ready) -> bool {
        self.pages.collect();
        let demand = &self.pages.demand;
        if demand.is_due() || (demand.misses() && ready == Ready::Yes) {
            self.resize(ready);
        }
        let pages = &mut self.pages;
        if pages.settled {
            // The page of each slot stays, so the requests are pushed again as they are, in two
            // runs around the end of the ring.
            let first = self.ring.req_prod_pvt() as usize % SLOTS;
            let (behind, before) = pages.requests.split_at(first);
            let free = pages.free(&self.ring);
            let before = before.get(..free).unwrap_or(before);
            let behind = behind.get(..free - before.len()).unwrap_or(behind);
            self.ring.push_batch(before);
            self.ring.push_batch(behind);
            // There are 256 slots, and the count ends below twice its limit.
            pages.demand.count(free as u32);
            return self.ring.publish();
        }
        pages.moved = true;
        while self.ring.free() > 0 {
            let Some(id) = pages.pool.take() else { break };
            let Some((_, gref)) = pages.pool.page(id) else { break };
            let request = RxRequest { id, gref: gref.0 }.to_words();
            match self.ring.push(request) {
                Ok(index) => {
                    pages.demand.count(1);
                    pages.posted[index as usize % SLOTS] = id;
                    pages.requests[index as usize % SLOTS] = request;
                }
                Err(_) => {
                    pages.pool.give(id);
                    break;
                }
            }
        }
        // With the pages in use on the ring, and no others, no page is elsewhere.
        let on_ring = SLOTS - self.ring.free() as usize;
        if pages.lent == 0 && pages.pool.free() == 0 && on_ring == pages.pool.in_use().into() {
            pages.settle(self.ring.rsp_cons());
        }
        self.ring.publish()
    }

    /// Takes further pages into use after a crowd, and out of use after a calm.
    #[inline(never)]
    fn resize(&mut self, ready: Ready) {
        let pages = &mut self.pages;
        // Packets in pages that are not staged would each take grant copy.
        let change = pages.demand.step(ready, || pages.pool.grant(RESTING).is_ok());
        if matches!(change, Change::Grow | Change::Shrink) {
            let free = pages.free(&self.ring);
            pages.unsettle(self.ring.rsp_cons(), free);
        }
        match change {
            Change::Grow => pages.pool.grow(RESTING),
            Change::Shrink => pages.pool.shrink(RESTING),
            Change::Nothing | Change::Await | Change::Withdraw => {}
        }
        pages.moved |= change != Change::Nothing;
    }

    /// Returns true if the pages in use may have changed since the last call.
    #[inline]
    pub fn has_moved(&mut self) -> bool {
        core::mem::take(&mut self.pages.moved)
    }

    /// Returns true if further pages are to be used, are in use, or are still on the ring or lent.
    pub fn has_further(&self) -> bool {
        self.pages.demand.is_active() || !self.pages.pool.is_settled()
    }

    /// Returns true if further pages are missed.
    #[inline]
    pub fn misses_further(&self) -> bool {
        self.pages.demand.misses()
    }

    /// Returns true if enough pages are free that posting them again is worth a publish.
    #[inline]
    pub fn wants_refill(&mut self) -> bool {
        self.pages.collect();
        let free = match self.pages.settled {
            true => self.pages.free(&self.ring),
            false => self.pages.pool.free(),
        };
        free >= REFILL || (self.pages.lent > 0 && self.pages.is_worth(free))
    }

    /// Copies the next frame to `buf`. A frame that the backend could not deliver whole, or that is
    /// longer than `buf`, is counted and skipped. Returns `None` if there is no frame.
    pub fn recv(
        &mut self,
        buf: &mut [u8],
        stats: &mut QueueStats,
    ) -> Result<Option<Received>, PeerError> {
        self.next_frame(stats, |pages, first, packet, stats| {
            if packet.len > buf.len() {
                stats.rx_too_large += 1;
                return Ok(None);
            }
            pages.copy_out(first, packet, buf)?;
            let (len, offload, hash) = (packet.len, packet.offload, packet.hash);
            Ok(Some(Received { len, offload, hash }))
        })
    }

    /// Copies frames of one slot to `arena` from `at` on, each at a multiple of 64 bytes, and calls
    /// `took` for each. Returns the number of frames, at most `most`. Ends at the first frame of
    /// another kind, or without room.
    #[inline]
    pub fn recv_short(
        &mut self,
        arena: &mut [u8],
        at: &mut usize,
        most: usize,
        took: &mut impl FnMut(usize, Received),
        stats: &mut QueueStats,
    ) -> Result<usize, PeerError> {
        let take = |page: &SharedPage, offset: u16, len: u16, offload| {
            let len = usize::from(len);
            let room = arena.get_mut(*at..).and_then(|rest| rest.get_mut(..len));
            let Some(room) = room else { return false };
            if page.read(offset.into(), room).is_err() {
                return false;
            }
            took(*at, Received { len, offload, hash: None });
            *at = (*at + len).next_multiple_of(64);
            true
        };
        self.each_short(most, take, stats)
    }

    /// Calls `look` with frames of one slot in their pages. Returns the number of frames, at most
    /// `most`.
    #[inline]
    fn look_short(
        &mut self,
        most: usize,
        look: &mut impl FnMut(RxFrame<'_>),
        stats: &mut QueueStats,
    ) -> Result<usize, PeerError> {
        let take = |page: &SharedPage, offset, len, offload| {
            let Ok(slice) = VolatileSlice::new(page, offset, len) else { return false };
            look(RxFrame::one(slice, offload));
            true
        };
        self.each_short(most, take, stats)
    }

    /// Calls `take` with page, offset, length and offload of frames of one slot. Returns the number
    /// of frames, at most `most`. Ends at the first frame of another kind, or that `take` refuses.
    #[inline]
    fn each_short(
        &mut self,
        most: usize,
        mut take: impl FnMut(&SharedPage, u16, u16, Offload) -> bool,
        stats: &mut QueueStats,
    ) -> Result<usize, PeerError> {
        if self.next == self.end && !self.look()? {
            return Ok(0);
        }
        let first = self.ring.rsp_cons();
        let (mut count, mut bytes) = (0u32, 0);
        for &words in self.seen[self.next..self.end].iter().take(most) {
            let Some((RxResponse { id, offset, status, .. }, checksum)) = parse_one(words) else {
                break;
            };
            let index = first.wrapping_add(count) as usize % SLOTS;
            // Anything amiss with a frame is told when it is looked at by itself.
            let Some((page, _)) = self.pages.pool.page(self.pages.posted[index]) else { break };
            // The status is 14 to 4096.
            let len = status as u16;
            let offload = Offload { checksum, gso: None };
            if id != self.pages.posted[index] || !take(page, offset, len, offload) {
                break;
            }
            count += 1;
            bytes += u64::from(len);
        }
        if let Some(&words) = self.seen.get(self.next) {
            // Frames of one slot: the first is as telling as any. A refused one is no length.
            self.likely = RxResponse::from_words(words).status.max(0) as usize;
        }
        // All frames that were taken leave the ring at once.
        let consumed = self.ring.consume(count);
        consumed.map_err(|_| PeerError::Internal("consumed unseen responses"))?;
        self.next += count as usize;
        self.pages.give_back(first, count);
        stats.rx_packets += u64::from(count);
        stats.rx_slots += u64::from(count);
        stats.rx_bytes += bytes;
        Ok(count as usize)
    }

    /// Calls `look` with frames in their pages, until these had [`LOOKED`] pages or there are no
    /// more frames. Returns the number of frames. Frames of an untrusted backend are copied first.
    #[inline]
    pub fn look_at(
        &mut self,
        look: &mut impl FnMut(RxFrame<'_>),
        stats: &mut QueueStats,
    ) -> Result<usize, PeerError> {
        self.pages.collect();
        let (first, mut looked, mut left) = (self.ring.rsp_cons(), 0, LOOKED);
        while left > 0 {
            let short = match self.pages.lends {
                true => self.look_short(left, look, stats)?,
                false => 0,
            };
            looked += short;
            let done = short == left || (short > 0 && self.is_through());
            if done || !self.look_next(look, stats)? {
                break;
            }
            looked += 1;
            // A ring has 256 slots.
            let used = self.ring.rsp_cons().wrapping_sub(first) as usize;
            left = LOOKED.saturating_sub(used);
        }
        stats.rx_lent += if self.pages.lends { looked as u64 } else { 0 };
        Ok(looked)
    }

    /// Calls `look` with the next frame, of any kind. Returns true if there was a frame.
    fn look_next(
        &mut self,
        look: &mut impl FnMut(RxFrame<'_>),
        stats: &mut QueueStats,
    ) -> Result<bool, PeerError> {
        let mut room = core::mem::take(&mut self.room);
        let looked = self.next_frame(stats, |pages, first, packet, stats| {
            if pages.lends {
                let mut parts = ArrayVec::<VolatileSlice<'_>, LOOK>::new();
                for fragment in packet.fragments() {
                    let (page, _) = pages.page_at(first, fragment.slot)?;
                    let part = VolatileSlice::new(page, fragment.offset, fragment.len);
                    let part = part.map_err(|_| PeerError::Internal("an unchecked fragment"))?;
                    // A packet has fewer parts than LOOK.
                    let _ = parts.try_push(part);
                }
                look(RxFrame::chain(&parts, packet));
            } else {
                stats.rx_copied += 1;
                room.resize(room.len().max(packet.len), 0);
                let bytes = &mut room[..packet.len];
                pages.copy_out(first, packet, bytes)?;
                look(RxFrame::copied(bytes, packet));
            }
            Ok(Some(()))
        });
        self.room = room;
        looked.map(|looked| looked.is_some())
    }

    /// Returns true if all responses that were copied from the ring were received.
    pub fn is_through(&self) -> bool {
        self.next == self.end
    }

    /// Returns the next frame, lent in its pages. The frame is a copy if it may not be lent, or if
    /// too many pages are lent. Returns `None` if there is no frame.
    pub fn recv_lent(&mut self, stats: &mut QueueStats) -> Result<Option<LentFrame>, PeerError> {
        self.pages.collect();
        // A page that a frame was taken from may from now on be posted at any slot.
        let free = self.pages.free(&self.ring);
        self.pages.unsettle(self.ring.rsp_cons(), free);
        self.next_frame(stats, |pages, first, packet, stats| {
            if let Some(frame) = pages.lend(first, packet)? {
                stats.rx_lent += 1;
                return Ok(Some(frame));
            }
            stats.rx_copied += 1;
            let mut bytes = vec![0; packet.len];
            pages.copy_out(first, packet, &mut bytes)?;
            Ok(Some(LentFrame::copied(bytes, packet.offload)))
        })
    }

    /// Finds the next packet, calls `take` with it, and gives its pages back, except those that
    /// were lent. Returns the first result of `take` that is not `None`.
    #[inline]
    fn next_frame<T>(
        &mut self,
        stats: &mut QueueStats,
        mut take: impl FnMut(
            &mut Pages,
            u32,
            &RxPacket<'_>,
            &mut QueueStats,
        ) -> Result<Option<T>, PeerError>,
    ) -> Result<Option<T>, PeerError> {
        loop {
            if self.next == self.end && !self.look()? {
                return Ok(None);
            }
            let first = self.ring.rsp_cons();
            let parsed = match parse_rx(&self.seen[self.next..self.end]) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => return Ok(None),
                // The packet's end may have come since the responses were copied.
                Err(_) if self.next > 0 => {
                    self.next = self.end;
                    continue;
                }
                Err(source) => return Err(PeerError::Slots { index: first, source }),
            };
            // A packet has at most LOOK slots.
            let slots = parsed.slots as u32;
            self.pages.check_ids(first, &self.seen[self.next..self.next + parsed.slots])?;
            let received = match &parsed.outcome {
                RxOutcome::Packet(packet) => {
                    let taken = take(&mut self.pages, first, packet, stats)?;
                    if taken.is_some() {
                        stats.rx_packets += 1;
                        stats.rx_bytes += packet.len as u64;
                    }
                    taken
                }
                RxOutcome::Refused(_) => {
                    stats.rx_errors += 1;
                    None
                }
            };
            // The packet leaves the ring, received or refused, and the loop goes on if nobody got a
            // frame.
            self.ring
                .consume(slots)
                .map_err(|_| PeerError::Internal("consumed unseen responses"))?;
            self.next += parsed.slots;
            self.pages.give_back(first, slots);
            stats.rx_slots += u64::from(slots);
            if received.is_some() {
                return Ok(received);
            }
        }
    }

    /// Copies responses of the ring, from the next packet on. Returns true if there is one.
    fn look(&mut self) -> Result<bool, PeerError> {
        (self.next, self.end) = (0, 0);
        let mut known = self.ring.known() as usize;
        if known < LOOK {
            let shown = self.ring.available();
            let shown = shown.map_err(|source| PeerError::Ring { ring: "receive", source })?;
            if shown == 0 {
                return Ok(false);
            }
            if known == 0 {
                self.fetch_likely(shown);
            }
            known = shown as usize;
        }
        // The index is not read again.
        self.end = self
            .ring
            .peek_batch(&mut self.seen[..known.min(LOOK)])
            .map_err(|source| PeerError::Ring { ring: "receive", source })?;
        // A crowd is more than one look has.
        if self.end == LOOK && self.ring.known() >= CROWD {
            self.pages.demand.crowd();
        }
        Ok(self.end > 0)
    }

    /// Prefetches the first bytes of a few frames while their slots are fetched, at the place where
    /// Grantway's backend puts a frame of that length. A wrong guess costs only useless fetches.
    #[inline]
    fn fetch_likely(&self, frames: u32) {
        if frames > FEW {
            return;
        }
        for at in 0..frames {
            let index = self.ring.rsp_cons().wrapping_add(at);
            let page = self.pages.pool.page(self.pages.posted[index as usize % SLOTS]);
            if let Some((page, _)) = page {
                page.prefetch(colour(index, self.likely).into());
            }
        }
    }

    /// Asks for a signal at the next response. Returns true if one is there already.
    pub fn arm(&mut self) -> Result<bool, PeerError> {
        self.ring.arm().map_err(|source| PeerError::Ring { ring: "receive", source })
    }

    /// Notes that the pool's grants are void.
    pub fn void(&self) {
        self.pages.pool.void();
    }
}
