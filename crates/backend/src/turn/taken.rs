//! One packet of a turn: the data of its slots, the place of its bytes, and its fate.

use crate::layout::{HEAD, place};
use crate::policy::Piece;
use crate::turn::work;
use grantway_netif::Offload;
use grantway_netif::slots::tx::{Multicast, TxFragment, TxPacket, TxRefusal};
use grantway_ports::{FrameMeta, FramePlace};
use grantway_ring::PAGE_SIZE;

/// Meaning of a packet's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Packet,
    /// A change of the guest's own multicast filter.
    Change(Multicast),
    Refused(TxRefusal),
}

/// One packet of a turn.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(super) what: What,
    /// Slots of the packet in the turn: index of the first, and index behind the last.
    pub(super) slots: (u16, u16),
    /// Fragments of the packet: index of the first, and index behind the last.
    pub(super) fragments: (u16, u16),
    /// Pieces that are copied into private memory: index of the first, and index behind the last.
    pieces: (u16, u16),
    /// Start of its private bytes in the arena.
    at: u32,
    /// Start of the arena's room for the whole packet.
    whole_at: u32,
    /// Length of the packet in bytes; 0 if it is refused.
    pub(super) len: u16,
    offload: Offload,
    /// Price of the packet for each receiver; 0 if the sink asks for no prices.
    pub(super) price: u16,
    /// Status that answers its slots, if it goes no further.
    pub(super) ended: Option<i16>,
}

impl Taken {
    /// Returns the length of the packet in bytes; 0 if it is refused.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Returns the start of its private bytes in the arena.
    pub fn at(&self) -> usize {
        self.at as usize
    }

    /// Returns the start of the arena's room for the whole packet.
    pub fn whole_at(&self) -> usize {
        self.whole_at as usize
    }

    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Returns true if the packet is still on its way to the sink.
    pub fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    /// Ends the packet: it goes no further, and `status` answers its slots.
    pub fn end(&mut self, status: i16) {
        self.ended = Some(status);
    }

    /// Notes where the arena has room for the whole packet.
    pub fn place_whole(&mut self, at: usize) {
        // Within the arena.
        self.whole_at = at as u32;
    }

    /// The frame that it is, if all of it is private.
    pub fn place(&self) -> FramePlace {
        FramePlace { at: self.at(), meta: FrameMeta { len: self.len(), offload: self.offload } }
    }

    /// A packet of these slots, of which nothing else is known yet.
    pub(super) fn at_slots(first: usize, end: usize) -> Self {
        Self {
            what: What::Packet,
            // A ring's.
            slots: (first as u16, end as u16),
            fragments: (0, 0),
            pieces: (0, 0),
            at: 0,
            whole_at: 0,
            len: 0,
            offload: Offload::default(),
            price: 0,
            ended: None,
        }
    }

    /// Notes what the packet's slots say, and adds its fragments to the list. `segment` is the
    /// price of a segment, if the sink asks for prices.
    #[inline(always)]
    pub(super) fn describe(
        &mut self,
        packet: &TxPacket<'_>,
        segment: Option<u32>,
        fragments: &mut Vec<TxFragment>,
    ) {
        self.what = packet.multicast.map_or(What::Packet, What::Change);
        (self.len, self.offload) = (packet.len, packet.offload);
        if let Some(segment) = segment {
            self.price = work::price(self.len(), packet.offload.gso, segment);
        }
        // A ring's at most.
        let first = fragments.len() as u16;
        for fragment in packet.fragments() {
            if !fragment.is_empty() {
                fragments.push(fragment);
            }
        }
        self.fragments = (first, fragments.len() as u16);
    }

    /// Finds a place in the arena, from `at` on, for the packet's first `private` bytes, and
    /// lists them to be fetched. Returns where the arena is free behind them.
    #[inline(always)]
    pub(super) fn list(
        &mut self,
        at: usize,
        private: usize,
        fragments: &[TxFragment],
        pieces: &mut Vec<Piece>,
    ) -> usize {
        let own = fragments.get(usize::from(self.fragments.0)..).unwrap_or(&[]);
        let private = self.len().min(private);
        // Heads have the same place whatever comes behind them.
        let lead = if private > HEAD { lead(own).unwrap_or(0).min(private) } else { 0 };
        let at = place(at, lead, private);
        let (first, mut end) = (pieces.len(), at);
        for &TxFragment { gref, offset, size, .. } in own {
            // At most a page.
            let size = usize::from(size).min(at + private - end) as u16;
            if size == 0 {
                break;
            }
            pieces.push(Piece::new(gref, offset, size, end));
            end += usize::from(size);
        }
        // Pieces are a ring's at most, and the arena is small.
        (self.pieces, self.at) = ((first as u16, pieces.len() as u16), at as u32);
        end.next_multiple_of(64)
    }

    /// Returns true if the packet is large and longer than `in_place`: its rest stays in the
    /// guest's pages.
    pub fn stays(&self, in_place: usize) -> bool {
        self.len() > in_place && self.offload.gso.is_some()
    }

    /// Finds a place in the arena, from `at` on, for the whole packet, and lists its head to be
    /// fetched there. Returns where the arena is free behind the packet.
    pub(super) fn list_head(
        &mut self,
        at: usize,
        fragments: &[TxFragment],
        pieces: &mut Vec<Piece>,
    ) -> usize {
        let own = fragments.get(usize::from(self.fragments.0)..).unwrap_or(&[]);
        let at = place(at, lead(own).unwrap_or(0).min(self.len()), self.len());
        self.list(at, HEAD, fragments, pieces);
        (at + self.len()).next_multiple_of(64)
    }

    /// Returns true if all pieces of the packet were fetched.
    pub(super) fn is_here(&self, pieces: &[Piece]) -> bool {
        let (first, end) = self.pieces;
        let own = pieces.get(first.into()..end.into()).unwrap_or(&[]);
        own.iter().all(|piece| piece.status.is_okay())
    }
}

/// Returns the bytes of a packet before the first fragment that fills a page of the guest, or
/// `None` if there is no such fragment.
pub(super) fn lead(fragments: &[TxFragment]) -> Option<usize> {
    let mut before = 0;
    for fragment in fragments {
        if usize::from(fragment.size) == PAGE_SIZE {
            return Some(before);
        }
        before += usize::from(fragment.size);
    }
    None
}
