//! Limits on mapped memory of guests, without the rings: for each vif a part of the process's
//! memory, over all queues of the vif.
//!
//! A process and a domain can map only a limited number of areas and pages. All vifs share that
//! number, and no vif may have more than it leaves free. Rings have a part of their own, which
//! buffers never take. If no room is left for a vif, its packets are copied.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most areas of one queue that stay mapped, staged or persistent. At this number, small areas are
/// mapped again as one.
pub const QUEUE_AREAS: usize = 16;

/// Amount of mapped memory of guests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// Number of pages.
    pub pages: usize,
    /// Number of areas of our address space with these pages: one for each map call.
    pub areas: usize,
}

/// Limit of the memory that all vifs of a process may have mapped, without the rings.
#[derive(Debug)]
pub struct Budget {
    limit: Mapped,
    used: Used,
    /// Lock for changes of the used amount, here and in the part of a vif.
    changes: Mutex<()>,
}

/// Amount of mapped memory. Changes need the budget's lock; reads do not.
#[derive(Debug, Default)]
struct Used {
    pages: AtomicUsize,
    areas: AtomicUsize,
}

impl Used {
    #[inline]
    fn now(&self) -> Mapped {
        Mapped { pages: self.pages.load(Relaxed), areas: self.areas.load(Relaxed) }
    }

    fn set(&self, Mapped { pages, areas }: Mapped) {
        self.pages.store(pages, Relaxed);
        self.areas.store(areas, Relaxed);
    }
}

impl Budget {
    /// Returns a budget with room for `limit`.
    #[must_use]
    pub fn new(limit: Mapped) -> Arc<Self> {
        Arc::new(Self { limit, used: Used::default(), changes: Mutex::default() })
    }

    /// Returns the most that may be mapped.
    #[must_use]
    pub fn limit(&self) -> Mapped {
        self.limit
    }

    /// Returns the memory that is mapped now.
    #[must_use]
    pub fn used(&self) -> Mapped {
        self.used.now()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of one vif, and the amount of it that is in use.
#[derive(Debug)]
pub struct Quota {
    budget: Arc<Budget>,
    limit: usize,
    used: Used,
}

impl Quota {
    /// Returns a quota of `limit` pages for a vif that shares with no other vif.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        let twice = Mapped { pages: 2 * limit, areas: usize::MAX };
        Self::within(&Budget::new(twice), limit)
    }

    /// Returns a quota of `limit` pages within the budget of all vifs.
    #[must_use]
    pub fn within(budget: &Arc<Budget>, limit: usize) -> Arc<Self> {
        Arc::new(Self { budget: Arc::clone(budget), limit, used: Used::default() })
    }

    /// Returns the most pages that the vif may have mapped, if other vifs leave enough.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the memory of the vif that is mapped now.
    #[must_use]
    pub fn used(&self) -> Mapped {
        self.used.now()
    }

    /// Returns the number of pages that may be mapped now, as one area. Another queue or vif may
    /// take them before.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        let (own, used, limit) = (self.used.now(), self.budget.used.now(), self.budget.limit);
        // After mapping these pages the vif has no more than is free.
        let fair = |limit: usize, used: usize, own: usize| {
            limit.saturating_sub(used).saturating_sub(own) / 2
        };
        if fair(limit.areas, used.areas, own.areas) == 0 {
            return 0;
        }
        fair(limit.pages, used.pages, own.pages).min(self.limit.saturating_sub(own.pages))
    }

    /// Reserves room for exactly `pages` pages, as one area. Returns `None` if there is less room,
    /// or if `pages` is 0.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, pages: usize) -> Option<Reserved> {
        let _changes = self.budget.lock();
        if pages == 0 || pages > self.room() {
            return None;
        }
        for used in [&self.budget.used, &self.used] {
            let now = used.now();
            used.set(Mapped { pages: now.pages + pages, areas: now.areas + 1 });
        }
        Some(Reserved { quota: Arc::clone(self), held: Mapped { pages, areas: 1 } })
    }
}

/// Room that is reserved as long as this value exists.
#[derive(Debug)]
pub struct Reserved {
    quota: Arc<Quota>,
    held: Mapped,
}

impl Reserved {
    /// Gives back the room of `pages` pages, at most all of them.
    pub fn shrink(&mut self, pages: usize) {
        self.give_back(Mapped { pages: pages.min(self.held.pages), areas: 0 });
    }

    /// Takes over the room that was reserved for other pages of the vif. From now on all these
    /// pages are one area.
    pub fn join(&mut self, mut other: Self) {
        let pages = std::mem::take(&mut other.held.pages);
        self.held.pages += pages;
    }

    fn give_back(&mut self, part: Mapped) {
        let _changes = self.quota.budget.lock();
        for used in [&self.quota.budget.used, &self.quota.used] {
            let now = used.now();
            used.set(Mapped { pages: now.pages - part.pages, areas: now.areas - part.areas });
        }
        self.held.pages -= part.pages;
        self.held.areas -= part.areas;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.give_back(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MAX_QUEUES;
    use crate::policy::PolicyLimits;

    #[test]
    fn reserved_room_is_given_back_to_the_page_and_area() {
        let budget = Budget::new(Mapped { pages: 1000, areas: 100 });
        let quota = Quota::within(&budget, 300);
        let mut one = quota.reserve(200).unwrap();
        let two = quota.reserve(60).unwrap();
        assert_eq!(quota.used(), Mapped { pages: 260, areas: 2 });
        assert!(quota.reserve(41).is_none(), "more than the vif's limit");
        one.join(two);
        assert_eq!(budget.used(), Mapped { pages: 260, areas: 1 });
        one.shrink(250);
        assert_eq!(quota.used(), Mapped { pages: 10, areas: 1 });
        one.shrink(11);
        assert_eq!(budget.used(), Mapped { pages: 0, areas: 1 });
        drop(one);
        assert_eq!((budget.used(), quota.used()), (Mapped::default(), Mapped::default()));
    }

    /// A vif that takes all it can leaves as much free as it has.
    #[test]
    fn no_vif_gets_more_than_it_leaves_free() {
        for limit in [Mapped { pages: 10_000, areas: 100 }, Mapped { pages: 1 << 20, areas: 50 }] {
            let budget = Budget::new(limit);
            let mut held = Vec::new();
            for vif in 0..4 {
                let quota = Quota::within(&budget, 1 << 20);
                let before = held.len();
                while let Some(reserved) = quota.reserve(100) {
                    held.push(reserved);
                }
                let (used, own) = (budget.used(), quota.used());
                assert!(held.len() > before, "vif {vif} has something");
                assert!(own.pages <= limit.pages - used.pages, "vif {vif}: {own:?}");
                assert!(own.areas <= limit.areas - used.areas, "vif {vif}: {own:?}");
            }
            drop(held);
            assert_eq!(budget.used(), Mapped::default());
        }
    }

    /// By default each of 16 vifs may take as much as a vif can, and so can the next.
    #[test]
    fn sixteen_greedy_vifs_leave_room_for_the_next() {
        let limits = PolicyLimits::default();
        let budget = Budget::new(limits.all);
        let areas = QUEUE_AREAS * MAX_QUEUES as usize;
        let mut held = Vec::new();
        for _ in 0..=16 {
            let quota = Quota::within(&budget, limits.pages);
            let some = (0..areas).map(|_| quota.reserve(limits.pages / areas));
            held.extend(some.map(|reserved| reserved.expect("room")));
            assert_eq!(quota.used(), Mapped { pages: limits.pages, areas });
            assert!(quota.reserve(1).is_none());
        }
        assert_eq!(held.len(), 17 * areas);
    }
}
