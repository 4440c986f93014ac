//! Moves bytes between guests' pages, some of which are mapped: with the
//! processor where they are, by grant copy where they are not.

use super::table::GrefTable;
use super::{Cross, Piece, Policy};
use grantway_hypervisor::{Access, CopyOp, CopySide, DomId, Error, GrantRef, GrantStatus, Mapper};
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
    /// Of each piece: where the table has its page. All are looked up before the
    /// first byte is copied: while a copy waits for lines that the guest has, little
    /// else is written, and more of them are under way at once.
    places: Vec<u16>,
    /// What found its page mapped, since the last [`Mixed::take_counts`].
    hits: u64,
    misses: u64,
}

/// In place of a page that is not mapped, or is not to be used.
const ELSEWHERE: u16 = u16::MAX;

/// A page to be written.
enum Target {
    /// Where the table has it.
    Mapped(u16),
    Granted,
    Refused,
}

impl Mixed {
    pub fn new(mapper: Arc<dyn Mapper>, guest: DomId, read_only: ReadOnly) -> Self {
        let (ops, of) = (Vec::with_capacity(256), Vec::with_capacity(256));
        let places = Vec::with_capacity(256);
        Self { mapper, guest, read_only, ops, of, places, hits: 0, misses: 0 }
    }

    /// Maps pages of the guest as one run.
    pub fn mapper(&self) -> (&dyn Mapper, DomId) {
        (self.mapper.as_ref(), self.guest)
    }

    pub fn foreign(&self, gref: GrantRef, offset: u16) -> CopySide {
        CopySide::Foreign { domain: self.guest, gref, offset }
    }

    pub fn fetch(
        &mut self,
        table: &mut GrefTable,
        pieces: &mut [Piece],
        arena: &mut [u8],
    ) -> Result<(), Error> {
        self.begin();
        let mut found = 0;
        let places = pieces.iter_mut().map(|piece| {
            let place = table.place(piece.gref);
            found += usize::from(place.is_some());
            piece.status = GrantStatus::OKAY;
            place.unwrap_or(ELSEWHERE)
        });
        self.places.extend(places);
        for (piece, &place) in pieces.iter_mut().zip(&self.places) {
            let Some(page) = table.page(place) else { continue };
            let at = piece.at as usize;
            let Some(bytes) = arena.get_mut(at..at + usize::from(piece.len)) else {
                piece.status = GrantStatus::BAD_VIRT_ADDR;
                continue;
            };
            if page.read(piece.offset.into(), bytes).is_err() {
                piece.status = GrantStatus::BAD_COPY_ARG;
            }
        }
        self.hits += found as u64;
        if found < pieces.len() {
            for (number, piece) in pieces.iter().enumerate() {
                if self.places[number] == ELSEWHERE {
                    let local = CopySide::Local { offset: piece.at };
                    let foreign = self.foreign(piece.gref, piece.offset);
                    self.defer(number, CopyOp::new(foreign, local, piece.len));
                }
            }
        }
        self.copy(arena, |number, status| pieces[number].status = status)
    }

    pub fn store(
        &mut self,
        table: &mut GrefTable,
        pieces: &mut [Piece],
        arena: &mut [u8],
    ) -> Result<(), Error> {
        self.begin();
        let read_only = self.read_only;
        let mut found = 0;
        let places = pieces.iter_mut().map(|piece| {
            let target = target(table, piece.gref, read_only);
            piece.status = match target {
                Target::Refused => GrantStatus::PERMISSION_DENIED,
                _ => GrantStatus::OKAY,
            };
            found += usize::from(matches!(target, Target::Mapped(_)));
            if let Target::Mapped(place) = target { place } else { ELSEWHERE }
        });
        self.places.extend(places);
        for (piece, &place) in pieces.iter_mut().zip(&self.places) {
            let Some(page) = table.page(place) else { continue };
            let at = piece.at as usize;
            let Some(bytes) = arena.get(at..at + usize::from(piece.len)) else {
                piece.status = GrantStatus::BAD_VIRT_ADDR;
                continue;
            };
            if page.write(piece.offset.into(), bytes).is_err() {
                piece.status = GrantStatus::BAD_COPY_ARG;
            }
        }
        self.hits += found as u64;
        if found < pieces.len() {
            for (number, piece) in pieces.iter().enumerate() {
                if self.places[number] == ELSEWHERE && piece.status.is_okay() {
                    let local = CopySide::Local { offset: piece.at };
                    let foreign = self.foreign(piece.gref, piece.offset);
                    self.defer(number, CopyOp::new(local, foreign, piece.len));
                }
            }
        }
        self.copy(arena, |number, status| pieces[number].status = status)
    }

    pub fn cross(
        &mut self,
        table: &mut GrefTable,
        sender: &mut dyn Policy,
        crosses: &mut [Cross],
    ) -> Result<(), Error> {
        self.begin();
        for (number, cross) in crosses.iter_mut().enumerate() {
            let Cross { from, to, len, .. } = *cross;
            let target = match target(table, to.0, self.read_only) {
                Target::Refused => {
                    cross.status = GrantStatus::PERMISSION_DENIED;
                    continue;
                }
                Target::Mapped(place) => table.page(place),
                Target::Granted => None,
            };
            let side = sender.side(from.0, from.1);
            if let (Some(target), Some((source, at))) = (target, side.mapped) {
                self.hits += 1;
                let (to, at) = (to.1.into(), at.into());
                cross.status = status(target.copy_from_page(to, source, at, len.into()));
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
        self.places.clear();
    }

    fn defer(&mut self, number: usize, op: CopyOp) {
        self.misses += 1;
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
        self.mapper.copy(arena, &mut self.ops)?;
        for (&number, op) in self.of.iter().zip(&self.ops) {
            set(number, op.status);
        }
        Ok(())
    }
}

#[inline]
fn target(table: &mut GrefTable, gref: GrantRef, read_only: ReadOnly) -> Target {
    let Some(place) = table.place(gref) else { return Target::Granted };
    match table.access(place) {
        Some(Access::ReadWrite) => Target::Mapped(place),
        Some(_) if read_only == ReadOnly::Refused => Target::Refused,
        _ => Target::Granted,
    }
}

fn status(copied: Result<(), grantway_ring::OutOfPage>) -> GrantStatus {
    match copied {
        Ok(()) => GrantStatus::OKAY,
        Err(_) => GrantStatus::BAD_COPY_ARG,
    }
}
