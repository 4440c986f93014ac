//! Lists that a predecessor had staged, in a process without staging.

use super::StagedTable;
use crate::journal::{JournalMemory, StagedJournal};
use grantway_netif::ctrl::{GrefEntry, Status};
use std::collections::HashSet;

/// Pages that one queue has staged, in the journal alone: packets in them take grant copy. The guest
/// can take pages back, and a successor with staging maps the others again.
pub(crate) struct KeptTable<J> {
    journal: StagedJournal<J>,
    grefs: HashSet<u32>,
}

impl<J: JournalMemory> KeptTable<J> {
    /// Takes up the journal of a process that had answered the requests before the index
    /// `answered`.
    pub fn resume(pages: Vec<J>, answered: u32) -> Self {
        let (journal, entries) = StagedJournal::resume(pages, answered);
        Self { journal, grefs: entries.iter().map(|entry| entry.gref).collect() }
    }

    /// Returns true if nothing is staged.
    pub fn is_empty(&self) -> bool {
        self.grefs.is_empty()
    }
}

impl<J: JournalMemory> StagedTable for KeptTable<J> {
    fn capacity(&self) -> Result<u32, Status> {
        Err(Status::NotSupported)
    }

    fn add(&mut self, _: u32, _: &[GrefEntry]) -> Result<(), Status> {
        Err(Status::NotSupported)
    }

    fn del(&mut self, index: u32, entries: &mut [GrefEntry]) {
        for entry in entries.iter_mut().filter(|entry| self.grefs.remove(&entry.gref)) {
            self.journal.left(index, entry.gref);
            entry.status = Status::Success.to_u16();
        }
    }
}
