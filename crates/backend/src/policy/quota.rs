//! How much of guests' memory may be mapped beside the rings: a part of what the process
//! has for each vif, over all its queues.
//!
//! What maps is limited for a process and for a domain (areas of its address space, pages
//! that Xen keeps account of), so all vifs share it: none may have more than it leaves
//! free, and rings have a part of their own that no buffer takes. Who finds no room has
//! its packets copied.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most areas of one queue that stay mapped, staged or persistent: with more, small ones
/// are mapped anew as one.
pub const QUEUE_AREAS: usize = 16;

/// Memory of guests that is mapped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// Pages.
    pub pages: usize,
    /// Areas of our address space that they are in: a map call each.
    pub areas: usize,
}

/// What all vifs of a process may have mapped together, rings not counted.
#[derive(Debug)]
pub struct Budget {
    limit: Mapped,
    used: Used,
    /// Who changes what is used, here and in a part of it.
    changes: Mutex<()>,
}

/// What is mapped; changed under the budget's lock, and read by anybody.
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
    /// Room for so much.
    #[must_use]
    pub fn new(limit: Mapped) -> Arc<Self> {
        Arc::new(Self { limit, used: Used::default(), changes: Mutex::default() })
    }

    /// Most that may be mapped.
    #[must_use]
    pub fn limit(&self) -> Mapped {
        self.limit
    }

    /// What is mapped now.
    #[must_use]
    pub fn used(&self) -> Mapped {
        self.used.now()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of one vif, and what of it is in use.
#[derive(Debug)]
pub struct Quota {
    budget: Arc<Budget>,
    limit: usize,
    used: Used,
}

impl Quota {
    /// Room for `limit` pages, for a vif that shares with nobody.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        let twice = Mapped { pages: 2 * limit, areas: usize::MAX };
        Self::within(&Budget::new(twice), limit)
    }

    /// Room for `limit` pages of what all vifs share.
    #[must_use]
    pub fn within(budget: &Arc<Budget>, limit: usize) -> Arc<Self> {
        Arc::new(Self { budget: Arc::clone(budget), limit, used: Used::default() })
    }

    /// Most pages that may be mapped at once, whatever others leave.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// What is mapped now.
    #[must_use]
    pub fn used(&self) -> Mapped {
        self.used.now()
    }

    /// Pages that may be mapped now, as one area. Another queue or vif may be faster.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        let (own, used, limit) = (self.used.now(), self.budget.used.now(), self.budget.limit);
        // Afterwards the vif has no more than is free.
        let fair = |limit: usize, used: usize, own: usize| {
            limit.saturating_sub(used).saturating_sub(own) / 2
        };
        if fair(limit.areas, used.areas, own.areas) == 0 {
            return 0;
        }
        fair(limit.pages, used.pages, own.pages).min(self.limit.saturating_sub(own.pages))
    }

    /// Sets room aside for exactly so many pages, which are one area; none where there is
    /// less.
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

/// Room that was set aside, for as long as this lives.
#[derive(Debug)]
pub struct Reserved {
    quota: Arc<Quota>,
    held: Mapped,
}

impl Reserved {
    /// Gives some of its pages back.
    pub fn shrink(&mut self, pages: usize) {
        self.give_back(Mapped { pages: pages.min(self.held.pages), areas: 0 });
    }

    /// Takes over what was set aside for other pages of the vif, which are in one area
    /// with these from now on.
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
    fn what_is_set_aside_is_given_back_to_the_page_and_area() {
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

    /// Whoever takes all that it can leaves as much free as it has.
    #[test]
    fn none_has_more_than_it_leaves_free() {
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

    /// By default 16 vifs may take as much as each of them can, and the next can, too.
    #[test]
    fn sixteen_that_take_all_leave_as_much_for_the_next() {
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
