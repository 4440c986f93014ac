//! A queue's staged pages as the control ring reaches them, and as a successor
//! finds them again.

use super::{StagedQueue, StagingError};
use crate::ctrl::StagedTable;
use crate::journal::{JournalMemory, StagedJournal};
use grantway_hypervisor::Error;
use grantway_netif::ctrl::{GREF_LIST_ENTRIES, GrefEntry, Status};

/// How often a list is tried that a successor finds: each attempt that fails takes the
/// platform as long as mapping each page of it by itself.
const ATTEMPTS: usize = 8;

/// One queue's, with its journal where there is one.
pub(crate) struct LastingTable<J> {
    queue: StagedQueue,
    journal: Option<StagedJournal<J>>,
    refusal: Refusal,
}

/// Why lists were refused: the first reason of a connection is for the log.
#[derive(Default)]
enum Refusal {
    #[default]
    None,
    Untold(StagingError),
    Told,
}

impl<J: JournalMemory> LastingTable<J> {
    /// With nothing staged; no journal without pages for it.
    pub fn begin(queue: StagedQueue, pages: Vec<J>) -> Self {
        let journal = (!pages.is_empty()).then(|| StagedJournal::begin(pages));
        Self { queue, journal, refusal: Refusal::None }
    }

    /// With all that a killed process had staged when it had answered the requests
    /// before this index. What cannot be mapped any more is not staged: packets in
    /// such pages take grant copy.
    pub fn resume(queue: StagedQueue, pages: Vec<J>, answered: u32) -> Self {
        if pages.is_empty() {
            return Self { queue, journal: None, refusal: Refusal::None };
        }
        let (mut journal, staged) = StagedJournal::resume(pages, answered);
        for part in staged.chunks(GREF_LIST_ENTRIES) {
            for lost in add_what_can_be(&queue, part.to_vec()) {
                journal.left(answered.wrapping_sub(1), lost);
            }
        }
        Self { queue, journal: Some(journal), refusal: Refusal::None }
    }
}

/// Adds a list without those that cannot be mapped any more; the references that it is
/// without. A guest chooses how many these are, and other vifs wait: after some attempts
/// the rest of the list is among them.
fn add_what_can_be(queue: &StagedQueue, mut part: Vec<GrefEntry>) -> Vec<u32> {
    let mut lost = Vec::new();
    for _ in 0..ATTEMPTS {
        if part.is_empty() {
            return lost;
        }
        match queue.add(&part) {
            Ok(()) => return lost,
            Err(StagingError::Map(Error::Grant { gref, .. })) => {
                part.retain(|entry| entry.gref != gref.0);
                lost.push(gref.0);
            }
            Err(StagingError::Room { room, .. }) if room < part.len() => {
                lost.extend(part.drain(room..).map(|entry| entry.gref));
            }
            Err(_) => break,
        }
    }
    lost.extend(part.into_iter().map(|entry| entry.gref));
    lost
}

impl<J: JournalMemory> StagedTable for LastingTable<J> {
    fn capacity(&self) -> u32 {
        // At most a queue's pages.
        self.queue.capacity() as u32
    }

    fn add(&mut self, index: u32, entries: &[GrefEntry]) -> Result<(), Status> {
        if let Err(error) = self.queue.add(entries) {
            let status = error.status();
            if let Refusal::None = self.refusal {
                self.refusal = Refusal::Untold(error);
            }
            return Err(status);
        }
        if let Some(journal) = &mut self.journal {
            journal.added(index, entries);
        }
        Ok(())
    }

    fn del(&mut self, index: u32, entries: &mut [GrefEntry]) {
        self.queue.del(entries);
        if let Some(journal) = &mut self.journal {
            let gone = |entry: &&GrefEntry| entry.status == Status::Success.to_u16();
            entries.iter().filter(gone).for_each(|entry| journal.left(index, entry.gref));
        }
    }
    fn refusal(&mut self) -> Option<StagingError> {
        match std::mem::replace(&mut self.refusal, Refusal::Told) {
            Refusal::Untold(error) => Some(error),
            other => {
                self.refusal = other;
                None
            }
        }
    }
}
