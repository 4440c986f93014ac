//! Likely places of a guest's next packets.
//!
//! A single packet needs three cache lines, one after the other: the index shows that a slot was
//! filled, and the slot shows the place of the bytes. A frontend with a buffer for each slot of its
//! ring, such as Grantway's, puts the bytes of a slot where they were one lap before. So the line
//! of the bytes is fetched together with the line of the slot. A wrong guess fetches a line for
//! nothing.

use crate::layout::RING_SLOTS;
use crate::policy::Buffers;
use grantway_hypervisor::GrantRef;
use grantway_netif::tx::TxRequest;

/// Most packets of a turn for which this is worth it: the lines of more packets are under way
/// together anyhow.
const FEW: usize = 4;

/// The places of the last lap.
#[derive(Debug)]
pub(super) struct Likely {
    /// The page and the offset that each slot named when its packet came alone.
    places: Box<[(u32, u16); RING_SLOTS]>,
    /// True if the last look found nothing. A guest that sends without pause is not waited for, and
    /// this would only take time.
    alone: bool,
}

impl Likely {
    pub fn new() -> Self {
        Self { places: Box::new([(0, 0); RING_SLOTS]), alone: false }
    }

    /// Notes that a look found nothing.
    #[inline]
    pub fn found_nothing(&mut self) {
        self.alone = true;
    }

    /// Has the bytes of `count` packets fetched that came alone, from the slot `first` on, if they
    /// are few.
    #[inline]
    pub fn fetch(&self, first: u32, count: u32, buffers: &mut Buffers) {
        if !self.alone || count as usize > FEW {
            return;
        }
        for at in 0..count {
            let (gref, offset) = self.places[first.wrapping_add(at) as usize % RING_SLOTS];
            buffers.expect(GrantRef(gref), offset);
        }
    }

    /// Notes what these slots name, from the slot `first` on, if they came alone and are few.
    #[inline]
    pub fn learn(&mut self, first: u32, slots: &[[u32; 3]]) {
        if !std::mem::take(&mut self.alone) || slots.len() > FEW {
            return;
        }
        for (&words, at) in slots.iter().zip(0..) {
            let TxRequest { gref, offset, .. } = TxRequest::from_words(words);
            self.places[first.wrapping_add(at) as usize % RING_SLOTS] = (gref, offset);
        }
    }
}
