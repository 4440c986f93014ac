//! The staging policy (seed 004, control messages 8 to 10). Pages that the frontend lists are
//! mapped once, and the processor moves their bytes from then on. A slot that names any other page
//! takes grant copy, in the same turn and packet.

mod kept;
mod lease;
mod registry;
mod seam;
mod table;

pub(crate) use kept::KeptTable;
pub use registry::{Staged, StagedQueue, StagingError};
pub(crate) use seam::StagedTable;
pub(crate) use table::LastingTable;

use super::table::GrefTable;
use lease::Lender;
use std::sync::Arc;

/// The staged pages of one queue, as a turn reaches them.
#[derive(Debug)]
pub(super) struct Staging {
    lender: Arc<Lender>,
    /// The queue's table, from the first look in a turn until its end.
    table: Option<Box<GrefTable>>,
}

impl Staging {
    /// Returns the way to the staged pages of `queue`.
    pub fn new(queue: &StagedQueue) -> Self {
        Self { lender: queue.lender(), table: None }
    }

    /// Returns the staged pages, borrowed until the turn's end.
    #[inline(always)]
    pub fn table(&mut self) -> &mut GrefTable {
        match &mut self.table {
            Some(table) => table,
            table => table.insert(self.lender.lend()),
        }
    }

    /// Ends the turn. Returns true if the turn had the table.
    #[inline(always)]
    pub fn end_turn(&mut self) -> bool {
        let Some(table) = self.table.take() else { return false };
        self.lender.give_back(table);
        true
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.end_turn();
    }
}
