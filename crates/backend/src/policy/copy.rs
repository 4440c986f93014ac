//! The copy policy: every slot by grant copy, both ways, in one batch a turn.

use super::{Cross, Piece, Policy};
use grantway_hypervisor::{CopyOp, CopySide, DomId, Error, GrantRef, Platform};
use std::sync::Arc;

/// Grant copy for every slot, as stock netback does for guest receive.
pub struct Copy {
    platform: Arc<dyn Platform>,
    guest: DomId,
    ops: Vec<CopyOp>,
}

impl Copy {
    /// Copies from and to pages that `guest` granted.
    #[must_use]
    pub fn new(platform: Arc<dyn Platform>, guest: DomId) -> Self {
        Self { platform, guest, ops: Vec::with_capacity(256) }
    }

    fn run(&mut self, pieces: &mut [Piece], arena: &mut [u8], fetch: bool) -> Result<(), Error> {
        self.ops.clear();
        self.ops.extend(pieces.iter().map(|piece| {
            let local = CopySide::Local { offset: piece.at };
            let foreign =
                CopySide::Foreign { domain: self.guest, gref: piece.gref, offset: piece.offset };
            let (source, dest) = if fetch { (foreign, local) } else { (local, foreign) };
            CopyOp::new(source, dest, piece.len)
        }));
        if self.ops.is_empty() {
            return Ok(());
        }
        self.platform.copy(arena, &mut self.ops)?;
        for (piece, op) in pieces.iter_mut().zip(&self.ops) {
            piece.status = op.status;
        }
        Ok(())
    }
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

    fn side(&self, gref: GrantRef, offset: u16) -> CopySide {
        CopySide::Foreign { domain: self.guest, gref, offset }
    }

    fn cross(&mut self, sender: &dyn Policy, crosses: &mut [Cross]) -> Result<(), Error> {
        self.ops.clear();
        for Cross { from, to, len, .. } in crosses.iter() {
            let (source, dest) = (sender.side(from.0, from.1), self.side(to.0, to.1));
            self.ops.push(CopyOp::new(source, dest, *len));
        }
        self.platform.copy(&mut [], &mut self.ops)?;
        for (cross, op) in crosses.iter_mut().zip(&self.ops) {
            cross.status = op.status;
        }
        Ok(())
    }
}
