//! A queue's staged pages as the control ring reaches them, and as a successor
//! finds them again.

use super::StagedTable;
use super::{StagedQueue, StagingError};
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
    /// What a killed process had staged, and is to be mapped again.
    left: Left,
    refusal: Refusal,
}

/// What is left of a killed process's lists. Packets in such pages take grant copy.
#[derive(Default)]
struct Left {
    /// It had answered the requests before this index.
    answered: u32,
    entries: Vec<GrefEntry>,
    /// The list that is tried now, and how often that was.
    part: Vec<GrefEntry>,
    attempts: usize,
    /// What could not be mapped. The journal has it until the guest's next change: the next
    /// successor may be able to.
    lost: Vec<u32>,
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
        Self { queue, journal, left: Left::default(), refusal: Refusal::None }
    }

    /// To stage all that a killed process had staged when it had answered the requests
    /// before this index, once it is asked to ([`StagedTable::take_up`]): until then each
    /// entry stays in the journal as it is, for a further successor. What cannot be mapped
    /// any more is not staged.
    pub fn resume(queue: StagedQueue, pages: Vec<J>, answered: u32) -> Self {
        if pages.is_empty() {
            let (journal, left) = (None, Left::default());
            return Self { queue, journal, left, refusal: Refusal::None };
        }
        let (journal, entries) = StagedJournal::resume(pages, answered);
        let left = Left { answered, entries, ..Left::default() };
        Self { queue, journal: Some(journal), left, refusal: Refusal::None }
    }

    /// The journal, of what is staged and no more.
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

    /// One attempt to add a list, without those of it that cannot be mapped any more. A
    /// guest chooses how many these are, and other vifs wait: after some attempts the rest of
    /// the list is among them.
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
