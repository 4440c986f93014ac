//! How many of a guest's pages may be mapped for one vif, over all its queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The limit of one vif, and what of it is in use.
#[derive(Debug)]
pub struct Quota {
    limit: usize,
    used: AtomicUsize,
}

impl Quota {
    /// Room for `limit` pages.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// Most pages that may be mapped at once.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Pages that are mapped now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Sets room aside for exactly so many pages; none where there is less.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, pages: usize) -> Option<Reserved> {
        let more = |used: usize| used.checked_add(pages).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Reserved { quota: Arc::clone(self), pages })
    }
}

/// Room that was set aside, for as long as this lives.
#[derive(Debug)]
pub struct Reserved {
    quota: Arc<Quota>,
    pages: usize,
}

impl Reserved {
    /// Gives a part of it back.
    pub fn shrink(&mut self, pages: usize) {
        let pages = pages.min(self.pages);
        self.pages -= pages;
        self.quota.used.fetch_sub(pages, Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.shrink(self.pages);
    }
}
