//! Kills between any two writes while lists are staged and taken back.

use super::{Granted, Logged, Memory, pages};
use crate::control::ctrl::Ctrl;
use crate::ids::STAGED_PAGES;
use crate::journal::{Journal, JournalMemory};
use crate::policy::StagedTable;
use crate::policy::{LastingTable, Quota, Staged};
use crate::state::shared::Shared;
use crate::state::trace::Tap;
use grantway_hypervisor::{Access, CopyOp, DomId, Error, GrantRef, GrantStatus, Mapper};
use grantway_netif::ctrl::{GrefEntry, GrefFlags, Message, Status};
use grantway_ring::{Front, PAGE_SIZE, SharedPage, SharedRun};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// A mapper that maps any page.
struct Pages;

impl Mapper for Pages {
    fn map(&self, _: DomId, grefs: &[GrantRef], _: Access) -> Result<SharedRun, Error> {
        Ok(SharedRun::private(grefs.len()))
    }

    fn copy(&self, _: &mut [u8], _: &mut [CopyOp]) -> Result<(), Error> {
        unreachable!("the control ring copies by its own means")
    }
}

/// A page of the journal's file.
#[derive(Clone)]
struct At(Logged, usize);

impl JournalMemory for At {
    fn put(&self, offset: usize, bytes: &[u8]) {
        self.0.put(self.1 * PAGE_SIZE + offset, bytes);
    }

    fn put_word(&self, offset: usize, word: u32) {
        self.0.put_word(self.1 * PAGE_SIZE + offset, word);
    }

    fn get(&self, offset: usize, bytes: &mut [u8]) {
        self.0.get(self.1 * PAGE_SIZE + offset, bytes);
    }
}

const QUEUES: u16 = 2;

fn start(memory: &Logged, resume: bool) -> (Ctrl<Logged, Logged>, Arc<Staged>) {
    let staged = Staged::new(Arc::new(Pages), DomId(1), QUEUES, Quota::new(4096));
    let journal = Journal::new(memory.clone());
    let tables = staged.queues().enumerate().map(|(number, queue)| {
        let first = 1 + number * STAGED_PAGES;
        let pages = (first..first + STAGED_PAGES).map(|page| At(memory.clone(), page)).collect();
        Box::new(match resume {
            true => LastingTable::resume(queue, pages, journal.ctrl_index()),
            false => LastingTable::begin(queue, pages),
        }) as Box<dyn StagedTable>
    });
    let tables = tables.collect();
    let made = Ctrl::new(memory.clone(), QUEUES, tables, Some(journal), resume);
    (made.unwrap().0, staged)
}

/// Returns requests by which lists are added, refused, taken back in part, and added again.
fn requests() -> Vec<Message> {
    let add = |queue, list, entries| Message::AddGrefMapping { queue, list, entries };
    let del = |queue, list, entries| Message::DelGrefMapping { queue, list, entries };
    vec![
        add(0, 22, 3),
        add(1, 22, 2),
        add(1, 23, 2),
        del(0, 22, 2),
        del(1, 22, 1),
        add(1, 22, 2),
        del(0, 24, 3),
        del(1, 23, 2),
        add(0, 23, 2),
    ]
}

fn lists() -> Granted {
    pages(&[vec![30, 31, 32], vec![40, 41], vec![32, 50, 31]])
}

#[test]
fn a_kill_after_any_write_stages_each_list_once() {
    let mut memory = Memory::new();
    memory.journal = vec![0; PAGE_SIZE * (1 + usize::from(QUEUES) * STAGED_PAGES)];
    let memory = Logged::over(memory);
    let mut front = Front::init(memory.clone());
    // The ring is cleared with all the memory.
    memory.0.lock().unwrap().0.journal =
        vec![0; PAGE_SIZE * (1 + usize::from(QUEUES) * STAGED_PAGES)];
    let (mut ctrl, staged) = start(&memory, false);
    for (id, message) in (200..).zip(requests()) {
        front.push(message.request(id).to_words()).unwrap();
    }
    let _ = front.publish();
    let before = memory.memory();
    memory.0.lock().unwrap().1.clear();
    ctrl.serve(99, &lists(), &Shared::new(Instant::now, Tap::nowhere())).unwrap();
    let counts = |staged: &Arc<Staged>| -> Vec<usize> {
        staged.queues().map(|queue| queue.pages()).collect()
    };
    assert_eq!(counts(&staged), [2, 2]);
    let expected = memory.memory().slots;
    let log = memory.0.lock().unwrap().1.clone();
    assert!(log.len() > 60, "{} writes", log.len());
    for cut in 0..=log.len() {
        let mut left = before.clone();
        log[..cut].iter().for_each(|write| left.apply(write));
        let memory = Logged::over(left);
        // A successor is killed at once, the next one half-way.
        drop(start(&memory, true));
        let (mut successor, _) = start(&memory, true);
        successor.serve(2, &lists(), &Shared::new(Instant::now, Tap::nowhere())).unwrap();
        let (mut successor, staged) = start(&memory, true);
        successor.serve(99, &lists(), &Shared::new(Instant::now, Tap::nowhere())).unwrap();
        assert_eq!(memory.memory().slots, expected, "cut at {cut}");
        assert_eq!(counts(&staged), [2, 2], "cut at {cut}");
    }
}

/// Lists that a successor has not taken up yet stay for the next one.
#[test]
fn a_successor_that_is_killed_half_way_leaves_all_lists() {
    let pages = SharedRun::private(STAGED_PAGES);
    let pages = || (0..STAGED_PAGES).filter_map(|n| pages.page(n)).collect::<Vec<_>>();
    let list = |first: u32| -> Vec<_> {
        let entry = |gref| GrefEntry { gref, flags: GrefFlags::empty(), status: 0 };
        (first..first + 512).map(entry).collect()
    };
    let staged = || Staged::new(Arc::new(Pages), DomId(1), 1, Quota::new(4096));
    let before = staged();
    let mut table = LastingTable::begin(before.queue(0).unwrap(), pages());
    assert_eq!((table.add(0, &list(100)), table.add(1, &list(700))), (Ok(()), Ok(())));
    for attempts in [0, 1, 2, 1, 0] {
        let staged = staged();
        let mut table = LastingTable::resume(staged.queue(0).unwrap(), pages(), 2);
        (0..attempts).for_each(|_| assert!(table.take_up()));
        assert_eq!(staged.pages(), attempts * 512);
        assert_eq!(table.take_work(), attempts * 512);
    }
    let staged = staged();
    let mut table = LastingTable::resume(staged.queue(0).unwrap(), pages(), 2);
    while table.take_up() {}
    assert_eq!(staged.pages(), 1024);
    assert_eq!(table.add(2, &list(100)), Err(Status::InvalidParameter), "they are staged");
}

/// Pages that are taken back count as work, and so do the pages that stay of their area, which are
/// mapped anew.
#[test]
fn pages_that_are_taken_back_are_counted_as_work() {
    let staged = Staged::new(Arc::new(Pages), DomId(1), 1, Quota::new(4096));
    let mut table = LastingTable::begin(staged.queue(0).unwrap(), Vec::<SharedPage>::new());
    let mut list: Vec<_> =
        (100..612).map(|gref| GrefEntry { gref, flags: GrefFlags::empty(), status: 0 }).collect();
    assert_eq!(table.add(0, &list), Ok(()));
    assert_eq!(table.take_work(), 512);
    let (some, rest) = list.split_at_mut(112);
    table.del(1, some);
    assert_eq!(table.take_work(), 112 + 400);
    table.del(2, rest);
    assert_eq!((table.take_work(), staged.pages()), (400, 0));
}

/// A mapper that maps no list with one of these references, and counts its calls.
struct Refusing(fn(u32) -> bool, AtomicUsize);

impl Mapper for Refusing {
    fn map(&self, domain: DomId, grefs: &[GrantRef], _: Access) -> Result<SharedRun, Error> {
        self.1.fetch_add(1, Relaxed);
        match grefs.iter().find(|gref| self.0(gref.0)) {
            Some(&gref) => Err(Error::Grant { domain, gref, status: GrantStatus::BAD_GNTREF }),
            None => Ok(SharedRun::private(grefs.len())),
        }
    }

    fn copy(&self, _: &mut [u8], _: &mut [CopyOp]) -> Result<(), Error> {
        unreachable!("nothing is copied")
    }
}

/// A guest may take back grants that it had staged while no backend runs. It decides which of them
/// are left, and not how long the successor works on them.
#[test]
fn a_successor_tries_a_list_a_few_times() {
    let pages = SharedRun::private(STAGED_PAGES);
    let pages = || (0..STAGED_PAGES).filter_map(|n| pages.page(n)).collect::<Vec<_>>();
    let list: Vec<_> =
        (100..612).map(|gref| GrefEntry { gref, flags: GrefFlags::empty(), status: 0 }).collect();
    type Refused = fn(u32) -> bool;
    let refused: [(Refused, _, _); 4] = [
        (|_| false, 512, 1),
        (|gref| gref == 300, 511, 2),
        (|gref| [100, 300, 611].contains(&gref), 509, 4),
        (|gref| gref % 2 == 0, 0, 8),
    ];
    for (refused, left, calls) in refused {
        let staged = Staged::new(Arc::new(Pages), DomId(1), 1, Quota::new(4096));
        let mut table = LastingTable::begin(staged.queue(0).unwrap(), pages());
        assert_eq!(table.add(0, &list), Ok(()));
        let mapper = Arc::new(Refusing(refused, AtomicUsize::new(0)));
        let by = Arc::clone(&mapper) as _;
        let staged = Staged::new(by, DomId(1), 1, Quota::new(4096));
        let mut table = LastingTable::resume(staged.queue(0).unwrap(), pages(), 1);
        assert_eq!(staged.pages(), 0, "nothing is mapped before it is asked to");
        while table.take_up() {}
        assert_eq!((staged.pages(), mapper.1.load(Relaxed)), (left, calls));
        // The pages that it could not map may be listed again.
        let gone: Vec<_> = list.iter().filter(|entry| refused(entry.gref)).copied().collect();
        assert!(gone.is_empty() || table.add(1, &gone) == Err(Status::InvalidParameter));
        drop(LastingTable::begin(staged.queue(0).unwrap(), pages()));
    }
}
