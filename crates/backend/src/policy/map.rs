//! The map policy (seed 001, and stock netback's guest transmit): the first bytes
//! of a packet for a port are copied and judged, the pages of the rest are mapped
//! for as long as the packet is on its way, and the port reads them in place.
//! Guest receive, and whatever crosses to another guest, is grant copy.
//!
//! Mapping and unmapping is what this costs, so both are done for many pages at
//! once: one run for all that a turn brought, and runs are unmapped when there are
//! many or nothing more came (`turn::transmit`), before the answers to their packets.
//! Where a run cannot be mapped, or is more than may be, it is copied.

use super::quota::{Quota, Reserved};
use super::{Copy, Cross, Piece, Policy, RxPlain, Side, Stretch, TxPlain};
use crate::layout::RING_SLOTS;
use crate::state::stats::VifStats;
use grantway_hypervisor::{Access, DomId, Error, GrantRef, Mapper};
use grantway_ring::SharedRun;
use std::sync::Arc;
use std::time::Instant;

/// Most pages mapped for one queue: no more can be on their way.
const QUEUE_PAGES: usize = RING_SLOTS;
/// Turns in which packets are copied after a run could not be mapped: to find
/// out why costs the platform as much as mapping it twice.
const PAUSE: u32 = 64;

/// One queue's pages on their way.
pub struct Map {
    copy: Copy,
    mapper: Arc<dyn Mapper>,
    guest: DomId,
    quota: Arc<Quota>,
    runs: Vec<Run>,
    pages: usize,
    grefs: Vec<GrantRef>,
    /// Turns until the next attempt.
    pause: u32,
}

/// Pages that were mapped together.
struct Run {
    // Dropped in this order: first unmapped, then no longer counted.
    _pages: SharedRun,
    _reserved: Reserved,
}

impl Map {
    /// Nothing is mapped yet; what will be counts against `quota`, which the
    /// vif's queues share.
    #[must_use]
    pub fn new(mapper: Arc<dyn Mapper>, guest: DomId, quota: Arc<Quota>) -> Self {
        let copy = Copy::new(Arc::clone(&mapper), guest);
        let grefs = Vec::with_capacity(QUEUE_PAGES);
        Self { copy, mapper, guest, quota, runs: Vec::new(), pages: 0, grefs, pause: 0 }
    }
}

impl Policy for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn fetch(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        self.copy.fetch(pieces, arena)
    }

    fn store(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error> {
        self.copy.store(pieces, arena)
    }

    fn fetch_plain(
        &mut self,
        slots: &[[u32; 3]],
        plain: &mut TxPlain,
        arena: &mut [u8],
    ) -> Result<bool, Error> {
        self.copy.fetch_plain(slots, plain, arena)
    }

    fn store_plain(&mut self, plain: &mut RxPlain, arena: &mut [u8]) -> Result<bool, Error> {
        self.copy.store_plain(plain, arena)
    }

    fn side(&mut self, gref: GrantRef, offset: u16) -> Side<'_> {
        self.copy.side(gref, offset)
    }

    fn cross(&mut self, sender: &mut dyn Policy, crosses: &mut [Cross]) -> Result<(), Error> {
        self.copy.cross(sender, crosses)
    }

    fn maps(&self) -> bool {
        true
    }

    fn room(&self) -> usize {
        if self.pause > 0 || self.pages >= QUEUE_PAGES {
            return 0;
        }
        self.quota.room().min(QUEUE_PAGES - self.pages)
    }

    fn map(&mut self, stretches: &mut [Stretch]) -> bool {
        // Another queue of the vif may be faster.
        let Some(reserved) = self.quota.reserve(stretches.len()) else { return false };
        self.grefs.clear();
        self.grefs.extend(stretches.iter().map(|stretch| stretch.gref));
        let Ok(pages) = self.mapper.map(self.guest, &self.grefs, Access::ReadOnly) else {
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

    fn mapped(&self) -> usize {
        self.pages
    }

    fn unmap(&mut self) {
        self.runs.clear();
        self.pages = 0;
    }

    fn end_turn(&mut self, idle: bool, _: &dyn Fn() -> Instant, _: &VifStats) -> Option<Instant> {
        if !idle {
            self.pause = self.pause.saturating_sub(1);
        }
        None
    }
}
