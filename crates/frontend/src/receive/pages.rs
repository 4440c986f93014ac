//! The pages of a receive ring: their slots, the free pages, and the lent pages.

use super::{REFILL, SLOTS};
use crate::PeerError;
use crate::demand::Demand;
use crate::frame::{LentFrame, Part, Returned};
use crate::pool::Pool;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_netif::rx::RxResponse;
use grantway_netif::slots::rx::RxPacket;
use grantway_ring::{Front, RingPage, SharedPage};

/// Number in place of a page that is lent to the application.
const LENT: u16 = u16::MAX;

/// The pages of a receive ring.
pub(super) struct Pages {
    pub pool: Pool,
    /// The page posted at each slot of the ring.
    pub posted: [u16; SLOTS],
    /// The request of each slot's page.
    pub requests: [[u32; 2]; SLOTS],
    /// True if each page stays at its slots when a frame was taken from it, to be posted there
    /// again. If the queue is at rest, a page has two slots, half a ring apart. This holds while no
    /// page is lent.
    pub settled: bool,
    /// Number of lent pages, and the pages that came back.
    pub lent: usize,
    /// True if a page was posted at a slot that is not its own.
    pub moved: bool,
    /// Demand for further pages.
    pub demand: Demand,
    pub returned: Arc<Returned>,
    /// True if frames may be lent, which needs a trusted backend.
    pub lends: bool,
}

impl Pages {
    pub fn new(pool: Pool, lends: bool) -> Self {
        Self {
            pool,
            posted: [0; SLOTS],
            requests: [[0; 2]; SLOTS],
            settled: false,
            lent: 0,
            moved: false,
            demand: Demand::new(),
            returned: Arc::default(),
            lends,
        }
    }

    /// Returns true if `free` pages are worth a publish while some pages are lent.
    #[inline(never)]
    pub fn is_worth(&self, free: usize) -> bool {
        let pages = usize::from(self.pool.in_use()).saturating_sub(self.lent);
        free >= REFILL.min(pages / 2).max(1)
    }

    /// Takes back what was lent.
    #[inline]
    pub fn collect(&mut self) {
        if self.lent > 0 {
            self.returned.collect(|page| {
                self.pool.give(page);
                self.lent -= 1;
            });
        }
    }

    /// Gives back the pages of `slots` slots, except those that were lent.
    #[inline]
    pub fn give_back(&mut self, first: u32, slots: u32) {
        if self.settled {
            return;
        }
        for slot in 0..slots {
            let page = self.posted[first.wrapping_add(slot) as usize % SLOTS];
            if page != LENT {
                self.pool.give(page);
            }
        }
    }

    /// Returns the number of pages that are not on the ring, while each page stays at its slots.
    #[inline]
    pub fn free(&self, ring: &Front<RingPage<2>, 2>) -> usize {
        let on_ring = SLOTS - ring.free() as usize;
        usize::from(self.pool.in_use()).saturating_sub(on_ring)
    }

    /// Makes each page stay at its slots from now on. All pages are on the ring, from `next` on.
    pub fn settle(&mut self, next: u32) {
        self.settled = true;
        let pages = u32::from(self.pool.in_use());
        for slot in pages..SLOTS as u32 {
            let at = |slot: u32| next.wrapping_add(slot) as usize % SLOTS;
            let (from, to) = (at(slot - pages), at(slot));
            self.posted[to] = self.posted[from];
            self.requests[to] = self.requests[from];
        }
    }

    /// Gives back the free pages that stayed at their slots: the `free` slots before `next`.
    pub fn unsettle(&mut self, next: u32, free: usize) {
        if core::mem::take(&mut self.settled) {
            // There are 256 slots.
            let free = free as u32;
            self.give_back(next.wrapping_sub(free), free);
        }
    }

    /// Returns the page at a slot of a packet that begins at `first`, and its number. The page is
    /// the one that was posted there, whatever the response has.
    #[inline]
    pub fn page_at(&self, first: u32, slot: usize) -> Result<(&SharedPage, u16), PeerError> {
        let number = self.posted[first.wrapping_add(slot as u32) as usize % SLOTS];
        let page = self.pool.page(number).map(|(page, _)| (page, number));
        page.ok_or(PeerError::Internal("a page of no pool"))
    }

    /// Lends a frame in its pages. Returns `None` if frames may not be lent, or too many pages are
    /// lent.
    pub fn lend(
        &mut self,
        first: u32,
        packet: &RxPacket<'_>,
    ) -> Result<Option<LentFrame>, PeerError> {
        let fragments = packet.fragments();
        let pages = fragments.len();
        // The rest stays posted. A queue that would lend more is busy.
        let crowd = self.lent + pages > usize::from(self.pool.in_use()) / 2;
        if !self.lends || crowd {
            if self.lends {
                self.demand.crowd();
            }
            return Ok(None);
        }
        let mut parts = Vec::with_capacity(pages);
        for fragment in fragments {
            let (page, number) = self.page_at(first, fragment.slot)?;
            let page = page.clone();
            parts.push(Part { page, number, offset: fragment.offset, len: fragment.len });
            self.posted[first.wrapping_add(fragment.slot as u32) as usize % SLOTS] = LENT;
        }
        self.lent += pages;
        let (returned, keeper) = (Arc::clone(&self.returned), self.pool.keeper());
        Ok(Some(LentFrame::lent(parts, packet.offload, returned, keeper)))
    }

    #[inline]
    pub fn copy_out(
        &self,
        first: u32,
        packet: &RxPacket<'_>,
        buf: &mut [u8],
    ) -> Result<(), PeerError> {
        let mut rest = buf;
        for fragment in packet.fragments() {
            let (page, _) = self.page_at(first, fragment.slot)?;
            let (part, behind) = rest
                .split_at_mut_checked(usize::from(fragment.len))
                .ok_or(PeerError::Internal("fragments beyond the packet"))?;
            page.read(usize::from(fragment.offset), part)
                .map_err(|_| PeerError::Internal("an unchecked fragment"))?;
            rest = behind;
        }
        Ok(())
    }

    /// Checks that each response names the buffer that was posted at its index. An extra has no
    /// room for an id.
    #[inline]
    pub fn check_ids(&self, first: u32, words: &[[u32; 2]]) -> Result<(), PeerError> {
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
