//! Buffers that frames are sent from: a pool of pages, whole or by halves, and pages of sixteen
//! small buffers each.
//!
//! A ring of short frames needs only sixteen pages of small buffers and their grants. So a backend
//! that maps them needs few entries of its tables, and one that copies looks up the same grants.
//! Each small buffer belongs to a slot of the ring, so no buffer must be searched. If answers come
//! in order, none must be given back. A buffer's number is its id on the ring: the pages have the
//! first numbers, and the small buffers those behind.

use crate::halves::{HALVES, Halves, PAGES};
use crate::lent::Lent;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error, FrontendPlatform, GrantRef};
use grantway_netif::Checksum;
use grantway_netif::slots::tx::{TxFragment, write_again, write_one};
use grantway_ring::{PAGE_SIZE, SharedPage};

/// Bytes of a small buffer.
pub(crate) const SMALL: usize = 256;
const SMALL_A_PAGE: usize = PAGE_SIZE / SMALL;
/// Small buffers: one for each slot of the ring.
const SMALLS: u32 = 256;
/// Pages of small buffers.
pub(crate) const SMALL_PAGES: usize = SMALLS as usize / SMALL_A_PAGE;
/// Pages of all buffers.
pub(crate) const SEND_PAGES: usize = SMALL_PAGES + PAGES as usize;

/// The buffers of a queue that frames are sent from.
pub(crate) struct Buffers {
    halves: Halves,
    small: Small,
}

/// Pages of small buffers.
pub(crate) struct Small {
    pages: Box<[SharedPage; SMALL_PAGES]>,
    /// The request for a frame in each slot's buffer, except for its length and its flags.
    requests: Box<[[u32; 3]; SMALLS as usize]>,
    grefs: Vec<GrantRef>,
    /// The number of the first small buffer.
    first: u16,
    /// Bits of the slots whose buffers are out.
    out: Out,
    // Declared after the handles above, so that those are gone when it goes back.
    lent: Lent,
}

/// A bit for each slot of a ring.
#[derive(Default)]
struct Out([u64; SMALLS as usize / 64]);

impl Buffers {
    /// Grants the pages of both kinds of buffers.
    pub fn new(platform: &Arc<dyn FrontendPlatform>, peer: DomId) -> Result<Self, Error> {
        let halves = Halves::new(platform, peer)?;
        Ok(Self { halves, small: Small::new(platform, peer, HALVES)? })
    }

    /// Returns the pages, whole or by halves.
    #[inline]
    pub fn halves(&self) -> &Halves {
        &self.halves
    }

    /// Returns the pages, to take some and to give some back.
    #[inline]
    pub fn halves_mut(&mut self) -> &mut Halves {
        &mut self.halves
    }

    /// Returns the small buffers.
    #[inline]
    pub fn small(&self) -> &Small {
        &self.small
    }

    /// Returns the small buffers, to note which are out.
    #[inline]
    pub fn small_mut(&mut self) -> &mut Small {
        &mut self.small
    }

    /// Returns the grants of the small buffers, and of the other pages.
    pub fn grefs(&self) -> [Vec<GrantRef>; 2] {
        [self.small.grefs.clone(), self.halves.grefs().collect()]
    }

    /// Notes that the grants are void.
    pub fn void(&self) {
        self.halves.void();
        self.small.lent.void();
    }
}

impl Small {
    /// Returns the number of slots from this one on, 64 at most, whose buffers are all free.
    #[inline]
    pub fn free_from(&self, index: u32) -> usize {
        self.out.clear_from(index)
    }

    /// Returns the buffer of a slot: its page, and its start in that page.
    #[inline]
    pub fn buffer(&self, index: u32) -> (&SharedPage, u16) {
        let slot = (index % SMALLS) as usize;
        // The offset is below a page.
        let offset = (slot % SMALL_A_PAGE * SMALL) as u16;
        (&self.pages[slot / SMALL_A_PAGE], offset)
    }

    /// Returns the request for a frame of `len` bytes, 14 at least, in the buffer of a slot.
    #[inline]
    pub fn request(&self, index: u32, len: u16, checksum: Checksum) -> [u32; 3] {
        write_again(self.requests[(index % SMALLS) as usize], len, checksum)
    }

    /// Returns the number of a slot's buffer.
    #[inline]
    pub fn number(&self, index: u32) -> u16 {
        // There are 256 of them, behind as many halves of pages.
        self.first + (index % SMALLS) as u16
    }

    /// Notes that the buffers of `count` slots, 64 at most, are out.
    #[inline]
    pub fn send(&mut self, index: u32, count: usize) {
        self.out.each_word(index, count, |word, bits| *word |= bits);
    }

    /// Takes back the buffers of `count` slots, 64 at most. Returns false, and takes none, if one
    /// of them is not out.
    #[inline]
    pub fn take_back(&mut self, index: u32, count: usize) -> bool {
        let mut all = true;
        self.out.each_word(index, count, |word, bits| all &= *word & bits == bits);
        if all {
            self.out.each_word(index, count, |word, bits| *word &= !bits);
        }
        all
    }

    /// Returns the slot of the buffer with this number.
    #[inline]
    pub fn slot_of(&self, number: u16) -> Option<u32> {
        let slot = number.checked_sub(self.first).map(u32::from);
        slot.filter(|&slot| slot < SMALLS)
    }

    fn new(platform: &Arc<dyn FrontendPlatform>, peer: DomId, first: u16) -> Result<Self, Error> {
        let lent = Lent::new(platform, peer, SMALL_PAGES, Access::ReadOnly)?;
        let (pages, grefs): (Vec<_>, Vec<_>) =
            (0..SMALL_PAGES).map_while(|index| lent.page(index)).unzip();
        let mut requests = Box::new([[0; 3]; SMALLS as usize]);
        for ((slot, request), id) in requests.iter_mut().enumerate().zip(first..) {
            let Some(gref) = grefs.get(slot / SMALL_A_PAGE) else { break };
            // The offset is below a page.
            let offset = (slot % SMALL_A_PAGE * SMALL) as u16;
            let fragment = TxFragment { gref: gref.0, offset, size: 0, id };
            *request = write_one(fragment, Checksum::Unknown);
        }
        let pages = pages.into_boxed_slice().try_into().map_err(|pages: Box<[SharedPage]>| {
            let (what, expected) = ("granted run", "sixteen pages");
            Error::Protocol { what, found: format!("{} pages", pages.len()), expected }
        })?;
        Ok(Self { pages, requests, grefs, first, out: Out::default(), lent })
    }
}

impl Out {
    /// Returns the word and the bit of a slot.
    #[inline]
    fn place(index: u32) -> (usize, u32) {
        ((index % SMALLS) as usize / 64, index % 64)
    }

    /// Returns the number of bits from this one on, 64 at most, that are clear.
    #[inline]
    fn clear_from(&self, index: u32) -> usize {
        let (word, shift) = Self::place(index);
        let behind = self.0[(word + 1) % self.0.len()];
        let bits = (u128::from(behind) << 64 | u128::from(self.0[word])) >> shift;
        (bits as u64).trailing_zeros() as usize
    }

    /// Calls `change` with each of the two words that may have some of `count` bits, 64 at most,
    /// and with those bits.
    #[inline]
    fn each_word(&mut self, index: u32, count: usize, mut change: impl FnMut(&mut u64, u64)) {
        let (word, shift) = Self::place(index);
        let bits = if count < 64 { (1 << count) - 1 } else { u64::MAX };
        let bits = u128::from(bits) << shift;
        change(&mut self.0[word], bits as u64);
        change(&mut self.0[(word + 1) % (SMALLS as usize / 64)], (bits >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_slots_are_noted_wherever_they_begin() {
        for first in [0, 1, 63, 64, 200, 255, u32::MAX - 3] {
            for count in [0, 1, 5, 63, 64] {
                let mut out = Out::default();
                out.each_word(first, count, |word, bits| *word |= bits);
                for slot in 0..SMALLS {
                    let (word, bit) = Out::place(slot);
                    let within = slot.wrapping_sub(first) % SMALLS < count as u32;
                    assert_eq!(out.0[word] >> bit & 1 == 1, within, "{first} {count} {slot}");
                }
                // The bits before and behind the run are clear.
                let end = first.wrapping_add(count as u32);
                assert_eq!(out.clear_from(end), 64, "{first} {count}");
                let before = first.wrapping_sub(10);
                assert_eq!(out.clear_from(before), if count == 0 { 64 } else { 10 });
            }
        }
    }
}
