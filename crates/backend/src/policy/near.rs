//! The pages of a guest that are mapped: the processor moves bytes to and from them.

use super::Piece;
use super::copies::Way;
use super::table::GrefTable;
use grantway_hypervisor::GrantRef;
use grantway_ring::{SharedPage, VolatileSlice};

/// The mapped pages of a queue, to be named in a system call of this turn. None of them is unmapped
/// before the turn's end.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'a>(&'a GrefTable);

impl<'a> Pages<'a> {
    pub(super) fn new(table: &'a GrefTable) -> Self {
        Self(table)
    }

    /// Returns bytes of a mapped page, to be read, or `None` if the page is not mapped.
    #[inline]
    pub fn to_read(self, gref: GrantRef, offset: u16, len: u16) -> Option<VolatileSlice<'a>> {
        VolatileSlice::new(&self.0.find(gref)?.page, offset, len).ok()
    }
}

/// The mapped pages of a queue, as a turn looks them up.
pub(crate) struct Near<'a> {
    table: &'a GrefTable,
    /// Direction of all pieces.
    way: Way,
    /// Reference of the last page: small buffers share one, and the buffers of a burst lie side by
    /// side. No page has the reference 0.
    gref: GrantRef,
    page: Option<&'a SharedPage>,
}

impl<'a> Near<'a> {
    #[inline(always)]
    pub(super) fn new(table: &'a GrefTable, way: Way) -> Self {
        Self { table, way, gref: GrantRef(0), page: None }
    }

    /// Finds a page, if it is mapped for this direction.
    #[inline(always)]
    fn page(&mut self, gref: GrantRef) -> Option<&'a SharedPage> {
        if gref != self.gref {
            self.gref = gref;
            let mapping = self.table.find_for(gref, self.way);
            self.page = mapping.map(|mapping| &mapping.page);
        }
        self.page
    }

    /// Has the bytes at a place fetched, which are likely to be read next.
    #[inline(always)]
    pub fn expect(&mut self, gref: GrantRef, offset: u16) {
        if let Some(page) = self.page(gref) {
            page.prefetch(offset.into());
        }
    }

    /// Moves a piece if its page is mapped for that, and returns whether it did. All others are
    /// left to grant copies, which say why one cannot be moved at all.
    #[inline(always)]
    pub fn moves(&mut self, piece: Piece, arena: &mut [u8]) -> bool {
        let Some(page) = self.page(piece.gref) else { return false };
        let (at, offset) = (piece.at as usize, piece.offset.into());
        let Some(bytes) = arena.get_mut(at..at + usize::from(piece.len)) else { return false };
        match self.way {
            Way::Fetch => page.read(offset, bytes),
            Way::Store => page.write(offset, bytes),
        }
        .is_ok()
    }
}
