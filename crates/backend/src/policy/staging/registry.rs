//! The staged pages of a vif: lists that may be added, and pages that are unmapped.
//!
//! A list of the guest arrives as an owned copy of its entries. One message at a time changes a
//! vif's lists. So a reference that is staged on one queue is found as a duplicate on another.

use super::lease::Lender;
use crate::ids::QUEUE_PAGES;
use crate::policy::PolicyLimits;
use crate::policy::quota::{QUEUE_AREAS, Quota, Reserved};
use crate::policy::table::Mapping;
use grantway_hypervisor::{Access, DomId, Error, GrantRef, Mapper};
use grantway_netif::ctrl::{BadList, GREF_LIST_ENTRIES, GrefEntry, GrefFlags, Status, check_added};
use grantway_ring::SharedRun;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most areas of one queue that are mapped alike, to be read or to be written.
const AREAS_ALIKE: usize = QUEUE_AREAS / 2;

/// Reason why a list was not staged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StagingError {
    /// The list itself is invalid.
    #[error(transparent)]
    List(#[from] BadList),
    /// The reference is staged already.
    #[error("entry {entry}: reference {gref} is staged already, on queue {queue}")]
    Duplicate {
        /// Number of the entry in the list, from 0.
        entry: usize,
        /// The reference.
        gref: GrantRef,
        /// Queue on which the reference is staged.
        queue: u16,
    },
    /// The list has more entries than there is room for.
    #[error(
        "{found} pages, of which {room} can be staged now; stage fewer, or raise --mapped-pages"
    )]
    Room {
        /// Entries of the list.
        found: usize,
        /// Pages that this queue, or its vif, may still have staged.
        room: usize,
    },
    /// A page of the list cannot be mapped.
    #[error(transparent)]
    Map(#[from] Error),
    /// The queue's worker does not end its turn.
    #[error("the queue did not end its turn")]
    InUse,
    /// The connection is over.
    #[error("the vif is not connected any more")]
    Closed,
}

impl StagingError {
    /// Returns the status of the control response.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::InvalidParameter
    }
}

/// The pages that are staged for one vif during one connection.
pub struct Staged {
    mapper: Arc<dyn Mapper>,
    guest: DomId,
    quota: Arc<Quota>,
    queues: Vec<Arc<Lender>>,
    ledger: Mutex<Ledger>,
    /// Pages that were mapped and unmapped, or tried to be, since the last
    /// [`StagedQueue::take_work`].
    work: AtomicUsize,
}

#[derive(Debug, Default)]
struct Ledger {
    /// Queue on which a reference is staged, and the run in which it was mapped.
    owner: HashMap<GrantRef, (u16, u32)>,
    runs: BTreeMap<u32, Run>,
    last_run: u32,
    /// True once the connection is over. Then nothing is staged any more.
    closed: bool,
}

/// Pages that were mapped together, and are unmapped together.
#[derive(Debug)]
struct Run {
    queue: u16,
    access: Access,
    grefs: Vec<GrantRef>,
    // The fields are dropped in this order: pages are unmapped first, then no longer counted.
    pages: SharedRun,
    reserved: Reserved,
}

impl Staged {
    /// Returns the staging state of a vif with `queues` queues. No page is staged yet.
    #[must_use]
    pub fn new(mapper: Arc<dyn Mapper>, guest: DomId, queues: u16, quota: Arc<Quota>) -> Arc<Self> {
        Self::with_lease(mapper, guest, queues, quota, PolicyLimits::default().lease)
    }

    /// Returns the staged pages like [`Staged::new`]. A change waits for `lease` for a turn that
    /// uses staged pages ([`PolicyLimits::lease`]).
    #[must_use]
    pub fn with_lease(
        mapper: Arc<dyn Mapper>,
        guest: DomId,
        queues: u16,
        quota: Arc<Quota>,
        lease: Duration,
    ) -> Arc<Self> {
        let lender = |_| Arc::new(Lender::new(QUEUE_PAGES.min(quota.limit()), lease));
        let queues = (0..queues).map(lender).collect();
        let (ledger, work) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { mapper, guest, quota, queues, ledger, work })
    }

    /// Maps pages of the guest's, counts that as work, and returns them.
    fn map(&self, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        let mapped = self.mapper.map(self.guest, grefs, access);
        // A failure counts twice: the platform finds the page that failed by as much work again.
        let times = 1 + usize::from(mapped.is_err());
        self.work.fetch_add(times * grefs.len(), Relaxed);
        mapped
    }

    /// Returns one of the vif's queues; `None` for a number that the vif does not have.
    #[must_use]
    pub fn queue(self: &Arc<Self>, number: u32) -> Option<StagedQueue> {
        let number = u16::try_from(number).ok()?;
        self.queues.get(usize::from(number))?;
        Some(StagedQueue { vif: Arc::clone(self), number })
    }

    /// Returns all queues of the vif, in order.
    pub fn queues(self: &Arc<Self>) -> impl Iterator<Item = StagedQueue> + '_ {
        (0..).map_while(|number| self.queue(number))
    }

    /// Returns the number of pages that are staged, on all queues.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.ledger().owner.len()
    }

    /// Unmaps everything, for good. The connection is over, and no worker has a queue of it.
    pub fn close(&self) {
        let mut ledger = self.ledger();
        ledger.closed = true;
        let mut mappings = Vec::new();
        for queue in &self.queues {
            mappings.push(queue.change(|table| table.drain()));
        }
        drop(mappings);
        ledger.owner.clear();
        ledger.runs.clear();
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The staged pages of one queue; any thread may ask.
#[derive(Clone)]
pub struct StagedQueue {
    vif: Arc<Staged>,
    number: u16,
}

impl StagedQueue {
    pub(super) fn lender(&self) -> Arc<Lender> {
        // The number was judged when this was made.
        Arc::clone(&self.vif.queues[usize::from(self.number)])
    }

    /// Returns the most pages that the queue may have staged (`GET_GREF_MAPPING_SIZE`). Its queues
    /// share the vif's quota, so there may be room for fewer.
    #[must_use]
    pub fn capacity(&self) -> usize {
        QUEUE_PAGES.min(self.vif.quota.limit())
    }

    /// Returns the number of pages that the queue has staged.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.vif.ledger().on_queue(self.number)
    }

    /// Returns the number of pages of the vif that were mapped and unmapped, or tried to be, since
    /// the last call.
    pub(super) fn take_work(&self) -> usize {
        self.vif.work.swap(0, Relaxed)
    }

    /// Stages a list of pages (`ADD_GREF_MAPPING`), all of them or none.
    ///
    /// # Errors
    ///
    /// [`StagingError`]; nothing of the list is mapped then.
    pub fn add(&self, entries: &[GrefEntry]) -> Result<(), StagingError> {
        let mut ledger = self.vif.ledger();
        if ledger.closed {
            return Err(StagingError::Closed);
        }
        // Everything is mapped before the table changes: an error must leave nothing of the list.
        self.judge(&ledger, entries)?;
        let mut runs = Vec::new();
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let grefs = entries.iter().filter(|entry| access_of(entry) == access);
            let grefs: Vec<_> = grefs.map(|entry| GrantRef(entry.gref)).collect();
            if !grefs.is_empty() {
                runs.push(self.map(&mut ledger, access, grefs)?);
            }
        }
        // The new pages go into the table between two turns; a failure takes them out again.
        let changed = self.lender().change(|table| {
            let mut done = Vec::new();
            for run in &runs {
                for (gref, mapping) in run.mappings().take(run.new) {
                    if table.insert(gref, mapping).is_err() {
                        done.iter().for_each(|&gref| drop(table.remove(gref)));
                        return Err(StagingError::Room { found: entries.len(), room: done.len() });
                    }
                    done.push(gref);
                }
            }
            // Pages of an area that is joined are in the table, so they have a place.
            let again = runs.iter().flat_map(|run| run.mappings().skip(run.new));
            let old = again.map(|(gref, mapping)| table.insert(gref, mapping).unwrap_or_else(Some));
            Ok(old.collect::<Vec<_>>())
        });
        drop(changed.map_err(|_| StagingError::InUse)??);
        // The ledger follows the table. A joined area is unmapped before its room changes hands.
        for Joined { id, mut run, with, .. } in runs {
            let old = with.and_then(|with| ledger.runs.remove(&with));
            if let Some(Run { pages, reserved, .. }) = old {
                drop(pages);
                run.reserved.join(reserved);
            }
            ledger.owner.extend(run.grefs.iter().map(|&gref| (gref, (self.number, id))));
            ledger.runs.insert(id, run);
        }
        Ok(())
    }

    /// Judges a list before anything of it is mapped.
    fn judge(&self, ledger: &Ledger, entries: &[GrefEntry]) -> Result<(), StagingError> {
        check_added(entries, GrantRef::FIRST_FREE)?;
        for (entry, listed) in entries.iter().enumerate() {
            let gref = GrantRef(listed.gref);
            if let Some(&(queue, _)) = ledger.owner.get(&gref) {
                return Err(StagingError::Duplicate { entry, gref, queue });
            }
        }
        let found = entries.len();
        let quota = &self.vif.quota;
        let room = self.capacity().saturating_sub(ledger.on_queue(self.number));
        let room = room.min(quota.room());
        if found > room {
            return Err(StagingError::Room { found, room });
        }
        Ok(())
    }

    /// Maps pages as one run, within the quota, and returns the run. If the queue has as many areas
    /// as it may, the smallest run is mapped together with these pages. So a guest that lists its
    /// pages one by one has as few areas as any other.
    fn map(
        &self,
        ledger: &mut Ledger,
        access: Access,
        mut grefs: Vec<GrantRef>,
    ) -> Result<Joined, StagingError> {
        let quota = &self.vif.quota;
        let new = grefs.len();
        let reserved = quota
            .reserve(new)
            .ok_or_else(|| StagingError::Room { found: new, room: quota.room() })?;
        let with = ledger.to_join(self.number, access);
        grefs
            .extend(with.and_then(|with| ledger.runs.get(&with)).iter().flat_map(|run| &run.grefs));
        let pages = self.vif.map(&grefs, access)?;
        let run = Run { queue: self.number, access, grefs, pages, reserved };
        Ok(Joined { id: ledger.next_run(), run, new, with })
    }

    /// Takes a list of pages back (`DEL_GREF_MAPPING`) and sets each entry's status. Returns the
    /// number of pages that were unmapped.
    ///
    /// An entry fails if its page is not staged on this queue, if it came before in the list, or if
    /// a packet uses its page. It also fails if the pages that stay of its run cannot be mapped
    /// anew. A page whose entry fails stays staged.
    pub fn del(&self, entries: &mut [GrefEntry]) -> usize {
        let failed = Status::InvalidParameter.to_u16();
        entries.iter_mut().for_each(|entry| entry.status = failed);
        if entries.len() > GREF_LIST_ENTRIES {
            return 0;
        }
        let mut ledger = self.vif.ledger();
        // The entries are sorted by run, so that each run is mapped anew at most once.
        let mut going: BTreeMap<u32, HashSet<GrantRef>> = BTreeMap::new();
        for entry in entries.iter() {
            match ledger.owner.get(&GrantRef(entry.gref)) {
                Some(&(queue, run)) if queue == self.number => {
                    going.entry(run).or_default().insert(GrantRef(entry.gref));
                }
                _ => {}
            }
        }
        let mut gone = HashSet::new();
        for (id, grefs) in going {
            if self.shrink(&mut ledger, id, &grefs) {
                gone.extend(grefs);
            }
        }
        let count = gone.len();
        for entry in entries {
            // The second of two equal entries comes when the first was taken out.
            if gone.remove(&GrantRef(entry.gref)) {
                entry.status = Status::Success.to_u16();
            }
        }
        count
    }

    /// Takes some pages of a run back. The pages that stay are mapped as a new run, the table is
    /// switched to it, and the old run is unmapped whole. A platform cannot do with less (Linux: a
    /// run is one area of memory). Returns true if that was done.
    fn shrink(&self, ledger: &mut Ledger, id: u32, going: &HashSet<GrantRef>) -> bool {
        let Some(run) = ledger.runs.get_mut(&id) else { return false };
        let stay: Vec<_> = run.grefs.iter().copied().filter(|g| !going.contains(g)).collect();
        self.vif.work.fetch_add(going.len(), Relaxed);
        // The pages that stay are mapped anew before the table is switched, so that a failure
        // changes nothing.
        let new = match stay.is_empty() {
            true => None,
            false => match self.vif.map(&stay, run.access) {
                Ok(pages) => Some(pages),
                Err(_) => return false,
            },
        };
        let access = run.access;
        let switched = self.lender().change(|table| {
            let mut old: Vec<_> = going.iter().filter_map(|&gref| table.remove(gref)).collect();
            let pages = new.iter().flat_map(pages);
            for (&gref, page) in stay.iter().zip(pages) {
                // The reference has an entry, so nothing can be in its way.
                let mapping = Mapping::new(page, access, id, 0);
                old.extend(table.insert(gref, mapping).unwrap_or_else(Some));
            }
            old
        });
        let Ok(old) = switched else { return false };
        // The old run is unmapped with its last page handle, before its room is given back.
        drop(old);
        match new {
            Some(pages) => {
                run.pages = pages;
                run.grefs = stay;
                run.reserved.shrink(going.len());
            }
            None => drop(ledger.runs.remove(&id)),
        }
        for gref in going {
            ledger.owner.remove(gref);
        }
        true
    }
}

impl Ledger {
    fn on_queue(&self, queue: u16) -> usize {
        let runs = self.runs.values().filter(|run| run.queue == queue);
        runs.map(|run| run.grefs.len()).sum()
    }

    /// Returns the smallest run of a queue with this access, if the queue has as many as it may.
    fn to_join(&self, queue: u16, access: Access) -> Option<u32> {
        let alike = |(_, run): &(&u32, &Run)| run.queue == queue && run.access == access;
        let alike: Vec<_> = self.runs.iter().filter(alike).collect();
        let smallest = alike.iter().min_by_key(|(_, run)| run.grefs.len()).map(|(id, _)| **id);
        smallest.filter(|_| alike.len() >= AREAS_ALIKE)
    }

    /// Returns a number that no run has.
    fn next_run(&mut self) -> u32 {
        loop {
            self.last_run = self.last_run.wrapping_add(1);
            if !self.runs.contains_key(&self.last_run) {
                return self.last_run;
            }
        }
    }
}

/// A run that was mapped and is not staged yet.
struct Joined {
    id: u32,
    run: Run,
    /// Number of its references that are new: the first ones.
    new: usize,
    /// Run that is joined: its references are the rest, and this run comes in its place.
    with: Option<u32>,
}

impl Joined {
    /// Returns each reference of the run with its mapping.
    fn mappings(&self) -> impl Iterator<Item = (GrantRef, Mapping)> + '_ {
        let (access, id) = (self.run.access, self.id);
        let mappings = pages(&self.run.pages).map(move |page| Mapping::new(page, access, id, 0));
        self.run.grefs.iter().copied().zip(mappings)
    }
}

/// Returns the pages of a run, in order.
fn pages(run: &SharedRun) -> impl Iterator<Item = grantway_ring::SharedPage> + '_ {
    (0..run.pages()).filter_map(|index| run.page(index))
}

fn access_of(entry: &GrefEntry) -> Access {
    match entry.flags.contains(GrefFlags::READONLY) {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    }
}
