//! The copy policy: every slot by grant copy, both ways, in one batch a turn.

use super::{Cross, Piece, Policy, RxPlain, Side, TxPlain};
use grantway_hypervisor::{CopyOp, CopySide, DomId, Error, GrantRef, Mapper};
use std::sync::Arc;

/// Grant copy for every slot, as stock netback does for guest receive.
pub struct Copy {
    mapper: Arc<dyn Mapper>,
    guest: DomId,
    ops: Vec<CopyOp>,
}

impl Copy {
    /// Copies from and to pages that `guest` granted.
    #[must_use]
    pub fn new(mapper: Arc<dyn Mapper>, guest: DomId) -> Self {
        Self { mapper, guest, ops: Vec::new() }
    }

    fn run(&mut self, pieces: &mut [Piece], arena: &mut [u8], fetch: bool) -> Result<(), Error> {
        self.ops.clear();
        self.ops.extend(pieces.iter().map(|piece| op(self.guest, piece, fetch)));
        if self.ops.is_empty() {
            return Ok(());
        }
        self.mapper.copy(arena, &mut self.ops)?;
        for (piece, op) in pieces.iter_mut().zip(&self.ops) {
            piece.status = op.status;
        }
        Ok(())
    }
}

/// The copy of a piece.
#[inline]
fn op(domain: DomId, piece: &Piece, fetch: bool) -> CopyOp {
    let local = CopySide::Local { offset: piece.at };
    let foreign = CopySide::Foreign { domain, gref: piece.gref, offset: piece.offset };
    let (source, dest) = if fetch { (foreign, local) } else { (local, foreign) };
    CopyOp::new(source, dest, piece.len)
}

impl Policy for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn fetch(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        self.run(pieces, arena, true)
    }

    fn store(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        self.run(pieces, arena, false)
    }

    fn fetch_plain(
        &mut self,
        slots: &[[u32; 3]],
        plain: &mut TxPlain,
        arena: &mut [u8],
    ) -> Result<bool, Error> {
        let Self { mapper, guest, ops } = self;
        ops.clear();
        let listed = plain.list(slots, &mut |_, piece: Piece| {
            ops.push(op(*guest, &piece, true));
            true
        });
        if listed {
            mapper.copy(arena, ops)?;
            let failed = ops.iter().enumerate().filter(|(_, op)| !op.status.is_okay());
            failed.for_each(|(number, _)| plain.miss(number));
        }
        Ok(listed)
    }

    fn store_plain(&mut self, plain: &mut RxPlain, arena: &mut [u8]) -> Result<bool, Error> {
        let Self { mapper, guest, ops } = self;
        ops.clear();
        let listed = plain.list(&mut |_, piece: Piece| {
            ops.push(op(*guest, &piece, false));
            true
        });
        if listed {
            mapper.copy(arena, ops)?;
            let failed = ops.iter().enumerate().filter(|(_, op)| !op.status.is_okay());
            failed.for_each(|(number, _)| plain.miss(number));
        }
        Ok(listed)
    }

    fn side(&mut self, gref: GrantRef, offset: u16) -> Side<'_> {
        let grant = CopySide::Foreign { domain: self.guest, gref, offset };
        Side { grant, mapped: None }
    }

    fn cross(&mut self, sender: &mut dyn Policy, crosses: &mut [Cross]) -> Result<(), Error> {
        self.ops.clear();
        for Cross { from, to, len, .. } in crosses.iter() {
            let dest = CopySide::Foreign { domain: self.guest, gref: to.0, offset: to.1 };
            let source = sender.side(from.0, from.1).grant;
            self.ops.push(CopyOp::new(source, dest, *len));
        }
        self.mapper.copy(&mut [], &mut self.ops)?;
        for (cross, op) in crosses.iter_mut().zip(&self.ops) {
            cross.status = op.status;
            if op.status.is_okay() {
                sender.sighted(cross.from.0);
            }
        }
        Ok(())
    }
}
