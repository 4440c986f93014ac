//! The persistent policy (seed 000, `feature-persistent`): the frontend uses the
//! same pages again and again, so a page is mapped once it was seen, and bytes
//! go in and out by the processor from then on.
//!
//! A page seen for the first time takes grant copy, and is mapped when the turn
//! is over, together with all others of that turn: one run, one area of memory.
//! Where no mapping is left it takes grant copy for as long as that lasts. What
//! nobody asked for in a minute is unmapped, a few runs at a time.

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

/// Pages that one turn may have mapped.
const PAGES_A_TURN: usize = 512;
/// How often there is a look for pages that nobody asks for, and how many runs
/// one looks at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const RUNS_A_LOOK: usize = QUEUE_AREAS / 4;
/// How long such a page stays mapped, in seconds: a minute, and the time by which
/// a stamp may be late.
const KEPT: u32 = 60 + LOOK_EVERY.as_secs() as u32;
/// Of how many turns that moved packets one reads the clock.
const TURNS_A_CLOCK: u32 = 64;

/// One queue's mappings.
#[derive(Debug)]
pub(super) struct Persistent {
    grants: Grants,
    table: GrefTable,
    quota: Arc<Quota>,
    runs: VecDeque<Run>,
    last_run: u32,
    sighted: Sighted,
    turns: u32,
    /// When the first page was mapped, from which the table's stamps count.
    start: Option<Instant>,
    look_at: Option<Instant>,
}

/// What a turn saw and had not mapped.
#[derive(Debug, Default)]
pub(super) struct Sighted {
    pages: Vec<(GrantRef, Access)>,
    /// A page could not be mapped: none is until the next look.
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
    // Dropped in this order: first unmapped, then no longer counted.
    _pages: SharedRun,
    reserved: Reserved,
}

impl Persistent {
    /// Nothing is mapped yet; what will be counts against `quota`, which the vif's queues
    /// share.
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

    /// The pages that are mapped.
    #[inline(always)]
    pub fn table(&mut self) -> &mut GrefTable {
        &mut self.table
    }

    /// A page that is not mapped for this was used.
    pub fn sights(&mut self, gref: GrantRef, access: Access) {
        self.sighted.note(gref, access);
    }

    /// Maps what the turn saw, as far as there is room.
    fn map_sighted(&mut self, stats: &VifStats) {
        // Where a page was both read and written, the latter comes first.
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
                // Where there is no place for it, it is not found, and goes with
                // the run.
                let _ = self.table.insert(gref, Mapping::new(page, access, id, used));
            }
        }
        VifStats::add(&stats.mapped_pages, grefs.len() as u64);
        self.runs.push_back(Run { id, access, grefs, _pages: pages, reserved });
        true
    }

    /// Maps the smaller half of the runs anew as one, of those that are mapped alike: a
    /// guest that shows its pages one by one has as few areas as any other.
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

    /// Those of a run that are found by it, and when each was last asked for.
    fn found(&self, run: &Run) -> Vec<(GrantRef, u32)> {
        let by_run = |gref| self.table.peek(gref).filter(|mapping| mapping.run == run.id);
        let used = |&gref: &GrantRef| Some((gref, by_run(gref)?.used.get()));
        run.grefs.iter().filter_map(used).collect()
    }

    /// Has one run in the place of others, of whose pages those stay that were asked for at
    /// such a time. Where it cannot be mapped they all go, to be mapped when they are seen
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
        let grefs: Vec<_> = stay.iter().map(|&(gref, _)| gref).collect();
        let pages = match grefs.is_empty() {
            true => None,
            false => self.grants.map(&grefs, access).ok(),
        };
        self.sighted.paused |= pages.is_none() && !grefs.is_empty();
        let before: usize = runs.iter().map(|run| run.grefs.len()).sum();
        // Unmapped here, each run's pages before its room is given back.
        let mut rooms = Vec::new();
        for Run { _pages: pages, reserved, .. } in runs {
            drop(pages);
            rooms.push(reserved);
        }
        let Some((pages, mut reserved)) = pages.zip(rooms.pop()) else {
            VifStats::add(&stats.mapped_evicted, before as u64);
            return;
        };
        rooms.into_iter().for_each(|room| reserved.join(room));
        reserved.shrink(before - grefs.len());
        VifStats::add(&stats.mapped_evicted, (before - grefs.len()) as u64);
        let id = self.next_run();
        for (index, (gref, used)) in stay.into_iter().enumerate() {
            if let Some(page) = pages.page(index) {
                let _ = self.table.insert(gref, Mapping::new(page, access, id, used));
            }
        }
        self.runs.push_back(Run { id, access, grefs, _pages: pages, reserved });
    }

    fn next_run(&mut self) -> u32 {
        self.last_run = self.last_run.wrapping_add(1);
        self.last_run
    }

    /// Unmaps what nobody asked for in long: whole runs, and most of a run of which few
    /// pages are in use.
    fn look(&mut self, stats: &VifStats) {
        self.sighted.paused = false;
        for _ in 0..RUNS_A_LOOK.min(self.runs.len()) {
            let Some(run) = self.runs.pop_front() else { break };
            let now = self.table.stamp;
            let fresh = move |used: u32| now.saturating_sub(used) < KEPT;
            let in_use = self.found(&run).iter().filter(|&&(_, used)| fresh(used)).count();
            if in_use * 2 > run.grefs.len() {
                self.runs.push_back(run);
            } else {
                let access = run.access;
                self.replace(vec![run], access, fresh, stats);
            }
        }
    }

    /// As [`Buffers::end_turn`](super::Buffers::end_turn).
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
