//! Staging, request by request: first the number of pages that the backend accepts, then lists of
//! at most one page each. Each request is sent when the one before is answered, since all use one
//! page.
//!
//! The staged pages of a queue are always its first ones. More are added behind them, and the last
//! ones are taken back first.

use super::Ticket;
use crate::staging::{QueueStaging, StagingPage};
use alloc::vec::Vec;
use grantway_netif::ctrl::{
    GREF_ENTRY_BYTES, GREF_LIST_ENTRIES, GrefEntry, GrefFlags, Message, Status,
};
use grantway_ring::SharedPage;

/// Shortest list after halving. If the backend refuses a list, half of it is sent, and so on: the
/// backend may have room for some pages.
const SMALLEST: usize = 32;
/// Number of requests to take pages back before they are left staged: packets may use them.
const TRIES: u32 = 8;

/// Staging state of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingState {
    /// Number of the queue.
    pub queue: u16,
    /// Number of the queue's pages that are worth staging now.
    pub pages: usize,
    /// Number of pages that are to be staged.
    pub wished: usize,
    /// Number of pages that are staged.
    pub staged: usize,
    /// Number of pages that the backend accepts, or `None` before it was asked.
    pub capacity: Option<u32>,
    /// Reason why fewer pages than wished will be staged.
    pub refusal: Option<StagingRefusal>,
}

impl StagingState {
    /// Returns true if no more requests follow: the backend did what it could, or refused.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let full = |capacity: u32| self.staged == self.wished.min(capacity as usize);
        self.refusal.is_some() || self.staged == self.wished || self.capacity.is_some_and(full)
    }
}

/// A refusal of the backend about staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("queue {queue}: the backend refused to {what}: {status:?}")]
pub struct StagingRefusal {
    /// Number of the queue.
    pub queue: u16,
    /// The request, as a verb.
    pub what: &'static str,
    /// The backend's answer.
    pub status: Status,
}

/// A request about a queue's staging.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Capacity,
    Add(usize),
    Del,
}

/// One queue's pages.
struct Lists {
    pages: QueueStaging,
    /// Number of pages that the caller wishes for.
    most_wished: usize,
    /// Number of pages that are to be staged: pages that are worth it, up to the caller's wish.
    wished: usize,
    staged: usize,
    capacity: Option<u32>,
    /// Most pages of the next list.
    most: usize,
    /// Pages that the backend was asked to take back and still has, and the number of the first
    /// page that was asked for.
    leaving: Vec<StagingPage>,
    first: usize,
    tries: u32,
    /// True if the backend keeps some pages behind a gap. Then the staged pages are no longer the
    /// first ones.
    stuck: bool,
    refusal: Option<StagingRefusal>,
    /// The last refusal since the caller's wish. Each refusal is reported once.
    told: Option<StagingRefusal>,
}

/// Staging of every queue.
pub(super) struct StagingChange {
    queues: Vec<Lists>,
    waiting: Option<(Ticket, usize, Asked)>,
    /// The next request, or one that was not taken.
    next: Option<(usize, Asked)>,
    /// A refusal that was not reported yet.
    untold: Option<StagingRefusal>,
}

impl StagingChange {
    /// Makes the state in which nothing is staged or wished for.
    pub fn new(queues: Vec<QueueStaging>) -> Self {
        let lists = |pages| Lists {
            pages,
            most_wished: 0,
            wished: 0,
            staged: 0,
            capacity: None,
            most: GREF_LIST_ENTRIES,
            leaving: Vec::new(),
            first: 0,
            tries: 0,
            stuck: false,
            refusal: None,
            told: None,
        };
        let queues = queues.into_iter().map(lists).collect();
        Self { queues, waiting: None, next: None, untold: None }
    }

    /// Sets the number of pages of a queue that are to be staged, from the first page on. If the
    /// number is not below the number of pages that are worth staging now, all pages are staged,
    /// also later ones.
    pub fn want(&mut self, queue: u16, pages: usize) {
        if let Some(lists) = self.queues.get_mut(usize::from(queue)) {
            let all = pages >= lists.pages.worth();
            lists.most_wished = if all { usize::MAX } else { pages };
            lists.wish(lists.most_wished.min(lists.pages.worth()));
            lists.told = None;
        }
    }

    pub fn states(&self) -> impl Iterator<Item = StagingState> + '_ {
        self.queues.iter().map(|lists| StagingState {
            queue: lists.pages.queue(),
            pages: lists.pages.worth(),
            wished: lists.due(),
            staged: lists.staged,
            capacity: lists.capacity,
            refusal: lists.refusal,
        })
    }

    /// Returns the first refusal since the last call.
    pub fn take_refusal(&mut self) -> Option<StagingRefusal> {
        self.untold.take()
    }

    pub fn is_waiting_for(&self, ticket: Ticket) -> bool {
        self.waiting.is_some_and(|(waiting, ..)| waiting == ticket)
    }

    /// Notes that the request of [`StagingChange::next_message`] was sent.
    pub fn asked(&mut self, ticket: Ticket) {
        self.waiting = self.next.take().map(|(queue, asked)| (ticket, queue, asked));
    }

    /// Returns the next request, if one is to be sent now. `page` gets the list of the request.
    pub fn next_message(&mut self, page: &SharedPage, list: u32) -> Option<Message> {
        if self.waiting.is_some() {
            return None;
        }
        let mut queues = self.queues.iter_mut().enumerate();
        let (queue, asked) = queues.find_map(|(at, lists)| Some((at, lists.next_step()?)))?;
        self.next = Some((queue, asked));
        let lists = self.queues.get(queue)?;
        // The number is below that of the queues, which has 16 bits.
        let queue = queue as u32;
        let put = |pages: &[StagingPage]| {
            write_list(page, pages);
            // The list is at most a page of entries.
            pages.len() as u32
        };
        Some(match asked {
            Asked::Capacity => Message::GetGrefMappingSize { queue },
            Asked::Add(count) => {
                let pages = lists.slice(lists.staged, lists.staged + count);
                Message::AddGrefMapping { queue, list, entries: put(&pages) }
            }
            Asked::Del => Message::DelGrefMapping { queue, list, entries: put(&lists.leaving) },
        })
    }

    /// Takes in the answer. `page` has the list of the request.
    pub fn answered(&mut self, result: Result<u32, Status>, page: &SharedPage) {
        let Some((_, queue, asked)) = self.waiting.take() else { return };
        let Some(lists) = self.queues.get_mut(queue) else { return };
        if let Some(refusal) = lists.answered(asked, result, page) {
            lists.refusal = Some(refusal);
            if lists.told.replace(refusal) != Some(refusal) {
                self.untold.get_or_insert(refusal);
            }
        }
    }
}

impl Lists {
    /// Returns the number of pages that are to be staged now.
    fn due(&self) -> usize {
        // Pages that the backend refused to give back stay: see `answered`.
        match self.refusal.is_some() && self.wished == self.staged {
            true => self.wished,
            false => self.most_wished.min(self.pages.worth()),
        }
    }

    /// Returns true if some pages that are worth staging will not be staged, as far as is known
    /// now.
    fn is_short(&self) -> bool {
        let worth = self.pages.worth();
        let has_room = self.capacity.is_none_or(|capacity| capacity as usize >= worth);
        self.stuck || self.refusal.is_some() || self.most_wished < worth || !has_room
    }

    /// Begins a change to `pages` staged pages.
    fn wish(&mut self, pages: usize) {
        self.wished = pages;
        self.most = GREF_LIST_ENTRIES;
        self.tries = 0;
        self.refusal = self.refusal.filter(|_| self.stuck);
    }

    /// Returns some of the queue's pages.
    fn slice(&self, first: usize, end: usize) -> Vec<StagingPage> {
        (first..end).map_while(|at| self.pages.page(at)).collect()
    }

    /// Returns the next request of this queue, if there is one.
    fn next_step(&mut self) -> Option<Asked> {
        // Before what is asked now: it may be the last word about these pages.
        self.pages.set_short(self.is_short());
        // Pages that are on their way back come back first.
        let due = self.due();
        if self.leaving.is_empty() && due != self.wished {
            // A backend that refused some pages is not asked for more, unless there was a time when
            // they were not wished for: it may be another process by then.
            match self.refusal.is_none() || due <= self.staged {
                true => self.wish(due),
                false => self.wished = due,
            }
        }
        if self.stuck || self.refusal.is_some() {
            return None;
        }
        if self.wished > self.staged && self.leaving.is_empty() {
            let Some(capacity) = self.capacity else { return Some(Asked::Capacity) };
            let room = (capacity as usize).min(self.wished).saturating_sub(self.staged);
            return (room > 0).then_some(Asked::Add(room.min(self.most)));
        }
        if self.leaving.is_empty() {
            if self.wished == self.staged {
                return None;
            }
            // The queue stops counting on the pages before they go. If it became busy meanwhile, it
            // may count on them already, and they stay.
            self.pages.set_staged(self.wished);
            if self.due() > self.wished {
                self.pages.set_staged(self.staged);
                self.wished = self.staged;
                return None;
            }
            self.first = self.wished.max(self.staged.saturating_sub(GREF_LIST_ENTRIES));
            self.leaving = self.slice(self.first, self.staged);
        }
        Some(Asked::Del)
    }

    /// Gives up a list of which only some pages were taken back. The staged pages are no longer the
    /// first ones.
    fn get_stuck(&mut self) {
        self.stuck = true;
        self.staged = self.first;
    }

    fn answered(
        &mut self,
        asked: Asked,
        result: Result<u32, Status>,
        page: &SharedPage,
    ) -> Option<StagingRefusal> {
        let refused = |queue, what, status| Some(StagingRefusal { queue, what, status });
        let queue = self.pages.queue();
        match (asked, result) {
            (Asked::Capacity, Ok(capacity)) => {
                self.capacity = Some(capacity);
                None
            }
            (Asked::Capacity, Err(status)) => refused(queue, "say how many pages it takes", status),
            // The whole list is mapped, or none of it.
            (Asked::Add(count), Ok(_)) => {
                self.staged += count;
                self.pages.set_staged(self.staged.min(self.wished));
                None
            }
            (Asked::Add(count), Err(Status::InvalidParameter | Status::BufferOverflow))
                if count / 2 >= SMALLEST =>
            {
                self.most = count / 2;
                None
            }
            (Asked::Add(_), Err(status)) => refused(queue, "map a list of pages", status),
            // The page has a status for each entry. Pages that stay are asked for again, a few
            // times.
            (Asked::Del, Ok(_)) => {
                let success = Status::Success.to_u16();
                let mut statuses = read_statuses(page, self.leaving.len()).into_iter();
                self.leaving.retain(|_| statuses.next() != Some(success));
                self.tries += 1;
                if self.leaving.is_empty() {
                    (self.staged, self.tries) = (self.first, 0);
                    return None;
                }
                if self.tries < TRIES {
                    return None;
                }
                self.get_stuck();
                refused(queue, "give pages back", Status::InvalidParameter)
            }
            (Asked::Del, Err(status)) if self.leaving.len() < self.staged - self.first => {
                self.get_stuck();
                refused(queue, "give pages back", status)
            }
            (Asked::Del, Err(status)) => {
                // All pages of the list stay.
                self.leaving.clear();
                self.wished = self.staged;
                self.pages.set_staged(self.staged);
                refused(queue, "give pages back", status)
            }
        }
    }
}

/// Writes a list of at most a page.
fn write_list(page: &SharedPage, pages: &[StagingPage]) {
    for (at, staged) in pages.iter().enumerate().take(GREF_LIST_ENTRIES) {
        let flags = if staged.readonly { GrefFlags::READONLY } else { GrefFlags::empty() };
        // No backend answers with this status, so its own can be told from it.
        let entry = GrefEntry { gref: staged.gref.0, flags, status: u16::MAX };
        let [gref, rest] = entry.to_words().map(u32::to_le_bytes);
        let _ = page.write(at * GREF_ENTRY_BYTES, &gref);
        let _ = page.write(at * GREF_ENTRY_BYTES + 4, &rest);
    }
}

/// Returns the statuses of a list, each read once. They only choose among our own pages.
fn read_statuses(page: &SharedPage, entries: usize) -> Vec<u16> {
    let status = |at| {
        let mut bytes = u16::MAX.to_le_bytes();
        let _ = page.read(at * GREF_ENTRY_BYTES + 6, &mut bytes);
        u16::from_le_bytes(bytes)
    };
    (0..entries).map(status).collect()
}
