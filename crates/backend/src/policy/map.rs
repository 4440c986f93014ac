//! Pages that the policy map maps (seed 001, and stock netback's guest transmit). The first bytes
//! of a packet for a port are copied and judged. The pages of the rest are mapped while the packet
//! is on its way, and the port reads them in place. Guest receive uses grant copy, and so does each
//! packet to another guest.
//!
//! The cost is mapping and unmapping, so both are done for many pages at once. All pages of a turn
//! are mapped as one run. Runs are unmapped before their packets are answered: when there are many
//! runs, or when no more packets came (`turn::transmit`). A run that cannot be mapped, or exceeds a
//! limit, is copied.

use super::Grants;
use super::quota::{Quota, Reserved};
use crate::layout::RING_SLOTS;
use grantway_hypervisor::{Access, DomId, GrantRef, Mapper};
use grantway_ring::{SharedPage, SharedRun};
use std::sync::Arc;

/// Most pages that are mapped for one queue: as many as a ring has slots.
const QUEUE_PAGES: usize = RING_SLOTS;
/// Turns in which packets are copied after a run could not be mapped. To find the reason takes the
/// platform as long as mapping the run twice.
const PAUSE: u32 = 64;

/// One part of a guest's page that a port reads in place.
#[derive(Debug)]
pub struct Stretch {
    /// The guest's page.
    pub gref: GrantRef,
    /// Offset in that page, in bytes.
    pub offset: u16,
    /// Length in bytes, 1 to 4096.
    pub len: u16,
    /// The page, set by [`Map::map`]. It must be dropped before [`Map::unmap`].
    pub page: Option<SharedPage>,
}

/// The pages of one queue that are on their way.
#[derive(Debug)]
pub struct Map {
    grants: Grants,
    quota: Arc<Quota>,
    runs: Vec<Run>,
    pages: usize,
    grefs: Vec<GrantRef>,
    /// Turns until the next attempt.
    pause: u32,
}

/// Pages that were mapped together.
#[derive(Debug)]
struct Run {
    // The fields are dropped in this order: pages are unmapped first, then no longer counted.
    _pages: SharedRun,
    _reserved: Reserved,
}

impl Map {
    /// Returns a map without pages. Pages that are mapped later count against `quota`, which the
    /// queues of a vif share.
    #[must_use]
    pub fn new(mapper: Arc<dyn Mapper>, guest: DomId, quota: Arc<Quota>) -> Self {
        let (grants, grefs) = (Grants { mapper, guest }, Vec::with_capacity(QUEUE_PAGES));
        Self { grants, quota, runs: Vec::new(), pages: 0, grefs, pause: 0 }
    }

    /// Returns the number of further pages that [`Map::map`] would map.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.pause > 0 || self.pages >= QUEUE_PAGES {
            return 0;
        }
        self.quota.room().min(QUEUE_PAGES - self.pages)
    }

    /// Maps the pages of all parts for reading, or none of them. Returns true if they are mapped.
    /// They stay mapped until [`Map::unmap`].
    pub fn map(&mut self, stretches: &mut [Stretch]) -> bool {
        // Another queue of the vif may be faster.
        let Some(reserved) = self.quota.reserve(stretches.len()) else { return false };
        self.grefs.clear();
        self.grefs.extend(stretches.iter().map(|stretch| stretch.gref));
        let Ok(pages) = self.grants.map(&self.grefs, Access::ReadOnly) else {
            self.pause = PAUSE;
            return false;
        };
        for (index, stretch) in stretches.iter_mut().enumerate() {
            stretch.page = pages.page(index);
        }
        self.pages += stretches.len();
        self.runs.push(Run { _pages: pages, _reserved: reserved });
        stretches.iter().all(|stretch| stretch.page.is_some())
    }

    /// Returns the number of pages that are mapped now.
    #[must_use]
    pub fn mapped(&self) -> usize {
        self.pages
    }

    /// Unmaps all pages. After that their packets may be answered.
    pub fn unmap(&mut self) {
        self.runs.clear();
        self.pages = 0;
    }

    /// Ends the queue's turn. `idle` is true if nothing moved.
    pub fn end_turn(&mut self, idle: bool) {
        if !idle {
            self.pause = self.pause.saturating_sub(1);
        }
    }
}
