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
    /// The queue's table, from the first look on until a change wants it, or the queue pauses.
    table: Option<Box<GrefTable>>,
}

impl Staging {
    /// Returns the way to the staged pages of `queue`.
    pub fn new(queue: &StagedQueue) -> Self {
        Self { lender: queue.lender(), table: None }
    }

    /// Returns the staged pages. None of them goes before the turn's end.
    #[inline(always)]
    pub fn table(&mut self) -> &mut GrefTable {
        match &mut self.table {
            Some(table) => table,
            table => table.insert(self.lender.lend()),
        }
    }

    /// Ends a turn that another follows soon. A change that waits has the staged pages first.
    #[inline(always)]
    pub fn end_turn(&mut self) {
        if self.table.is_some() && self.lender.is_waited_for() {
            self.pause();
        }
    }

    /// Leaves the staged pages to changes until the next look.
    #[inline]
    pub fn pause(&mut self) {
        if let Some(table) = self.table.take() {
            self.lender.give_back(table);
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.pause();
    }
}

#[cfg(test)]
mod tests {
    use super::lease::InUse;
    use super::*;
    use std::time::Duration;

    fn staging(lender: &Arc<Lender>) -> Staging {
        Staging { lender: Arc::clone(lender), table: None }
    }

    #[test]
    fn the_table_stays_from_turn_to_turn_until_the_queue_pauses() {
        let lender = Arc::new(Lender::new(8, Duration::ZERO));
        let mut staging = staging(&lender);
        for _ in 0..3 {
            staging.table();
            staging.end_turn();
            // A change that waits no longer is not waited for.
            assert_eq!(lender.change(|_| ()), Err(InUse));
        }
        staging.pause();
        assert_eq!(lender.change(|_| ()), Ok(()));
        staging.table();
        drop(staging);
        assert_eq!(lender.change(|_| ()), Ok(()));
    }

    #[test]
    fn a_change_that_waits_has_the_table_between_two_turns() {
        let lender = Arc::new(Lender::new(8, Duration::from_secs(600)));
        let mut staging = staging(&lender);
        staging.table();
        std::thread::scope(|scope| {
            let change = scope.spawn(|| lender.change(|_| ()));
            // The queue is busy and never pauses.
            while !change.is_finished() {
                staging.table();
                staging.end_turn();
                std::thread::yield_now();
            }
            assert_eq!(change.join().unwrap(), Ok(()));
        });
        staging.table();
        staging.end_turn();
        assert!(staging.table.is_some(), "nobody waits any more");
    }
}
