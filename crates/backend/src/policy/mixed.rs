//! Moves bytes between guests' pages, some of which are mapped: with the
//! processor where they are, by grant copy where they are not.

use super::table::GrefTable;
use super::{Cross, Piece, Policy, RxPlain, Take, TxPlain};
use grantway_hypervisor::{Access, CopyOp, CopySide, DomId, Error, GrantRef, GrantStatus, Mapper};
use grantway_ring::SharedPage;
use std::sync::Arc;

/// What a page that is mapped for reading means where the guest posts it to be
/// written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOnly {
    /// The guest said that it is not to be written: the packet is an error.
    Refused,
    /// Only that it was seen to be read: Xen judges, by a grant copy.
    Copied,
}

/// One queue's means to move bytes.
pub(super) struct Mixed {
    mapper: Arc<dyn Mapper>,
    guest: DomId,
    read_only: ReadOnly,
    ops: Vec<CopyOp>,
    /// Which piece, or cross, each of `ops` is for.
    of: Vec<usize>,
    /// Pieces of the last call for which no mapped page could be used.
    unmapped: usize,
    /// What found its page mapped, since the last [`Mixed::take_counts`].
    hits: u64,
    misses: u64,
}

/// Where pieces go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Fetch,
    Store,
}

impl Way {
    /// Whether a page that is mapped so can be used.
    #[inline(always)]
    fn may(self, access: Access) -> bool {
        self == Self::Fetch || access == Access::ReadWrite
    }

    /// Brings a piece from or to a page.
    #[inline(always)]
    fn copy(self, page: &SharedPage, piece: Piece, arena: &mut [u8]) -> Result<(), GrantStatus> {
        let (at, offset) = (piece.at as usize, piece.offset.into());
        let bytes = arena.get_mut(at..at + usize::from(piece.len));
        let bytes = bytes.ok_or(GrantStatus::BAD_VIRT_ADDR)?;
        match self {
            Self::Fetch => page.read(offset, bytes),
            Self::Store => page.write(offset, bytes),
        }
        .map_err(|_| GrantStatus::BAD_COPY_ARG)
    }
}

impl Mixed {
    pub fn new(mapper: Arc<dyn Mapper>, guest: DomId, read_only: ReadOnly) -> Self {
        let (ops, of) = (Vec::new(), Vec::new());
        Self { mapper, guest, read_only, ops, of, unmapped: 0, hits: 0, misses: 0 }
    }

    /// Maps pages of the guest as one run.
    pub fn mapper(&self) -> (&dyn Mapper, DomId) {
        (self.mapper.as_ref(), self.guest)
    }

    pub fn foreign(&self, gref: GrantRef, offset: u16) -> CopySide {
        CopySide::Foreign { domain: self.guest, gref, offset }
    }

    /// Begins to move pieces one way.
    #[inline(always)]
    pub fn mover<'a>(
        &'a mut self,
        table: &'a GrefTable,
        arena: &'a mut [u8],
        way: Way,
    ) -> Mover<'a> {
        self.begin();
        Mover { mixed: self, table, arena, way, gref: GrantRef(0), page: None }
    }

    /// What becomes of a piece for which no mapped page can be used: grant copy, unless
    /// the guest said that the page is not to be used so.
    #[cold]
    fn without(
        &mut self,
        table: &GrefTable,
        number: usize,
        (gref, offset): (GrantRef, u16),
        (at, len): (u32, u16),
        way: Way,
    ) -> Result<(), GrantStatus> {
        self.unmapped += 1;
        if self.read_only == ReadOnly::Refused && table.peek(gref).is_some() {
            return Err(GrantStatus::PERMISSION_DENIED);
        }
        let (local, foreign) = (CopySide::Local { offset: at }, self.foreign(gref, offset));
        let op = match way {
            Way::Fetch => CopyOp::new(foreign, local, len),
            Way::Store => CopyOp::new(local, foreign, len),
        };
        self.defer(number, op);
        Ok(())
    }

    /// As [`Policy::fetch`] and [`Policy::store`].
    #[inline(always)]
    pub fn run(
        &mut self,
        table: &GrefTable,
        pieces: &mut [Piece],
        arena: &mut [u8],
        way: Way,
    ) -> Result<(), Error> {
        let mut mover = self.mover(table, arena, way);
        for (number, piece) in pieces.iter_mut().enumerate() {
            piece.status = match mover.run(number, *piece) {
                Ok(()) => GrantStatus::OKAY,
                Err(status) => status,
            };
        }
        mover.finish(pieces.len(), |number, status| pieces[number].status = status)
    }

    /// As [`Policy::fetch_plain`].
    #[inline(always)]
    pub fn fetch_plain(
        &mut self,
        table: &GrefTable,
        slots: &[[u32; 3]],
        plain: &mut TxPlain,
        arena: &mut [u8],
    ) -> Result<bool, Error> {
        let mut mover = self.mover(table, arena, Way::Fetch);
        let listed = plain.list(slots, &mut mover);
        if listed {
            mover.finish(slots.len(), |number, status| {
                if !status.is_okay() {
                    plain.miss(number);
                }
            })?;
        }
        Ok(listed)
    }

    /// As [`Policy::store_plain`].
    #[inline(always)]
    pub fn store_plain(
        &mut self,
        table: &GrefTable,
        plain: &mut RxPlain,
        arena: &mut [u8],
    ) -> Result<bool, Error> {
        let mut mover = self.mover(table, arena, Way::Store);
        let listed = plain.list(&mut mover);
        if listed {
            mover.finish(plain.len(), |number, status| {
                if !status.is_okay() {
                    plain.miss(number);
                }
            })?;
        }
        Ok(listed)
    }

    pub fn cross(
        &mut self,
        table: &GrefTable,
        sender: &mut dyn Policy,
        crosses: &mut [Cross],
    ) -> Result<(), Error> {
        self.begin();
        for (number, cross) in crosses.iter_mut().enumerate() {
            let Cross { from, to, len, .. } = *cross;
            let target = table.find(to.0);
            let writable = target.filter(|found| Way::Store.may(found.access));
            if target.is_some() && writable.is_none() && self.read_only == ReadOnly::Refused {
                cross.status = GrantStatus::PERMISSION_DENIED;
                continue;
            }
            let side = sender.side(from.0, from.1);
            if let (Some(target), Some((source, at))) = (writable, side.mapped) {
                self.hits += 1;
                let (to, at) = (to.1.into(), at.into());
                cross.status = match target.page.copy_from_page(to, source, at, len.into()) {
                    Ok(()) => GrantStatus::OKAY,
                    Err(_) => GrantStatus::BAD_COPY_ARG,
                };
                continue;
            }
            let dest = self.foreign(to.0, to.1);
            self.defer(number, CopyOp::new(side.grant, dest, len));
        }
        self.copy(&mut [], |number, status| {
            let cross = &mut crosses[number];
            cross.status = status;
            if status.is_okay() {
                sender.sighted(cross.from.0);
            }
        })
    }

    /// Which of the last call's pieces or crosses took grant copy.
    pub fn missed(&self) -> &[usize] {
        &self.of
    }

    /// How many pieces and crosses found all pages mapped, and how many did not,
    /// since the last call.
    pub fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.hits), std::mem::take(&mut self.misses))
    }

    fn begin(&mut self) {
        self.ops.clear();
        self.of.clear();
        self.unmapped = 0;
    }

    fn defer(&mut self, number: usize, op: CopyOp) {
        self.ops.push(op);
        self.of.push(number);
    }

    /// What was deferred, in one batch.
    fn copy(
        &mut self,
        arena: &mut [u8],
        mut set: impl FnMut(usize, GrantStatus),
    ) -> Result<(), Error> {
        if self.ops.is_empty() {
            return Ok(());
        }
        self.misses += self.ops.len() as u64;
        self.mapper.copy(arena, &mut self.ops)?;
        for (&number, op) in self.of.iter().zip(&self.ops) {
            set(number, op.status);
        }
        Ok(())
    }
}

/// Moves pieces one after the other.
pub(super) struct Mover<'a> {
    mixed: &'a mut Mixed,
    table: &'a GrefTable,
    arena: &'a mut [u8],
    way: Way,
    /// The last page: small buffers share one, and those of a burst lie side by side.
    /// No page has the reference 0.
    gref: GrantRef,
    page: Option<&'a SharedPage>,
}

impl Take for Mover<'_> {
    #[inline(always)]
    fn take(&mut self, number: usize, piece: Piece) -> bool {
        self.run(number, piece).is_ok()
    }
}

impl Mover<'_> {
    /// Moves a piece, or notes it for grant copy.
    ///
    /// # Errors
    ///
    /// It cannot be moved.
    #[inline(always)]
    fn run(&mut self, number: usize, piece: Piece) -> Result<(), GrantStatus> {
        let Self { table, way, .. } = *self;
        if piece.gref != self.gref {
            self.gref = piece.gref;
            let mapping = table.find(piece.gref).filter(|found| way.may(found.access));
            self.page = mapping.map(|mapping| &mapping.page);
        }
        match self.page {
            Some(page) => way.copy(page, piece, self.arena),
            None => {
                // By value, or every piece would be put in memory for it.
                let Piece { gref, offset, len, at, .. } = piece;
                self.mixed.without(table, number, (gref, offset), (at, len), way)
            }
        }
    }

    /// Copies what was noted, of so many pieces in all, and tells what became of it.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    #[inline(always)]
    pub fn finish(self, pieces: usize, set: impl FnMut(usize, GrantStatus)) -> Result<(), Error> {
        self.mixed.hits += (pieces - self.mixed.unmapped) as u64;
        if self.mixed.ops.is_empty() {
            return Ok(());
        }
        self.mixed.copy(self.arena, set)
    }
}
