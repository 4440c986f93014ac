//! Receive: pages posted, responses checked against what was posted, frames
//! copied out once.

use crate::PeerError;
use crate::frame::{LentFrame, Part, Returned};
use crate::pool::Pool;
use crate::stats::QueueStats;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use grantway_netif::rx::{RxRequest, RxResponse};
use grantway_netif::slots::rx::{RxOutcome, RxPacket, parse_one, parse_rx};
use grantway_netif::{Hash, Offload};
use grantway_ring::{Front, RingPage};

/// Responses copied from the ring at a time: more than any legal chain has.
const LOOK: usize = 64;
const SLOTS: usize = 256;
/// No page's number: the page of that slot is lent to the application.
const LENT: u16 = u16::MAX;

/// A frame that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its length at the start of the caller's buffer, in bytes.
    pub len: usize,
    /// Checksum and segmentation state.
    pub offload: Offload,
    /// Its hash, where the backend was asked to send one along. The backend may
    /// have written anything.
    pub hash: Option<Hash>,
}

/// The receive half of a queue.
pub(crate) struct Receive {
    ring: Front<RingPage<2>, 2>,
    /// Owned copies of the responses that come next, so that each is read from
    /// the ring once.
    seen: [[u32; 2]; LOOK],
    /// The next of them, and one past the last.
    next: usize,
    end: usize,
    pages: Pages,
}

/// The pages of a receive ring.
struct Pages {
    pool: Pool,
    /// The page posted at each slot of the ring.
    posted: [u16; SLOTS],
    /// Pages that frames are lent in, and those that came back.
    lent: usize,
    returned: Arc<Returned>,
    /// Whether frames may be lent at all: not where the backend is not trusted.
    lends: bool,
}

/// The most of its pages that a queue lends: the rest stays posted.
const LENT_MAX: usize = SLOTS / 2;

impl Receive {
    pub fn new(ring: Front<RingPage<2>, 2>, pool: Pool, lends: bool) -> Self {
        let pages = Pages { pool, posted: [0; SLOTS], lent: 0, returned: Arc::default(), lends };
        Self { ring, seen: [[0; 2]; LOOK], next: 0, end: 0, pages }
    }

    /// What is posted.
    pub fn pool(&self) -> &Pool {
        &self.pages.pool
    }

    /// Posts every free page; true when the backend asked to be signalled.
    #[must_use]
    pub fn refill(&mut self) -> bool {
        let pages = &mut self.pages;
        pages.collect();
        while self.ring.free() > 0 {
            let Some(id) = pages.pool.take() else { break };
            let Some((_, gref)) = pages.pool.page(id) else { break };
            let request = RxRequest { id, gref: gref.0 };
            match self.ring.push(request.to_words()) {
                Ok(index) => pages.posted[index as usize % SLOTS] = id,
                Err(_) => {
                    pages.pool.give(id);
                    break;
                }
            }
        }
        self.ring.publish()
    }

    /// Whether so many pages were used up that posting them again is worth a
    /// publish.
    pub fn wants_refill(&mut self) -> bool {
        self.pages.collect();
        self.pages.pool.free() >= SLOTS / 4
    }

    /// Copies the next frame to `buf`. A frame that the backend could not
    /// deliver whole, or that does not fit, is counted and skipped.
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

    /// Copies frames of one slot, from the next on, to `arena` from `at` on, each at a
    /// multiple of 64, and tells `took` of each; how many, at most `most`, up to the
    /// first that is of another kind, or finds no room.
    #[inline]
    pub fn recv_short(
        &mut self,
        arena: &mut [u8],
        at: &mut usize,
        most: usize,
        took: &mut impl FnMut(usize, Received),
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
            let len = status as usize;
            let Some(room) = arena.get_mut(*at..).and_then(|rest| rest.get_mut(..len)) else {
                break;
            };
            // Whatever is amiss with one is told when it is looked at by itself.
            let Some((page, _)) = self.pages.pool.page(self.pages.posted[index]) else { break };
            if id != self.pages.posted[index] || page.read(offset.into(), room).is_err() {
                break;
            }
            took(*at, Received { len, offload: Offload { checksum, gso: None }, hash: None });
            *at = (*at + len).next_multiple_of(64);
            count += 1;
            bytes += len as u64;
        }
        let consumed = self.ring.consume(count);
        consumed.map_err(|_| PeerError::Internal("consumed unseen responses"))?;
        self.next += count as usize;
        self.pages.give_back(first, count);
        stats.rx_packets += u64::from(count);
        stats.rx_slots += u64::from(count);
        stats.rx_bytes += bytes;
        Ok(count as usize)
    }

    /// Whether all that was copied from the ring was received.
    pub fn is_through(&self) -> bool {
        self.next == self.end
    }

    /// Gives the next frame in its pages, or, where too many of them are lent
    /// already, in a copy.
    pub fn recv_lent(&mut self, stats: &mut QueueStats) -> Result<Option<LentFrame>, PeerError> {
        self.pages.collect();
        self.next_frame(stats, |pages, first, packet, stats| {
            if let Some(frame) = pages.lend(first, packet)? {
                return Ok(Some(frame));
            }
            stats.rx_copied += 1;
            let mut bytes = vec![0; packet.len];
            pages.copy_out(first, packet, &mut bytes)?;
            Ok(Some(LentFrame::copied(bytes, packet.offload)))
        })
    }

    /// Finds the next packet, has `take` take it, and gives its pages back but
    /// those that were lent.
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
                // Its end may have come since.
                Err(_) if self.next > 0 => {
                    self.next = self.end;
                    continue;
                }
                Err(source) => return Err(PeerError::Slots { index: first, source }),
            };
            // At most LOOK.
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

    /// Copies what the ring has from the next packet on; whether it has anything.
    fn look(&mut self) -> Result<bool, PeerError> {
        self.next = 0;
        self.end = self
            .ring
            .peek_batch(&mut self.seen)
            .map_err(|source| PeerError::Ring { ring: "receive", source })?;
        Ok(self.end > 0)
    }

    /// Asks for a signal at the next response; true when one is there already.
    pub fn arm(&mut self) -> Result<bool, PeerError> {
        self.ring.arm().map_err(|source| PeerError::Ring { ring: "receive", source })
    }

    /// Says that the pool's grants are void.
    pub fn void(&self) {
        self.pages.pool.void();
    }
}

impl Pages {
    /// Takes back what was lent.
    fn collect(&mut self) {
        if self.lent > 0 {
            self.returned.collect(|page| {
                self.pool.give(page);
                self.lent -= 1;
            });
        }
    }

    /// Gives back the pages of so many slots, but those that were lent.
    #[inline]
    fn give_back(&mut self, first: u32, slots: u32) {
        for slot in 0..slots {
            let page = self.posted[first.wrapping_add(slot) as usize % SLOTS];
            if page != LENT {
                self.pool.give(page);
            }
        }
    }

    /// Lends a frame in its pages; none where too many are lent already, or none
    /// may be.
    fn lend(&mut self, first: u32, packet: &RxPacket<'_>) -> Result<Option<LentFrame>, PeerError> {
        let fragments = packet.fragments();
        let pages = fragments.len();
        if !self.lends || self.lent + pages > LENT_MAX {
            return Ok(None);
        }
        let mut parts = Vec::with_capacity(pages);
        for fragment in fragments {
            let index = first.wrapping_add(fragment.slot as u32) as usize % SLOTS;
            let number = self.posted[index];
            let (page, _) =
                self.pool.page(number).ok_or(PeerError::Internal("a page of no pool"))?;
            let page = page.clone();
            parts.push(Part { page, number, offset: fragment.offset, len: fragment.len });
            self.posted[index] = LENT;
        }
        self.lent += pages;
        let (returned, keeper) = (Arc::clone(&self.returned), self.pool.keeper());
        Ok(Some(LentFrame::lent(parts, packet.offload, returned, keeper)))
    }

    #[inline]
    fn copy_out(&self, first: u32, packet: &RxPacket<'_>, buf: &mut [u8]) -> Result<(), PeerError> {
        let mut rest = buf;
        for fragment in packet.fragments() {
            // Which page it is was decided when it was posted, not by the
            // response.
            let index = first.wrapping_add(fragment.slot as u32) as usize % SLOTS;
            let page = self.pool.page(self.posted[index]);
            let (page, _) = page.ok_or(PeerError::Internal("a page of no pool"))?;
            let (part, behind) = rest
                .split_at_mut_checked(usize::from(fragment.len))
                .ok_or(PeerError::Internal("fragments beyond the packet"))?;
            page.read(usize::from(fragment.offset), part)
                .map_err(|_| PeerError::Internal("an unchecked fragment"))?;
            rest = behind;
        }
        Ok(())
    }

    /// A response must name the buffer that was posted at its index (an extra
    /// has no room for an id).
    #[inline]
    fn check_ids(&self, first: u32, words: &[[u32; 2]]) -> Result<(), PeerError> {
        let mut extra = false;
        for (slot, &words) in words.iter().enumerate() {
            let index = first.wrapping_add(slot as u32);
            if extra {
                extra = grantway_netif::extra::has_more(words);
                continue;
            }
            let response = RxResponse::from_words(words);
            let expected = self.posted[index as usize % SLOTS];
            if response.id != expected {
                return Err(PeerError::WrongId { index, found: response.id, expected });
            }
            extra = slot == 0 && response.flags.contains(grantway_netif::rx::RxFlags::EXTRA_INFO);
        }
        Ok(())
    }
}
