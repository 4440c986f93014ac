//! The staged pages of a queue as the control ring reaches them, and as a successor finds them
//! again.

use super::StagedTable;
use super::{StagedQueue, StagingError};
use crate::journal::{JournalMemory, StagedJournal};
use grantway_hypervisor::Error;
use grantway_netif::ctrl::{GREF_LIST_ENTRIES, GrefEntry, Status};

/// Most attempts at a list that a successor finds. An attempt that fails takes the platform as long
/// as mapping each page of the list by itself.
const ATTEMPTS: usize = 8;

/// The staged pages of one queue, with their journal if there is one.
pub(crate) struct LastingTable<J> {
    queue: StagedQueue,
    journal: Option<StagedJournal<J>>,
    /// Lists that a killed process had staged, and that are to be mapped again.
    left: Left,
    refusal: Refusal,
}

/// The rest of a killed process's lists. Packets in such pages take grant copy.
#[derive(Default)]
struct Left {
    /// Index of the first request that the killed process had not answered.
    answered: u32,
    entries: Vec<GrefEntry>,
    /// List that is tried now.
    part: Vec<GrefEntry>,
    /// Number of attempts at that list.
    attempts: usize,
    /// References that could not be mapped. The journal keeps them until the guest's next change:
    /// the next successor may be able to map them.
    lost: Vec<u32>,
}

/// Reason for which lists were refused: the first of a connection is for the log.
#[derive(Default)]
enum Refusal {
    #[default]
    None,
    Untold(StagingError),
    Told,
}

impl<J: JournalMemory> LastingTable<J> {
    /// Returns a table with nothing staged. There is no journal without pages for it.
    pub fn begin(queue: StagedQueue, pages: Vec<J>) -> Self {
        let journal = (!pages.is_empty()).then(|| StagedJournal::begin(pages));
        Self { queue, journal, left: Left::default(), refusal: Refusal::None }
    }

    /// Returns a table that stages all that a killed process had staged when it had answered the
    /// requests before this index. The table does so once it is asked to
    /// ([`StagedTable::take_up`]). Until then each entry stays in the journal, for a further
    /// successor. Grants that cannot be mapped any more are not staged.
    pub fn resume(queue: StagedQueue, pages: Vec<J>, answered: u32) -> Self {
        if pages.is_empty() {
            let (journal, left) = (None, Left::default());
            return Self { queue, journal, left, refusal: Refusal::None };
        }
        let (journal, entries) = StagedJournal::resume(pages, answered);
        let left = Left { answered, entries, ..Left::default() };
        Self { queue, journal: Some(journal), left, refusal: Refusal::None }
    }

    /// Returns the journal, after references that could not be mapped were taken out of it.
    fn journal(&mut self) -> Option<&mut StagedJournal<J>> {
        let journal = self.journal.as_mut()?;
        let before = self.left.answered.wrapping_sub(1);
        for gref in std::mem::take(&mut self.left.lost) {
            journal.left(before, gref);
        }
        Some(journal)
    }
}

impl<J: JournalMemory> StagedTable for LastingTable<J> {
    fn capacity(&self) -> Result<u32, Status> {
        // At most a queue's pages.
        Ok(self.queue.capacity() as u32)
    }

    fn add(&mut self, index: u32, entries: &[GrefEntry]) -> Result<(), Status> {
        if let Err(error) = self.queue.add(entries) {
            let status = error.status();
            if let Refusal::None = self.refusal {
                self.refusal = Refusal::Untold(error);
            }
            return Err(status);
        }
        if let Some(journal) = self.journal() {
            journal.added(index, entries);
        }
        Ok(())
    }

    fn del(&mut self, index: u32, entries: &mut [GrefEntry]) {
        self.queue.del(entries);
        if let Some(journal) = self.journal() {
            let gone = |entry: &&GrefEntry| entry.status == Status::Success.to_u16();
            entries.iter().filter(gone).for_each(|entry| journal.left(index, entry.gref));
        }
    }

    /// Tries to add a list, without its grants that cannot be mapped any more. A guest chooses how
    /// many these are, and other vifs wait. So after [`ATTEMPTS`] attempts the rest of the list
    /// counts as lost.
    fn take_up(&mut self) -> bool {
        let Left { entries, part, attempts, lost, .. } = &mut self.left;
        if part.is_empty() {
            let next = entries.len().saturating_sub(GREF_LIST_ENTRIES);
            (*part, *attempts) = (entries.split_off(next), 0);
        }
        if part.is_empty() {
            return false;
        }
        *attempts += 1;
        let last = *attempts == ATTEMPTS;
        let mut failed = match self.queue.add(part) {
            Ok(()) => {
                part.clear();
                Vec::new()
            }
            Err(StagingError::Map(Error::Grant { gref, .. })) => {
                part.extract_if(.., |entry| entry.gref == gref.0).collect()
            }
            Err(StagingError::Room { room, .. }) if room < part.len() => part.split_off(room),
            Err(_) => std::mem::take(part),
        };
        if last {
            failed.append(part);
        }
        lost.extend(failed.into_iter().map(|entry| entry.gref));
        true
    }

    fn take_work(&mut self) -> usize {
        self.queue.take_work()
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
