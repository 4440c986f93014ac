//! A packet on its way, whose first bytes are private, and the rest still in the pages of its
//! guest; and how that rest is brought into private memory.

use crate::VifError;
use crate::policy::{Buffers, Piece};
use crate::turn::taken::{Taken, lead};
use grantway_netif::Offload;
use grantway_netif::slots::tx::TxFragment;
use std::ops::Range;
use std::slice;

/// A packet whose first bytes are private, and the rest still in its guest's pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    taken: &'a Taken,
    /// All bytes of the packet in the guest's pages.
    fragments: &'a [TxFragment],
    /// Number of the packet in the turn.
    number: usize,
    /// Number of its bytes that are private.
    private: usize,
}

impl<'a> Outgoing<'a> {
    /// A packet of the turn, by its number, of which at most `private` bytes are.
    pub(super) fn new(
        (number, taken): (usize, &'a Taken),
        fragments: &'a [TxFragment],
        private: usize,
    ) -> Self {
        Self { taken, fragments, number, private: taken.len().min(private) }
    }

    /// Returns the number of the packet in the turn.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the length of the packet in bytes.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Returns true if its rest stays in the guest's pages; see [`Taken::stays`].
    pub fn stays(&self, in_place: usize) -> bool {
        self.taken.stays(in_place)
    }

    /// Returns the number of its bytes that are private.
    pub fn private(&self) -> usize {
        self.private
    }

    /// Returns the start of its private bytes in the arena.
    pub fn at(&self) -> usize {
        self.taken.at()
    }

    /// Returns the start of the arena's room for the whole packet.
    pub fn whole_at(&self) -> usize {
        self.taken.whole_at()
    }

    pub fn offload(&self) -> Offload {
        self.taken.offload()
    }

    /// Returns the private bytes of the packet.
    pub fn head<'b>(&self, arena: &'b [u8]) -> &'b [u8] {
        &arena[self.at()..self.at() + self.private]
    }

    /// Returns the bytes before the first fragment that fills a page; see [`lead`].
    pub fn lead(&self) -> Option<usize> {
        lead(self.fragments)
    }

    /// Returns the bytes that are still in the guest's pages.
    pub fn rest(&self) -> Rest<'a> {
        Rest::behind(self.fragments, self.private)
    }
}

/// The part of a packet that is still in its guest's pages, fragment by fragment.
pub(crate) struct Rest<'a> {
    /// Remainder of the fragment that is being taken.
    fragment: Option<TxFragment>,
    later: slice::Iter<'a, TxFragment>,
}

impl<'a> Rest<'a> {
    /// Skips the first `private` bytes. Returns the bytes behind them.
    fn behind(fragments: &'a [TxFragment], mut private: usize) -> Self {
        let mut rest = Self { fragment: None, later: fragments.iter() };
        while private > 0
            && let Some(fragment) = rest.take(private)
        {
            private -= usize::from(fragment.size);
        }
        rest
    }

    /// Takes the next bytes, `most` at most, in one page. Returns `None` at the end.
    pub fn take(&mut self, most: usize) -> Option<TxFragment> {
        let fragment = match self.fragment.take() {
            Some(fragment) => fragment,
            None => *self.later.next()?,
        };
        // At most a page, as the fragment is.
        let size = usize::from(fragment.size).min(most) as u16;
        let left = fragment.size - size;
        if left > 0 {
            let offset = fragment.offset + size;
            self.fragment = Some(TxFragment { offset, size: left, ..fragment });
        }
        Some(TxFragment { size, ..fragment })
    }
}

/// Packets that are brought into private memory, all of each, many at once.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    pieces: Vec<Piece>,
    /// Owner of each piece, by the caller's numbers.
    of: Vec<usize>,
}

impl Gather {
    /// Copies bytes of a packet to `at`. Private bytes are copied at once, and others are listed to
    /// be fetched for `owner`. Returns the end of the bytes.
    pub fn add(
        &mut self,
        owner: usize,
        packet: &Outgoing<'_>,
        bytes: Range<usize>,
        at: usize,
        arena: &mut [u8],
    ) -> usize {
        let private = packet.private().min(bytes.end);
        let from = packet.at() + bytes.start.min(private);
        arena.copy_within(from..packet.at() + private, at);
        let (mut end, mut left) = (at + packet.at() + private - from, bytes.end - private);
        let mut rest = packet.rest();
        while left > 0
            && let Some(TxFragment { gref, offset, size, .. }) = rest.take(left)
        {
            self.pieces.push(Piece::new(gref, offset, size, end));
            self.of.push(owner);
            end += usize::from(size);
            left -= usize::from(size);
        }
        end
    }

    /// Pieces that are listed.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Fetches all that is listed, and forgets it. Calls `missed` with the owner of each piece that
    /// could not be read.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn fetch(
        &mut self,
        buffers: &mut Buffers,
        arena: &mut [u8],
        mut missed: impl FnMut(usize),
    ) -> Result<(), VifError> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        let fetched = buffers.fetch(&mut self.pieces, arena);
        for (piece, &owner) in self.pieces.iter().zip(&self.of) {
            if !piece.status.is_okay() {
                missed(owner);
            }
        }
        self.pieces.clear();
        self.of.clear();
        Ok(fetched?)
    }
}
