//! The buffers of a queue under each policy, and the calls that a turn makes to them.

use super::copies::{Copies, ReadOnly, Way};
use super::near::{Near, Pages};
use super::persistent::Persistent;
use super::staging::Staging;
use super::table::GrefTable;
use super::{Cross, Grants, Piece, Quota, Side, StagedQueue};
use crate::state::stats::VifStats;
use grantway_hypervisor::{Access, CopyOp, DomId, Error, GrantRef, GrantStatus, Mapper};
use std::sync::Arc;
use std::time::Instant;

/// Buffers of one queue, in both directions. The queue owns them.
#[derive(Debug)]
pub struct Buffers {
    copies: Copies,
    kept: Kept,
}

/// Pages that stay mapped from one packet to the next.
#[derive(Debug)]
enum Kept {
    /// No pages: each piece uses grant copy (the policies copy and map).
    Nothing,
    /// Pages that were used before (seed 000).
    Seen(Persistent),
    /// Pages that the frontend listed (seed 004).
    Listed(Staging),
}

/// Mover of the pieces of a list, while they are listed.
pub(crate) enum Moving<'a> {
    /// The processor, for pieces of pages that are mapped.
    Near(Near<'a>),
    /// Grant copies for all pieces, at the end of the list.
    Copies(&'a mut Copies),
}

impl Kept {
    /// Returns the pages that are mapped in this turn, or `None` if the policy keeps none mapped.
    #[inline(always)]
    fn table(&mut self) -> Option<&mut GrefTable> {
        match self {
            Self::Nothing => None,
            Self::Seen(persistent) => Some(persistent.table()),
            Self::Listed(staging) => Some(staging.table()),
        }
    }
}

impl Buffers {
    /// Returns buffers that use grant copy for each slot of pages that `guest` granted. Stock
    /// netback does the same for guest receive.
    #[must_use]
    pub fn copy(mapper: Arc<dyn Mapper>, guest: DomId) -> Self {
        let copies = Copies::new(Grants { mapper, guest }, ReadOnly::Copied);
        Self { copies, kept: Kept::Nothing }
    }

    /// Returns buffers of the policy persistent, without mapped pages. Pages that are mapped later
    /// count against `quota`, which the queues of a vif share.
    #[must_use]
    pub fn persistent(mapper: Arc<dyn Mapper>, guest: DomId, quota: Arc<Quota>) -> Self {
        let grants = Grants { mapper, guest };
        let kept = Kept::Seen(Persistent::new(grants.clone(), quota));
        Self { copies: Copies::new(grants, ReadOnly::Copied), kept }
    }

    /// Returns buffers of the policy staging. `queue` has the staged pages.
    #[must_use]
    pub fn staging(mapper: Arc<dyn Mapper>, guest: DomId, queue: &StagedQueue) -> Self {
        let copies = Copies::new(Grants { mapper, guest }, ReadOnly::Refused);
        Self { copies, kept: Kept::Listed(Staging::new(queue)) }
    }

    /// Returns true if pages stay mapped from one packet to the next.
    pub(crate) fn keeps_pages(&self) -> bool {
        !matches!(self.kept, Kept::Nothing)
    }

    /// Returns the pages that are mapped in this turn, or `None` if the policy keeps none mapped.
    pub(crate) fn pages(&mut self) -> Option<Pages<'_>> {
        self.kept.table().map(|table| Pages::new(table))
    }

    /// Prefetches bytes that are likely to be read next, if their page is mapped.
    #[inline]
    pub(crate) fn expect(&mut self, gref: GrantRef, offset: u16) {
        let mapping = self.kept.table().and_then(|table| table.peek(gref));
        if let Some(mapping) = mapping {
            mapping.page.prefetch(offset.into());
        }
    }

    /// Counts pieces whose pages were mapped, and that another function moved.
    pub(crate) fn found(&mut self, pieces: usize) {
        self.copies.hits += pieces as u64;
    }

    /// Begins a list of pieces, a burst at most, which [`Buffers::finish`] ends. Returns the mover
    /// of its pieces.
    #[inline(always)]
    pub(crate) fn begin(&mut self, way: Way) -> Moving<'_> {
        let Self { copies, kept } = self;
        match kept.table() {
            Some(table) => Moving::Near(Near::new(table, way)),
            None => Moving::Copies(copies),
        }
    }

    /// Ends a list of `pieces` pieces. The bits of `left` name the pieces that are still to be
    /// moved, by their numbers. Returns the bits of the pieces that could not be moved.
    ///
    /// # Errors
    ///
    /// No piece could be attempted: the platform is gone.
    #[inline(always)]
    pub(crate) fn finish(
        &mut self,
        way: Way,
        (pieces, left): (usize, u64),
        arena: &mut [u8],
        piece: impl Fn(usize) -> Piece,
    ) -> Result<u64, Error> {
        if let Kept::Nothing = self.kept {
            return self.copies.finish(pieces, arena);
        }
        self.copies.hits += pieces as u64;
        if left == 0 {
            return Ok(0);
        }
        // Not before: the target's baseline has no instruction for it.
        self.copies.hits -= u64::from(left.count_ones());
        self.copies.begin();
        let (mut rest, mut failed) = (left, 0);
        while rest != 0 {
            let number = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let Some(table) = self.kept.table() else { break };
            if self.copies.take(table, number, &piece(number), way).is_err() {
                failed |= 1 << number;
            }
        }
        self.run(way, arena, |number, status| {
            failed |= u64::from(!status.is_okay()) << number;
        })?;
        Ok(failed)
    }

    fn carry(&mut self, way: Way, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        let Self { copies, kept } = self;
        copies.begin();
        let Some(table) = kept.table() else { return copies.carry(way, pieces, arena) };
        // The processor moves the pieces that are mapped; the others go in one batch.
        let mut near = Near::new(table, way);
        for (number, piece) in pieces.iter_mut().enumerate() {
            if near.moves(*piece, arena) {
                piece.status = GrantStatus::OKAY;
                copies.hits += 1;
            } else if let Err(status) = copies.take(table, number, piece, way) {
                piece.status = status;
            }
        }
        self.run(way, arena, |number, status| pieces[number].status = status)
    }

    /// Carries out the grant copies of a list, and calls `set` with the outcome of each.
    fn run(
        &mut self,
        way: Way,
        arena: &mut [u8],
        set: impl FnMut(usize, GrantStatus),
    ) -> Result<(), Error> {
        self.copies.run(arena, set)?;
        if let Kept::Seen(persistent) = &mut self.kept {
            self.copies.reached().for_each(|gref| persistent.sights(gref, way.access()));
        }
        Ok(())
    }

    /// Copies each piece from the guest's page into the arena, for guest transmit, and sets its
    /// status.
    ///
    /// # Errors
    ///
    /// No piece could be attempted: the platform is gone.
    /// Nothing at all could be attempted: the platform is gone.
    pub fn fetch(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        self.carry(Way::Fetch, pieces, arena)
    }

    /// Copies each piece from the arena into the guest's page, for guest receive, and sets its
    /// status.
    ///
    /// # Errors
    ///
    /// The errors of [`Buffers::fetch`].
    pub fn store(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        self.carry(Way::Store, pieces, arena)
    }

    /// Returns the place from which a copy to another guest reads this guest's page.
    #[inline]
    pub fn side(&mut self, gref: GrantRef, offset: u16) -> Side<'_> {
        let grant = self.copies.grants.place(gref, offset);
        let mapping = self.kept.table().and_then(|table| table.find(gref));
        Side { grant, mapped: mapping.map(|mapping| (&mapping.page, offset)) }
    }

    /// Copies each part from the sender's page into this guest's page, and sets its status. These
    /// bytes are never read here.
    ///
    /// # Errors
    ///
    /// The errors of [`Buffers::fetch`].
    pub fn cross(&mut self, sender: &mut Self, crosses: &mut [Cross]) -> Result<(), Error> {
        let Self { copies, kept } = self;
        copies.begin();
        for (number, cross) in crosses.iter_mut().enumerate() {
            let Cross { from, to, len, .. } = *cross;
            let target = kept.table().and_then(|table| table.find(to.0));
            // A page that the guest listed as read-only is refused, and is not left to Xen.
            let writable = target.filter(|found| Way::Store.may(found.access));
            if target.is_some() && writable.is_none() && copies.read_only == ReadOnly::Refused {
                cross.status = GrantStatus::PERMISSION_DENIED;
                continue;
            }
            let side = sender.side(from.0, from.1);
            // The processor copies if both pages are mapped.
            if let (Some(target), Some((source, at))) = (writable, side.mapped) {
                copies.hits += 1;
                let (to, at) = (to.1.into(), at.into());
                cross.status = match target.page.copy_from_page(to, source, at, len.into()) {
                    Ok(()) => GrantStatus::OKAY,
                    Err(_) => GrantStatus::BAD_COPY_ARG,
                };
                continue;
            }
            // Otherwise Xen copies, in one batch. A page that such a copy reached is worth mapping.
            let dest = copies.grants.place(to.0, to.1);
            copies.defer(number, CopyOp::new(side.grant, dest, len));
        }
        copies.run(&mut [], |number, status| {
            let cross = &mut crosses[number];
            cross.status = status;
            if status.is_okay() {
                sender.kept.sights(cross.from.0, Access::ReadOnly);
                kept.sights(cross.to.0, Access::ReadWrite);
            }
        })
    }

    /// Ends the queue's turn, or the turn of another queue that sent packets to this one: no page
    /// is in use any longer. `idle` is true if nothing moved. Returns the time of the next work if
    /// no packets come.
    #[inline]
    pub fn end_turn(
        &mut self,
        idle: bool,
        now: &dyn Fn() -> Instant,
        stats: &VifStats,
    ) -> Option<Instant> {
        let call_at = self.end_one_turn(idle, now, stats);
        self.pause();
        call_at
    }

    /// Ends a turn as [`Buffers::end_turn`] does. Another turn follows, or [`Buffers::pause`].
    #[inline]
    pub(crate) fn end_one_turn(
        &mut self,
        idle: bool,
        now: &dyn Fn() -> Instant,
        stats: &VifStats,
    ) -> Option<Instant> {
        match &mut self.kept {
            Kept::Nothing => None,
            Kept::Seen(persistent) => {
                self.copies.count(stats);
                persistent.end_turn(idle, now, stats)
            }
            Kept::Listed(staging) => {
                self.copies.count(stats);
                staging.end_turn();
                None
            }
        }
    }

    /// Allows changes of the frontend's lists until the next turn.
    #[inline]
    pub(crate) fn pause(&mut self) {
        if let Kept::Listed(staging) = &mut self.kept {
            staging.pause();
        }
    }
}

impl Kept {
    /// Notes that a grant copy used a page that was not mapped for this access.
    fn sights(&mut self, gref: GrantRef, access: Access) {
        if let Self::Seen(persistent) = self {
            persistent.sights(gref, access);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Mapping;
    use super::*;
    use grantway_ring::{PAGE_SIZE, SharedRun};

    /// Maps and copies nothing.
    struct Nobody;

    impl Mapper for Nobody {
        fn map(&self, _: DomId, _: &[GrantRef], _: Access) -> Result<SharedRun, Error> {
            panic!("a page was mapped")
        }

        fn copy(&self, _: &mut [u8], _: &mut [CopyOp]) -> Result<(), Error> {
            panic!("a page was copied")
        }
    }

    #[test]
    fn a_prefetched_page_does_not_count_as_used() {
        const GREF: GrantRef = GrantRef(50);
        const NOW: u32 = 7;
        let mut buffers = Buffers::persistent(Arc::new(Nobody), DomId(9), Quota::new(8));
        let page = SharedRun::private(1).page(0).unwrap();
        page.write(0, &[3; PAGE_SIZE]).unwrap();
        let table = buffers.kept.table().unwrap();
        assert!(table.insert(GREF, Mapping::new(page, Access::ReadOnly, 0, 0)).is_ok());
        table.stamp = NOW;
        let used =
            |buffers: &mut Buffers| buffers.kept.table().unwrap().peek(GREF).unwrap().used.get();
        // A guest may have named any offset, and any page.
        for offset in [0, 64, 4095, 4096, u16::MAX] {
            for gref in [GREF, GrantRef(0), GrantRef(51), GrantRef(u32::MAX)] {
                buffers.expect(gref, offset);
            }
        }
        assert_eq!(used(&mut buffers), 0);
        let mut pieces = [Piece::new(GREF.0, 0, 64, 0)];
        let mut arena = [0; 64];
        buffers.fetch(&mut pieces, &mut arena).unwrap();
        assert_eq!((used(&mut buffers), arena), (NOW, [3; 64]));
        // Without pages that stay mapped nothing is expected.
        Buffers::copy(Arc::new(Nobody), DomId(9)).expect(GREF, 0);
    }
}
