//! Pages of a queue for its backend to keep mapped.

use crate::demand::Ready;
use crate::pool::Pool;
use crate::receive::RESTING;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use grantway_hypervisor::GrantRef;

/// One page that is to be staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingPage {
    /// The page's grant.
    pub gref: GrantRef,
    /// True if the backend may only read the page. Frames are sent from such a page.
    pub readonly: bool,
}

/// Pages of one queue that are worth staging, the best first, and the number of staged pages. A
/// queue has some pages for as long as it is connected, and further ones while it is busy. It uses
/// further pages once they are staged. A page that is not staged uses grant copy.
#[derive(Debug, Clone)]
pub struct QueueStaging {
    queue: u16,
    /// The pages at rest.
    pages: Arc<[StagingPage]>,
    /// Grants of the further pages. They are known before these pages are worth staging.
    further: Arc<[AtomicU32; RESTING as usize]>,
    /// Number of times that the further pages began or ceased to be worth staging: odd while they
    /// are.
    changes: Arc<AtomicUsize>,
    staged: Arc<AtomicUsize>,
    /// True if some pages will not be staged. Further pages are used nevertheless.
    short: Arc<AtomicBool>,
}

impl QueueStaging {
    /// Makes the pages of a queue. None is staged yet.
    pub(crate) fn new(queue: u16, pages: Vec<StagingPage>) -> Self {
        let further = Arc::new([const { AtomicU32::new(0) }; RESTING as usize]);
        let (changes, staged, short) = Default::default();
        Self { queue, pages: pages.into(), further, changes, staged, short }
    }

    /// Returns the number of the queue in the vif.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Returns the number of pages that are worth staging now. The staged pages are the first of
    /// them.
    #[must_use]
    pub fn worth(&self) -> usize {
        self.pages.len() + if self.is_busy() { self.further.len() } else { 0 }
    }

    /// Returns true while the further pages are worth staging.
    #[inline]
    fn is_busy(&self) -> bool {
        self.changes() % 2 == 1
    }

    /// Returns the number of changes of the pages that are worth staging. After a change, the owner
    /// of the control ring must look.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.changes.load(SeqCst)
    }

    /// Returns a page, or `None` if the queue has no page of this number. Pages of small buffers
    /// come first, then pages to receive into, then pages to send longer frames from, then further
    /// pages for either direction.
    #[must_use]
    pub fn page(&self, at: usize) -> Option<StagingPage> {
        let further = || {
            let gref = self.further.get(at.checked_sub(self.pages.len())?)?.load(Relaxed);
            Some(StagingPage { gref: GrantRef(gref), readonly: false })
        };
        self.pages.get(at).copied().or_else(further)
    }

    /// Returns the readiness of the further pages, as far as staging goes.
    #[inline]
    pub(crate) fn ready(&self) -> Ready {
        match self.is_busy() {
            true if self.staged() >= self.worth() => Ready::Yes,
            true if self.short.load(Relaxed) => Ready::Refused,
            _ => Ready::NotYet,
        }
    }

    /// Notes if some of the pages that are worth staging will not be staged.
    pub(crate) fn set_short(&self, short: bool) {
        self.short.store(short, Relaxed);
    }

    /// Notes if further pages are in use or awaited; `pool` has them.
    pub(crate) fn set_further(&self, busy: bool, pool: &Pool) {
        if busy == self.is_busy() {
            return;
        }
        // Nobody has said anything of the further pages yet.
        self.short.store(false, Relaxed);
        for (place, (_, gref)) in self.further.iter().zip(pool.further(RESTING)) {
            place.store(gref.0, Relaxed);
        }
        self.changes.fetch_add(1, SeqCst);
    }

    /// Notes that the first `pages` pages are staged. From now on the queue relies on them. The
    /// number is lowered before pages are taken back.
    pub(crate) fn set_staged(&self, pages: usize) {
        self.staged.store(pages, SeqCst);
    }

    /// Returns the number of pages that the queue relies on as staged.
    #[inline]
    #[must_use]
    pub fn staged(&self) -> usize {
        self.staged.load(SeqCst)
    }
}
