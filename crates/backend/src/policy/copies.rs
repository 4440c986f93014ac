//! Grant copies: what a queue has for the pages that are not mapped, in one batch for a list.

use super::table::{GrefTable, Mapping};
use super::{Grants, Piece};
use crate::layout::BURST;
use crate::state::stats::VifStats;
use grantway_hypervisor::{Access, CopyOp, CopySide, Error, GrantRef, GrantStatus};
use std::mem::take;

/// What a page that is mapped for reading means where the guest posts it to be
/// written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOnly {
    /// The guest said that it is not to be written: the packet is an error.
    Refused,
    /// Only that it was seen to be read: Xen judges, by a grant copy.
    Copied,
}

/// Where pieces go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the guest's pages into the arena.
    Fetch,
    /// From the arena into the guest's pages.
    Store,
}

impl Way {
    /// Whether a page that is mapped so can be used.
    #[inline(always)]
    pub(super) fn may(self, access: Access) -> bool {
        self == Self::Fetch || access == Access::ReadWrite
    }

    /// What the guest's page is used for.
    pub(super) fn access(self) -> Access {
        match self {
            Self::Fetch => Access::ReadOnly,
            Self::Store => Access::ReadWrite,
        }
    }
}

/// A queue's grant copies: those of one call, in lists that keep their room.
#[derive(Debug)]
pub(crate) struct Copies {
    pub(super) grants: Grants,
    pub(super) read_only: ReadOnly,
    /// Those of a list that is moved as it is listed, at the numbers of its pieces.
    listed: Box<[CopyOp; BURST]>,
    ops: Vec<CopyOp>,
    /// Which piece, or cross, each of `ops` is for.
    of: Vec<usize>,
    /// What found its page mapped, since the last [`Copies::count`], and what did not.
    pub(super) hits: u64,
    misses: u64,
}

impl Copies {
    pub(super) fn new(grants: Grants, read_only: ReadOnly) -> Self {
        let (ops, of) = (Vec::new(), Vec::new());
        let nowhere = CopySide::Local { offset: 0 };
        let listed = Box::new([CopyOp::new(nowhere, nowhere, 0); BURST]);
        Self { grants, read_only, listed, ops, of, hits: 0, misses: 0 }
    }

    /// Forgets the last call's.
    pub fn begin(&mut self) {
        self.ops.clear();
        self.of.clear();
    }

    pub fn defer(&mut self, number: usize, op: CopyOp) {
        self.ops.push(op);
        self.of.push(number);
    }

    /// Does what was deferred, in one batch, and tells what became of each.
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

    /// The guest's pages that those of the last call reached.
    pub fn reached(&self) -> impl Iterator<Item = GrantRef> {
        let done = self.ops.iter().filter(|op| op.status.is_okay());
        done.flat_map(|op| [op.source, op.dest]).filter_map(|side| match side {
            CopySide::Foreign { gref, .. } => Some(gref),
            CopySide::Local { .. } => None,
        })
    }

    /// Adds how many pieces and crosses found all pages mapped, and how many did not, to the
    /// vif's counters.
    pub fn count(&mut self, stats: &VifStats) {
        VifStats::add(&stats.mapped_hits, take(&mut self.hits));
        VifStats::add(&stats.mapped_misses, take(&mut self.misses));
    }

    /// Has a piece moved by grant copy, whose page is not mapped, or not for this.
    ///
    /// # Errors
    ///
    /// The guest said that the page is not to be used so.
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

    /// Has a piece of this number moved by grant copy, of a list of which all are: always
    /// true.
    #[inline(always)]
    pub fn list(&mut self, number: usize, way: Way, piece: Piece) -> bool {
        if let Some(place) = self.listed.get_mut(number) {
            *place = self.grants.copy(&piece, way);
        }
        true
    }

    /// Does the grant copies of such a list, of so many pieces, a burst at most: by number, the
    /// bits of those that could not be done.
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

    /// Moves all of these by grant copy, and sets the status of each.
    ///
    /// # Errors
    ///
    /// As [`Copies::finish`].
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
