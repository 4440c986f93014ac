//! Pages that a queue would have its backend keep mapped.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use grantway_hypervisor::GrantRef;

/// One page that is to be staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingPage {
    /// The page's grant.
    pub gref: GrantRef,
    /// True if the backend may only read the page, which then serves transmission.
    pub readonly: bool,
}

/// The pages of one queue that are worth staging, the best first, and the number of them that are
/// staged. The pages are the queue's for as long as it is connected, staged or not. A page that is
/// not staged takes grant copy.
#[derive(Debug, Clone)]
pub struct QueueStaging {
    queue: u16,
    pages: Arc<[StagingPage]>,
    staged: Arc<AtomicUsize>,
}

impl QueueStaging {
    /// Makes the pages of a queue, of which none is staged yet.
    pub(crate) fn new(queue: u16, pages: Vec<StagingPage>) -> Self {
        Self { queue, pages: pages.into(), staged: Arc::default() }
    }

    /// Returns the number of the queue in the vif.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Returns all pages: first those of small buffers, then those posted to receive into, then
    /// whole pages to send from. Any number of them from the first on may be staged.
    #[must_use]
    pub fn pages(&self) -> &[StagingPage] {
        &self.pages
    }

    /// Notes that the backend confirmed the first `pages` pages: from now on the queue counts on
    /// them. The number is lowered before pages are taken back.
    pub(crate) fn set_staged(&self, pages: usize) {
        self.staged.store(pages.min(self.pages.len()), Relaxed);
    }

    /// Returns the number of pages that the queue counts on as staged.
    #[inline]
    #[must_use]
    pub fn staged(&self) -> usize {
        self.staged.load(Relaxed)
    }
}
