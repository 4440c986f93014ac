//! The vifs whose control rings may have requests. Each gets a burst in turn, until the work of a
//! step is done.

use super::ctrl::{BURST_WORK, REQUEST_WORK, Served};
use crate::ids::VifId;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Work of one step for control rings, in the unit of [`ctrl`](super::ctrl). Vifs with further
/// requests wait for the next step. Meanwhile other vifs connect and leave.
const STEP_WORK: usize = 2 * BURST_WORK;

/// Most work of the control thread in one step: for control requests, and for lists that a killed
/// process had staged. The unit is one page that is mapped or unmapped. Other work counts as the
/// pages that take as long. A burst begins below the work of a step, and its last request begins
/// below the work of a burst.
pub const CONTROL_WORK_MAX: usize = (STEP_WORK - 1) + (BURST_WORK - 1) + REQUEST_WORK;

/// Vifs whose control rings may have requests.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    vifs: BTreeSet<VifId>,
    /// The vif that was served last.
    last: Option<VifId>,
    /// Most work that one step has done so far.
    most_work: usize,
}

/// One step's bursts.
#[derive(Debug)]
pub(crate) struct Bursts {
    /// Bursts that the step may still give: no vif gets two.
    left: usize,
    work: usize,
}

impl Asked {
    /// Adds a vif.
    pub fn add(&mut self, id: VifId) {
        self.vifs.insert(id);
    }

    /// Begins the bursts of a step, or returns `None` if no vif is there.
    pub fn begin(&self) -> Option<Bursts> {
        (!self.vifs.is_empty()).then_some(Bursts { left: self.vifs.len(), work: 0 })
    }

    /// Takes the vif that gets the step's next burst: the first one behind the vif that was served
    /// last. Returns `None` if the step is over.
    pub fn next(&mut self, bursts: &mut Bursts) -> Option<VifId> {
        bursts.left = bursts.left.checked_sub(1).filter(|_| bursts.work < STEP_WORK)?;
        let behind = self.last.map(|last| (Bound::Excluded(last), Bound::Unbounded));
        let next = behind.and_then(|behind| self.vifs.range(behind).next());
        let id = next.or_else(|| self.vifs.first()).copied()?;
        self.vifs.remove(&id);
        self.last = Some(id);
        Some(id)
    }

    /// Notes what a vif's burst did. A vif with more requests waits for the next step.
    pub fn served(&mut self, bursts: &mut Bursts, id: VifId, served: Served) {
        bursts.work += served.work;
        self.most_work = self.most_work.max(bursts.work);
        if served.more {
            self.vifs.insert(id);
        }
    }

    /// Returns the most work that one step has done so far.
    pub fn most_work(&self) -> usize {
        self.most_work
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_hypervisor::DomId;

    fn vif(domain: u16) -> VifId {
        VifId { domain: DomId(domain), devid: 0 }
    }

    fn burst(work: usize) -> Served {
        let mut served = Served::default();
        (served.work, served.more) = (work, true);
        served
    }

    #[test]
    fn each_vif_gets_a_burst_before_one_gets_a_second() {
        let mut asked = Asked::default();
        assert!(asked.begin().is_none());
        for domain in [3, 1, 2] {
            asked.add(vif(domain));
        }
        // Two bursts are the work of a step, so the third vif comes first in the next.
        let mut order = Vec::new();
        for _ in 0..2 {
            let mut bursts = asked.begin().unwrap();
            while let Some(id) = asked.next(&mut bursts) {
                asked.served(&mut bursts, id, burst(BURST_WORK));
                order.push(id);
            }
        }
        assert_eq!(order, [1, 2, 3, 1].map(vif));
        assert_eq!(asked.most_work(), STEP_WORK);
    }

    #[test]
    fn a_vif_without_further_requests_is_left_out() {
        let mut asked = Asked::default();
        asked.add(vif(1));
        let mut bursts = asked.begin().unwrap();
        let id = asked.next(&mut bursts).unwrap();
        asked.served(&mut bursts, id, Served::default());
        assert_eq!((asked.next(&mut bursts), asked.begin().is_none()), (None, true));
    }

    #[test]
    fn a_vif_with_little_work_gets_one_burst_a_step_all_the_same() {
        let mut asked = Asked::default();
        asked.add(vif(1));
        let mut bursts = asked.begin().unwrap();
        let id = asked.next(&mut bursts).unwrap();
        asked.served(&mut bursts, id, burst(1));
        assert_eq!(asked.next(&mut bursts), None);
        assert!(asked.begin().is_some(), "it has more for the next step");
    }
}
