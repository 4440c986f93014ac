//! Ring page in the layout of `xen/io/ring.h`.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::access::{Index, RingMemory};
use crate::copy::copy;
use crate::memory::{PAGE_SIZE, SharedPage};

/// Bytes before the first slot: four index words and padding.
const HEADER: usize = 64;

/// Ring in one shared page. Each slot has `W` 32-bit words.
///
/// Slots follow a header of 64 bytes. Their number is the largest power of two that fits: 256 on a
/// transmit or receive ring (`W` is 3 or 2), 128 on a control ring (`W` is 4).
///
/// # Why this is sound
///
/// Both ends of this crate access the index words by [`AtomicU32::from_ptr`] only. A peer in
/// another domain or process makes aligned 32-bit machine accesses. An atomic access is the same on
/// every architecture of Xen. An `&AtomicU32` allows changes by others, so no reference claims that
/// the memory is unshared.
///
/// Slots are accessed through raw pointers only: a single slot by volatile words, several slots by
/// the copy for payloads (`copy.rs`). By the protocol, an honest peer does not write a slot while
/// it is read (loom checks this). A hostile peer only chooses the words that the reader then
/// validates.
#[derive(Debug, Clone)]
pub struct RingPage<const W: usize> {
    page: SharedPage,
}

impl<const W: usize> RingPage<W> {
    /// Number of slots in the page.
    pub const SLOTS: u32 = {
        let fit = (PAGE_SIZE - HEADER) / (W * size_of::<u32>());
        1 << fit.ilog2()
    };

    /// Makes a ring of `page`. Does not access the page yet.
    #[must_use]
    pub fn new(page: SharedPage) -> Self {
        Self { page }
    }

    /// Returns the page of the ring.
    #[must_use]
    pub fn page(&self) -> &SharedPage {
        &self.page
    }

    #[inline(always)]
    fn index(&self, index: Index) -> &AtomicU32 {
        let word = match index {
            Index::ReqProd => 0,
            Index::ReqEvent => 1,
            Index::RspProd => 2,
            Index::RspEvent => 3,
        };
        // SAFETY: the word is in the header of a page that is mapped, and
        // page-aligned, for as long as `self.page` lives; all our accesses to
        // it are atomic.
        unsafe { AtomicU32::from_ptr(self.page.as_ptr().as_ptr().cast::<u32>().add(word)) }
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> *mut u32 {
        let slot = (index & (Self::SLOTS - 1)) as usize;
        // SAFETY: HEADER + SLOTS * W words fit in the page by the definition of
        // SLOTS, and the mask keeps `slot` below SLOTS.
        unsafe { self.page.as_ptr().as_ptr().cast::<u32>().add(HEADER / 4 + slot * W) }
    }

    /// Splits `count` slots from `index` on where the ring begins anew: how many lie
    /// before that, and how many behind.
    #[inline(always)]
    fn stretches(index: u32, count: usize) -> (usize, usize) {
        let count = count.min(Self::SLOTS as usize);
        let before = count.min((Self::SLOTS - (index & (Self::SLOTS - 1))) as usize);
        (before, count - before)
    }
}

impl<const W: usize> RingMemory<W> for RingPage<W> {
    #[inline(always)]
    fn slots(&self) -> u32 {
        Self::SLOTS
    }

    #[inline(always)]
    fn load(&self, index: Index) -> u32 {
        self.index(index).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, index: Index, value: u32) {
        self.index(index).store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn read_slot(&self, index: u32) -> [u32; W] {
        let slot = self.slot(index);
        // SAFETY: `slot` is aligned and valid for W words.
        core::array::from_fn(|word| unsafe { slot.add(word).read_volatile() })
    }

    #[inline(always)]
    fn write_slot(&self, index: u32, words: [u32; W]) {
        let slot = self.slot(index);
        for (at, word) in words.into_iter().enumerate() {
            // SAFETY: `slot` is aligned and valid for W words.
            unsafe { slot.add(at).write_volatile(word) };
        }
    }

    #[inline]
    fn read_slots(&self, index: u32, out: &mut [[u32; W]]) {
        if let [slot] = out {
            // A packet by itself: to find the way to copy takes longer than its words.
            *slot = self.read_slot(index);
            return;
        }
        let (before, behind) = Self::stretches(index, out.len());
        let to = out.as_mut_ptr();
        // SAFETY: so many slots lie between `index` and the end of the ring, and so
        // many, fewer than a ring, from its beginning on; `out` has room for both,
        // is ours, and cannot overlap a mapping that no reference exists to.
        unsafe {
            copy(self.slot(index).cast(), to.cast(), before * size_of::<[u32; W]>());
            if behind > 0 {
                let to = to.add(before).cast();
                copy(self.slot(0).cast(), to, behind * size_of::<[u32; W]>());
            }
        }
    }

    #[inline]
    fn write_slots(&self, index: u32, slots: &[[u32; W]]) {
        if let [words] = *slots {
            self.write_slot(index, words);
            return;
        }
        let (before, behind) = Self::stretches(index, slots.len());
        let from = slots.as_ptr();
        // SAFETY: as in `read_slots`.
        unsafe {
            copy(from.cast(), self.slot(index).cast(), before * size_of::<[u32; W]>());
            if behind > 0 {
                let from = from.add(before).cast();
                copy(from, self.slot(0).cast(), behind * size_of::<[u32; W]>());
            }
        }
    }

    fn clear(&self) {
        self.page.zero();
    }
}
