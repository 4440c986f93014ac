//! The staging policy (seed 004, control messages 8 to 10): pages that the
//! frontend lists are mapped once, and from then on bytes go in and out by the
//! processor. A slot that names any other page takes grant copy, in the same
//! turn and packet.

mod lease;
mod registry;
mod seam;
mod table;

pub use registry::{Staged, StagedQueue, StagingError};
pub(crate) use seam::StagedTable;
pub(crate) use table::LastingTable;

use super::mixed::{Mixed, ReadOnly, Way};
use super::table::GrefTable;
use super::{Cross, Piece, Policy, RxPlain, Side, TxPlain};
use crate::state::stats::VifStats;
use grantway_hypervisor::{DomId, Error, GrantRef, Mapper};
use lease::Lender;
use std::sync::Arc;
use std::time::Instant;

/// One queue's way to its staged pages.
pub struct Staging {
    mixed: Mixed,
    lender: Arc<Lender>,
    /// The queue's table, from the first look in a turn until its end.
    table: Option<Box<GrefTable>>,
}

impl Staging {
    /// For the queue whose staged pages `queue` has.
    #[must_use]
    pub fn new(mapper: Arc<dyn Mapper>, guest: DomId, queue: &StagedQueue) -> Self {
        let mixed = Mixed::new(mapper, guest, ReadOnly::Refused);
        Self { mixed, lender: queue.lender(), table: None }
    }
}

/// The table, borrowed beside the means to move bytes.
#[inline(always)]
fn lent<'a>(table: &'a mut Option<Box<GrefTable>>, lender: &Lender) -> &'a mut GrefTable {
    match table {
        Some(table) => table,
        None => table.insert(lender.lend()),
    }
}

impl Policy for Staging {
    fn name(&self) -> &'static str {
        "staging"
    }

    fn fetch(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        self.mixed.run(lent(&mut self.table, &self.lender), pieces, arena, Way::Fetch)
    }

    fn store(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        self.mixed.run(lent(&mut self.table, &self.lender), pieces, arena, Way::Store)
    }

    fn fetch_plain(
        &mut self,
        slots: &[[u32; 3]],
        plain: &mut TxPlain,
        arena: &mut [u8],
    ) -> Result<bool, Error> {
        self.mixed.fetch_plain(lent(&mut self.table, &self.lender), slots, plain, arena)
    }

    fn store_plain(&mut self, plain: &mut RxPlain, arena: &mut [u8]) -> Result<bool, Error> {
        self.mixed.store_plain(lent(&mut self.table, &self.lender), plain, arena)
    }

    fn side(&mut self, gref: GrantRef, offset: u16) -> Side<'_> {
        let grant = self.mixed.foreign(gref, offset);
        let mapping = lent(&mut self.table, &self.lender).find(gref);
        Side { grant, mapped: mapping.map(|mapping| (&mapping.page, offset)) }
    }

    fn cross(&mut self, sender: &mut dyn Policy, crosses: &mut [Cross]) -> Result<(), Error> {
        self.mixed.cross(lent(&mut self.table, &self.lender), sender, crosses)
    }

    fn end_turn(&mut self, _: bool, _: &dyn Fn() -> Instant, stats: &VifStats) -> Option<Instant> {
        if let Some(table) = self.table.take() {
            self.lender.give_back(table);
            let (hits, misses) = self.mixed.take_counts();
            VifStats::add(&stats.mapped_hits, hits);
            VifStats::add(&stats.mapped_misses, misses);
        }
        None
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(table) = self.table.take() {
            self.lender.give_back(table);
        }
    }
}
