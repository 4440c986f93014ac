//! The policy persistent (seed 000, `feature-persistent`). The frontend uses the same pages again
//! and again. So a page is mapped after its first use, and then the processor moves its bytes.
//!
//! The first use of a page is a grant copy. At the end of the turn, the page is mapped together
//! with all others of that turn that are used alike: one run, one area of memory. If no more may be
//! mapped, the page uses grant copy.
//!
//! Pages that were not used for a minute are unmapped, a few runs at a time. The other pages of
//! their run are then mapped again. So a run of which more than half is in use is spared for
//! another minute, and an idle page is unmapped within three minutes. The same is true for the
//! first mapping of a page that was mapped again to be written. Clocks are read late, and looks
//! take turns, so a minute is up to 85 seconds.

use super::Grants;
use super::quota::{QUEUE_AREAS, Quota, Reserved};
use super::table::{GrefTable, Mapping, secret};
use crate::ids::QUEUE_PAGES;
use crate::state::stats::VifStats;
use grantway_hypervisor::{Access, GrantRef};
use grantway_ring::SharedRun;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most pages that one turn may have mapped.
const PAGES_A_TURN: usize = 512;
/// Pause between two looks for unused pages.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Runs that one look examines.
const RUNS_A_LOOK: usize = QUEUE_AREAS / 4;
/// Time that an unused page stays mapped, in seconds: a minute, and the time by which a stamp may
/// be late.
const KEPT: u32 = 60 + LOOK_EVERY.as_secs() as u32;
/// Turns that moved packets for each reading of the clock.
const TURNS_A_CLOCK: u32 = 64;

/// The mappings of one queue.
#[derive(Debug)]
pub(super) struct Persistent {
    grants: Grants,
    table: GrefTable,
    quota: Arc<Quota>,
    runs: VecDeque<Run>,
    last_run: u32,
    sighted: Sighted,
    turns: u32,
    /// Time at which the first page was mapped, from which the table's stamps count.
    start: Option<Instant>,
    look_at: Option<Instant>,
}

/// Pages that a turn saw and had not mapped.
#[derive(Debug, Default)]
pub(super) struct Sighted {
    pages: Vec<(GrantRef, Access)>,
    /// True if a page could not be mapped: no page is mapped until the next look.
    paused: bool,
}

impl Sighted {
    pub fn note(&mut self, gref: GrantRef, access: Access) {
        if !self.paused && self.pages.len() < PAGES_A_TURN {
            self.pages.push((gref, access));
        }
    }
}

/// Pages that were mapped together.
#[derive(Debug)]
struct Run {
    id: u32,
    access: Access,
    grefs: Vec<GrantRef>,
    /// Stamp of the look that found idle pages first, and left them.
    spared: Option<u32>,
    // The fields are dropped in this order: pages are unmapped first, then no longer counted.
    _pages: SharedRun,
    reserved: Reserved,
}

impl Persistent {
    /// Returns the mappings of a queue, of which there are none yet. Pages that will be mapped
    /// count against `quota`, which the vif's queues share.
    pub fn new(grants: Grants, quota: Arc<Quota>) -> Self {
        Self {
            grants,
            table: GrefTable::new(QUEUE_PAGES.min(quota.limit()), secret()),
            quota,
            runs: VecDeque::new(),
            last_run: 0,
            sighted: Sighted::default(),
            turns: 0,
            start: None,
            look_at: None,
        }
    }

    /// Returns the table of the pages that are mapped.
    #[inline(always)]
    pub fn table(&mut self) -> &mut GrefTable {
        &mut self.table
    }

    /// Notes the use of a page that is not mapped for this access.
    pub fn sights(&mut self, gref: GrantRef, access: Access) {
        self.sighted.note(gref, access);
    }

    /// Maps the pages that the turn saw, as far as there is room.
    fn map_sighted(&mut self, stats: &VifStats) {
        // If a page was both read and written, the write comes first, and the read is dropped.
        let mut sighted = std::mem::take(&mut self.sighted.pages);
        sighted.sort_unstable_by_key(|&(gref, access)| (gref, access == Access::ReadOnly));
        sighted.dedup_by_key(|&mut (gref, _)| gref);
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let wanted = sighted.iter().filter(|&&(gref, wanted)| {
                let there = self.table.peek(gref).map(|mapping| mapping.access);
                wanted == access && there != Some(access) && there != Some(Access::ReadWrite)
            });
            let grefs: Vec<_> = wanted.map(|&(gref, _)| gref).take(self.table.room()).collect();
            if !grefs.is_empty() && !self.map(grefs, access, stats) {
                self.sighted.paused = true;
                break;
            }
        }
        sighted.clear();
        self.sighted.pages = sighted;
    }

    fn map(&mut self, mut grefs: Vec<GrantRef>, access: Access, stats: &VifStats) -> bool {
        if self.runs.len() >= QUEUE_AREAS {
            self.merge(stats);
        }
        grefs.truncate(self.quota.room());
        // Another queue of the vif may be faster.
        let Some(reserved) = self.quota.reserve(grefs.len()) else { return false };
        let Ok(pages) = self.grants.map(&grefs, access) else { return false };
        let (id, used) = (self.next_run(), self.table.stamp);
        for (index, &gref) in grefs.iter().enumerate() {
            if let Some(page) = pages.page(index) {
                // A page without a place in the table is not found, and is unmapped with the run.
                let _ = self.table.insert(gref, Mapping::new(page, access, id, used));
            }
        }
        VifStats::add(&stats.mapped_pages, grefs.len() as u64);
        self.runs.push_back(Run { id, access, grefs, spared: None, _pages: pages, reserved });
        true
    }

    /// Maps the smaller half of the runs anew as one, of the runs with the more frequent access. So
    /// a guest that shows its pages one by one has as few areas as any other.
    fn merge(&mut self, stats: &VifStats) {
        let reads = self.runs.iter().filter(|run| run.access == Access::ReadOnly).count();
        let most = if 2 * reads >= self.runs.len() { Access::ReadOnly } else { Access::ReadWrite };
        let (mut small, others): (Vec<_>, Vec<_>) =
            self.runs.drain(..).partition(|run| run.access == most);
        small.sort_by_key(|run| run.grefs.len());
        let kept = small.split_off(small.len() / 2);
        self.runs.extend(others.into_iter().chain(kept));
        self.replace(small, most, |_| true, stats);
    }

    /// Returns the references that the table finds by this run, and the stamp of each when it was
    /// last asked for.
    fn found(&self, run: &Run) -> Vec<(GrantRef, u32)> {
        let by_run = |gref| self.table.peek(gref).filter(|mapping| mapping.run == run.id);
        let used = |&gref: &GrantRef| Some((gref, by_run(gref)?.used.get()));
        run.grefs.iter().filter_map(used).collect()
    }

    /// Replaces runs by one run. A page stays if `stays` accepts the stamp at which it was last
    /// asked for. If the new run cannot be mapped, all pages go, to be mapped when they are seen
    /// again.
    fn replace(
        &mut self,
        runs: Vec<Run>,
        access: Access,
        stays: impl Fn(u32) -> bool,
        stats: &VifStats,
    ) {
        let mut stay: Vec<_> = runs.iter().flat_map(|run| self.found(run)).collect();
        for &(gref, _) in &stay {
            self.table.remove(gref);
        }
        stay.retain(|&(_, used)| stays(used));
        // The pages that stay are mapped anew as one run.
        let grefs: Vec<_> = stay.iter().map(|&(gref, _)| gref).collect();
        let pages = match grefs.is_empty() {
            true => None,
            false => self.grants.map(&grefs, access).ok(),
        };
        self.sighted.paused |= pages.is_none() && !grefs.is_empty();
        let before: usize = runs.iter().map(|run| run.grefs.len()).sum();
        // The old runs are unmapped here, the pages of each before its room is given back.
        let mut rooms = Vec::new();
        for Run { _pages: pages, reserved, .. } in runs {
            drop(pages);
            rooms.push(reserved);
        }
        let Some((pages, mut reserved)) = pages.zip(rooms.pop()) else {
            VifStats::add(&stats.mapped_evicted, before as u64);
            return;
        };
        // The room of the old runs goes to the new one, and is never free in between.
        rooms.into_iter().for_each(|room| reserved.join(room));
        reserved.shrink(before - grefs.len());
        VifStats::add(&stats.mapped_evicted, (before - grefs.len()) as u64);
        let id = self.next_run();
        for (index, (gref, used)) in stay.into_iter().enumerate() {
            if let Some(page) = pages.page(index) {
                let _ = self.table.insert(gref, Mapping::new(page, access, id, used));
            }
        }
        self.runs.push_back(Run { id, access, grefs, spared: None, _pages: pages, reserved });
    }

    fn next_run(&mut self) -> u32 {
        self.last_run = self.last_run.wrapping_add(1);
        self.last_run
    }

    /// Unmaps pages that were not used in [`KEPT`] seconds, in runs of which at most half is in
    /// use, and in other runs once they were spared for as long.
    fn look(&mut self, stats: &VifStats) {
        self.sighted.paused = false;
        for _ in 0..RUNS_A_LOOK.min(self.runs.len()) {
            let Some(mut run) = self.runs.pop_front() else { break };
            let now = self.table.stamp;
            let fresh = move |used: u32| now.saturating_sub(used) < KEPT;
            let in_use = self.found(&run).iter().filter(|&&(_, used)| fresh(used)).count();
            let since = (in_use < run.grefs.len()).then(|| run.spared.unwrap_or(now));
            run.spared = since;
            if in_use * 2 > run.grefs.len() && since.is_none_or(fresh) {
                self.runs.push_back(run);
            } else {
                let access = run.access;
                self.replace(vec![run], access, fresh, stats);
            }
        }
    }

    /// Ends a turn and returns the time of the next look, as
    /// [`Buffers::end_turn`](super::Buffers::end_turn) says.
    pub fn end_turn(
        &mut self,
        idle: bool,
        now: &dyn Fn() -> Instant,
        stats: &VifStats,
    ) -> Option<Instant> {
        if !self.sighted.pages.is_empty() {
            self.map_sighted(stats);
        }
        if self.runs.is_empty() && !self.sighted.paused {
            self.look_at = None;
            return None;
        }
        self.turns = self.turns.wrapping_add(1);
        if !idle && !self.turns.is_multiple_of(TURNS_A_CLOCK) && self.look_at.is_some() {
            return self.look_at;
        }
        let now = now();
        let start = *self.start.get_or_insert(now);
        if *self.look_at.get_or_insert(now + LOOK_EVERY) <= now {
            // A hundred years of seconds fit.
            self.table.stamp = now.saturating_duration_since(start).as_secs() as u32;
            self.look(stats);
            self.look_at = Some(now + LOOK_EVERY);
        }
        self.look_at
    }
}
