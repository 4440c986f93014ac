//! Has the backend keep pages mapped, request by request: how many it takes, then
//! lists of at most a page each. Each is asked for once the one before is
//! answered, since they use one page.
//!
//! What is staged of a queue is always its first pages: more are added behind
//! them, and the last are taken back first.

use super::Ticket;
use crate::staging::{QueueStaging, StagingPage};
use alloc::vec::Vec;
use grantway_netif::ctrl::{
    GREF_ENTRY_BYTES, GREF_LIST_ENTRIES, GrefEntry, GrefFlags, Message, Status,
};
use grantway_ring::SharedPage;

/// A list that the backend refuses is asked for by half, and so on, down to
/// fewer than this: it may have room for some.
const SMALLEST: usize = 32;
/// Times that pages are asked back before they are left where they are: packets
/// may use them.
const TRIES: u32 = 8;

/// How much of a queue is staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingState {
    /// Which queue.
    pub queue: u16,
    /// Its pages that are worth staging.
    pub pages: usize,
    /// How many of them are to be.
    pub wished: usize,
    /// How many are.
    pub staged: usize,
    /// How many the backend takes, once it was asked.
    pub capacity: Option<u32>,
    /// Why it is not as it is wished, if that is not to come.
    pub refusal: Option<StagingRefusal>,
}

impl StagingState {
    /// Whether nothing more is to come: it is as it is wished, or as far as the
    /// backend goes.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let full = |capacity: u32| self.staged == self.wished.min(capacity as usize);
        self.refusal.is_some() || self.staged == self.wished || self.capacity.is_some_and(full)
    }
}

/// The backend refused what was asked about staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("queue {queue}: the backend refused to {what}: {status:?}")]
pub struct StagingRefusal {
    /// For which queue.
    pub queue: u16,
    /// What was asked.
    pub what: &'static str,
    /// Its answer.
    pub status: Status,
}

/// What a queue's backend was asked.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Capacity,
    Add(usize),
    Del,
}

/// One queue's pages.
struct Lists {
    pages: QueueStaging,
    wished: usize,
    staged: usize,
    capacity: Option<u32>,
    /// Most pages of the next list.
    most: usize,
    /// Pages that did not come back yet of those that were asked back, and where
    /// those began.
    leaving: Vec<StagingPage>,
    first: usize,
    tries: u32,
    /// The backend keeps some behind the first: no more can be said of it.
    stuck: bool,
    refusal: Option<StagingRefusal>,
}

/// What is to be staged on every queue.
pub(super) struct StagingChange {
    queues: Vec<Lists>,
    waiting: Option<(Ticket, usize, Asked)>,
    /// What is to be asked, or was asked in vain.
    next: Option<(usize, Asked)>,
    /// Not yet told.
    untold: Option<StagingRefusal>,
}

impl StagingChange {
    /// Nothing is staged, nor to be.
    pub fn new(queues: Vec<QueueStaging>) -> Self {
        let lists = |pages| Lists {
            pages,
            wished: 0,
            staged: 0,
            capacity: None,
            most: GREF_LIST_ENTRIES,
            leaving: Vec::new(),
            first: 0,
            tries: 0,
            stuck: false,
            refusal: None,
        };
        let queues = queues.into_iter().map(lists).collect();
        Self { queues, waiting: None, next: None, untold: None }
    }

    /// How many pages of a queue are to be staged, from the first on.
    pub fn want(&mut self, queue: u16, pages: usize) {
        if let Some(lists) = self.queues.get_mut(usize::from(queue)) {
            lists.wished = pages.min(lists.pages.pages().len());
            lists.most = GREF_LIST_ENTRIES;
            lists.tries = 0;
            lists.refusal = lists.refusal.filter(|_| lists.stuck);
        }
    }

    pub fn states(&self) -> impl Iterator<Item = StagingState> + '_ {
        self.queues.iter().map(|lists| StagingState {
            queue: lists.pages.queue(),
            pages: lists.pages.pages().len(),
            wished: lists.wished,
            staged: lists.staged,
            capacity: lists.capacity,
            refusal: lists.refusal,
        })
    }

    /// What was refused since the last call, the first of it.
    pub fn take_refusal(&mut self) -> Option<StagingRefusal> {
        self.untold.take()
    }

    pub fn is_waiting_for(&self, ticket: Ticket) -> bool {
        self.waiting.is_some_and(|(waiting, ..)| waiting == ticket)
    }

    /// The request that [`StagingChange::next_message`] gave is out.
    pub fn asked(&mut self, ticket: Ticket) {
        self.waiting = self.next.take().map(|(queue, asked)| (ticket, queue, asked));
    }

    /// What is to be asked now, if anything; `page` gets what it points to.
    pub fn next_message(&mut self, page: &SharedPage, list: u32) -> Option<Message> {
        if self.waiting.is_some() {
            return None;
        }
        let mut queues = self.queues.iter_mut().enumerate();
        let (queue, asked) = queues.find_map(|(at, lists)| Some((at, lists.next_step()?)))?;
        self.next = Some((queue, asked));
        let lists = self.queues.get(queue)?;
        // Below the number of queues, which is 16 bits.
        let queue = queue as u32;
        let put = |pages: &[StagingPage]| {
            write_list(page, pages);
            // At most a page of entries.
            pages.len() as u32
        };
        Some(match asked {
            Asked::Capacity => Message::GetGrefMappingSize { queue },
            Asked::Add(count) => {
                let pages = lists.pages.pages().get(lists.staged..lists.staged + count)?;
                Message::AddGrefMapping { queue, list, entries: put(pages) }
            }
            Asked::Del => Message::DelGrefMapping { queue, list, entries: put(&lists.leaving) },
        })
    }

    /// The answer is there; `page` is what the request pointed to.
    pub fn answered(&mut self, result: Result<u32, Status>, page: &SharedPage) {
        let Some((_, queue, asked)) = self.waiting.take() else { return };
        let Some(lists) = self.queues.get_mut(queue) else { return };
        if let Some(refusal) = lists.answered(asked, result, page) {
            lists.refusal = Some(refusal);
            self.untold.get_or_insert(refusal);
        }
    }
}

impl Lists {
    /// What comes next, if anything is to.
    fn next_step(&mut self) -> Option<Asked> {
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
            // The queue counts on them no more before they go.
            self.pages.set_staged(self.wished);
            self.first = self.wished.max(self.staged.saturating_sub(GREF_LIST_ENTRIES));
            self.leaving = self.pages.pages().get(self.first..self.staged)?.to_vec();
        }
        Some(Asked::Del)
    }

    /// Some of a list went and some stay, so what is there is no more a number of
    /// first pages.
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
                // All of them stay.
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
        // A status that no backend means, so that its own is told from it.
        let entry = GrefEntry { gref: staged.gref.0, flags, status: u16::MAX };
        let [gref, rest] = entry.to_words().map(u32::to_le_bytes);
        let _ = page.write(at * GREF_ENTRY_BYTES, &gref);
        let _ = page.write(at * GREF_ENTRY_BYTES + 4, &rest);
    }
}

/// The statuses of a list, each read once. They choose among our own pages, and
/// nothing else is taken from them.
fn read_statuses(page: &SharedPage, entries: usize) -> Vec<u16> {
    let status = |at| {
        let mut bytes = u16::MAX.to_le_bytes();
        let _ = page.read(at * GREF_ENTRY_BYTES + 6, &mut bytes);
        u16::from_le_bytes(bytes)
    };
    (0..entries).map(status).collect()
}
