//! What a queue would have its backend keep mapped.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use grantway_hypervisor::GrantRef;

/// One page that is to be staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingPage {
    /// Its grant.
    pub gref: GrantRef,
    /// Whether the backend may only read it: it serves transmission.
    pub readonly: bool,
}

/// The pages of one queue that are worth staging, the best first, and how many of
/// them are. The pages are the queue's for as long as it is connected, staged or
/// not; what is not staged takes grant copy.
#[derive(Debug, Clone)]
pub struct QueueStaging {
    queue: u16,
    pages: Arc<[StagingPage]>,
    staged: Arc<AtomicUsize>,
}

impl QueueStaging {
    /// None of them is staged yet.
    pub(crate) fn new(queue: u16, pages: Vec<StagingPage>) -> Self {
        Self { queue, pages: pages.into(), staged: Arc::default() }
    }

    /// Which of the vif's queues.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// All of them: those of small buffers first, then what is posted to be
    /// received into, then whole pages to send from. Any number of them from the
    /// first on may be staged.
    #[must_use]
    pub fn pages(&self) -> &[StagingPage] {
        &self.pages
    }

    /// Says that the backend confirmed so many of them, from the first on: from
    /// now on the queue counts on them. Fewer before some are taken back.
    pub(crate) fn set_staged(&self, pages: usize) {
        self.staged.store(pages.min(self.pages.len()), Relaxed);
    }

    /// How many the queue counts on.
    #[inline]
    #[must_use]
    pub fn staged(&self) -> usize {
        self.staged.load(Relaxed)
    }
}
