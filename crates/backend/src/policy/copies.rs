//! Grant copies: the way of a queue's bytes for pages that are not mapped, in one batch for a list.

use super::table::{GrefTable, Mapping};
use super::{Grants, Piece};
use crate::layout::BURST;
use crate::state::stats::VifStats;
use grantway_hypervisor::{Access, CopyOp, CopySide, Error, GrantRef, GrantStatus};
use std::mem::take;

/// Meaning of a page that is mapped for reading, if the guest posts it to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOnly {
    /// The guest said that the page is not to be written: the packet is an error.
    Refused,
    /// The page was only seen to be read: Xen judges, by a grant copy.
    Copied,
}

/// Direction of pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the guest's pages into the arena.
    Fetch,
    /// From the arena into the guest's pages.
    Store,
}

impl Way {
    /// Returns true if a page that is mapped with this access can be used.
    #[inline(always)]
    pub(super) fn may(self, access: Access) -> bool {
        self == Self::Fetch || access == Access::ReadWrite
    }

    /// Returns the access for which the guest's page is used.
    pub(super) fn access(self) -> Access {
        match self {
            Self::Fetch => Access::ReadOnly,
            Self::Store => Access::ReadWrite,
        }
    }
}

/// The grant copies of a queue: those of one call, in lists that keep their room.
#[derive(Debug)]
pub(crate) struct Copies {
    pub(super) grants: Grants,
    pub(super) read_only: ReadOnly,
    /// Copies of a list that is moved as it is listed, at the numbers of its pieces.
    listed: Box<[CopyOp; BURST]>,
    ops: Vec<CopyOp>,
    /// Number of the piece, or cross, of each of `ops`.
    of: Vec<usize>,
    /// Number of pieces and crosses that found their pages mapped since the last [`Copies::count`].
    pub(super) hits: u64,
    /// Number of those that did not.
    misses: u64,
}

impl Copies {
    pub(super) fn new(grants: Grants, read_only: ReadOnly) -> Self {
        let (ops, of) = (Vec::new(), Vec::new());
        let nowhere = CopySide::Local { offset: 0 };
        let listed = Box::new([CopyOp::new(nowhere, nowhere, 0); BURST]);
        Self { grants, read_only, listed, ops, of, hits: 0, misses: 0 }
    }

    /// Forgets the copies of the last call.
    pub fn begin(&mut self) {
        self.ops.clear();
        self.of.clear();
    }

    pub fn defer(&mut self, number: usize, op: CopyOp) {
        self.ops.push(op);
        self.of.push(number);
    }

    /// Does the deferred copies, in one batch, and calls `set` with the outcome of each.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn run(
        &mut self,
        arena: &mut [u8],
        mut set: impl FnMut(usize, GrantStatus),
    ) -> Result<(), Error> {
        if self.ops.is_empty() {
            return Ok(());
        }
        self.misses += self.ops.len() as u64;
        self.grants.mapper.copy(arena, &mut self.ops)?;
        for (&number, op) in self.of.iter().zip(&self.ops) {
            set(number, op.status);
        }
        Ok(())
    }

    /// Returns the guest's pages that copies of the last call reached.
    pub fn reached(&self) -> impl Iterator<Item = GrantRef> {
        let done = self.ops.iter().filter(|op| op.status.is_okay());
        done.flat_map(|op| [op.source, op.dest]).filter_map(|side| match side {
            CopySide::Foreign { gref, .. } => Some(gref),
            CopySide::Local { .. } => None,
        })
    }

    /// Adds the number of pieces and crosses that found all pages mapped, and of those that did
    /// not, to the vif's counters.
    pub fn count(&mut self, stats: &VifStats) {
        VifStats::add(&stats.mapped_hits, take(&mut self.hits));
        VifStats::add(&stats.mapped_misses, take(&mut self.misses));
    }

    /// Defers the grant copy of a piece whose page is not mapped, or not for this access.
    ///
    /// # Errors
    ///
    /// The guest said that the page is not to be used in this way.
    #[inline]
    pub(super) fn take(
        &mut self,
        table: &GrefTable,
        number: usize,
        piece: &Piece,
        way: Way,
    ) -> Result<(), GrantStatus> {
        let refuses = |found: &Mapping| !way.may(found.access);
        if self.read_only == ReadOnly::Refused && table.peek(piece.gref).is_some_and(refuses) {
            return Err(GrantStatus::PERMISSION_DENIED);
        }
        self.defer(number, self.grants.copy(piece, way));
        Ok(())
    }

    /// Lists the grant copy of the piece with this number, for a list of which all pieces are
    /// copied. Returns true, always.
    #[inline(always)]
    pub fn list(&mut self, number: usize, way: Way, piece: Piece) -> bool {
        if let Some(place) = self.listed.get_mut(number) {
            *place = self.grants.copy(&piece, way);
        }
        true
    }

    /// Does the grant copies of a list that [`Copies::list`] filled, of `pieces` pieces, a burst at
    /// most. Returns the bits of the pieces that could not be copied, by number.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub(super) fn finish(&mut self, pieces: usize, arena: &mut [u8]) -> Result<u64, Error> {
        let Some(ops) = self.listed.get_mut(..pieces) else { return Ok(u64::MAX) };
        self.grants.mapper.copy(arena, ops)?;
        let mut failed = 0;
        for (number, op) in ops.iter().enumerate() {
            if !op.status.is_okay() {
                failed |= 1 << number;
            }
        }
        Ok(failed)
    }

    /// Moves all pieces by grant copy, and sets the status of each.
    ///
    /// # Errors
    ///
    /// The errors of [`Copies::finish`].
    pub(super) fn carry(
        &mut self,
        way: Way,
        pieces: &mut [Piece],
        arena: &mut [u8],
    ) -> Result<(), Error> {
        let Self { grants, ops, .. } = self;
        ops.extend(pieces.iter().map(|piece| grants.copy(piece, way)));
        if !ops.is_empty() {
            grants.mapper.copy(arena, ops)?;
        }
        pieces.iter_mut().zip(ops).for_each(|(piece, op)| piece.status = op.status);
        Ok(())
    }
}
