//! Random lists added and taken back, on several queues, and lookups in between,
//! against a model: no mapping without an owner, none left, and never more than
//! the quota.

use crate::rig::{GUEST, Rig, pieces};
use grantway_backend::policy::{Buffers, Piece, Quota, Staged, StagedQueue};
use grantway_backend::{VifStats, VifStatsSnapshot};
use grantway_embedded::Revoke;
use grantway_hypervisor::{Access, DomId, FrontendPlatform, GrantRef, GrantStatus};
use grantway_netif::ctrl::{GrefEntry, GrefFlags, Status};
use grantway_testkit::Numbers;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

const QUEUES: u16 = 3;
const QUOTA: usize = 90;

/// References that a guest may name in its lists.
struct Names {
    writable: Vec<GrantRef>,
    readable: Vec<GrantRef>,
    useless: Vec<GrantRef>,
}

impl Names {
    fn any(&self, numbers: &mut Numbers) -> GrantRef {
        let of = match numbers.below(40) {
            0 => &self.useless,
            1..16 => &self.readable,
            _ => &self.writable,
        };
        of[numbers.below(of.len())]
    }

    /// Returns true if the reference can be mapped with this access.
    fn grants(&self, gref: GrantRef, access: Access) -> bool {
        let reads = access == Access::ReadOnly && self.readable.contains(&gref);
        reads || self.writable.contains(&gref)
    }
}

type Model = BTreeMap<GrantRef, (u16, Access)>;

fn acceptable(list: &[GrefEntry], model: &Model, names: &Names) -> bool {
    let mut seen = HashSet::new();
    let free = QUOTA - model.len();
    (1..=512).contains(&list.len())
        && list.len() <= free
        && list.iter().all(|entry| {
            let gref = GrantRef(entry.gref);
            let known = entry.flags.bits() <= 1;
            let access = access_of(entry);
            known && seen.insert(gref) && !model.contains_key(&gref) && names.grants(gref, access)
        })
}

fn access_of(entry: &GrefEntry) -> Access {
    if entry.flags.contains(GrefFlags::READONLY) { Access::ReadOnly } else { Access::ReadWrite }
}

fn list(numbers: &mut Numbers, names: &Names) -> Vec<GrefEntry> {
    let len = match numbers.below(30) {
        0 => 0,
        1 => 513,
        _ => 1 + numbers.below(12),
    };
    let mut list: Vec<GrefEntry> = Vec::new();
    while list.len() < len {
        let gref = names.any(numbers);
        // Mostly lists that an honest guest would send.
        if list.iter().any(|entry| entry.gref == gref.0) && !numbers.once_in(50) && len < 513 {
            continue;
        }
        let reads = names.readable.contains(&gref) && !numbers.once_in(60);
        let mut flags = if reads { GrefFlags::READONLY } else { GrefFlags::empty() };
        if numbers.once_in(200) {
            flags = GrefFlags::from_bits_retain(2 << numbers.below(15));
        }
        list.push(GrefEntry { gref: gref.0, flags, status: numbers.half() });
    }
    list
}

#[test]
fn adding_deleting_and_finding_staged_pages_against_a_model() {
    for seed in 1..=12 {
        run(seed);
    }
}

fn run(seed: u64) {
    let rig = Rig::new();
    let numbers = &mut Numbers::new(seed);
    let (writable, readable) = (rig.pages(70, Access::ReadWrite), rig.pages(50, Access::ReadOnly));
    let gone = rig.pages(1, Access::ReadWrite);
    assert_eq!(rig.guest.revoke(gone.grefs[0]), Revoke::Revoked);
    let anothers = rig.guest.grant(DomId(5), 1, Access::ReadWrite).unwrap();
    let names = Names {
        writable: writable.grefs.clone(),
        readable: readable.grefs.clone(),
        useless: [0, 7, 30_000, 1 << 20, u32::MAX]
            .map(GrantRef)
            .into_iter()
            .chain([gone.grefs[0], anothers.grefs[0]])
            .collect(),
    };
    let platform = Arc::clone(&rig.backend);
    let staged = Staged::with_lease(platform, GUEST, QUEUES, Quota::new(QUOTA), Duration::ZERO);
    let queues: Vec<_> = (0..QUEUES).map(|n| staged.queue(n.into()).unwrap()).collect();
    let policy = |queue| Buffers::staging(Arc::clone(&rig.backend) as _, GUEST, queue);
    let mut policies: Vec<_> = queues.iter().map(policy).collect();
    let stats = VifStats::default();
    let mut model = Model::new();
    let mut added = 0;
    for _ in 0..400 {
        let number = numbers.below(QUEUES.into());
        match numbers.below(4) {
            0 | 1 => {
                let list = list(numbers, &names);
                let expected = acceptable(&list, &model, &names);
                let taken = queues[number].add(&list);
                assert_eq!(taken.is_ok(), expected, "seed {seed}: {taken:?} {list:?}");
                if taken.is_ok() {
                    added += 1;
                    let staged = |e: &GrefEntry| (GrantRef(e.gref), (number as u16, access_of(e)));
                    model.extend(list.iter().map(staged));
                }
            }
            2 => {
                let mut list = list(numbers, &names);
                let before = list.clone();
                let count = queues[number].del(&mut list);
                let mut expected = 0;
                for (entry, before) in list.iter().zip(&before) {
                    let gref = GrantRef(entry.gref);
                    let ours = model.get(&gref).is_some_and(|&(queue, _)| queue == number as u16);
                    let done = ours && list.len() <= 512;
                    if done {
                        model.remove(&gref);
                        expected += 1;
                    }
                    let status = if done { Status::Success } else { Status::InvalidParameter };
                    assert_eq!(entry.status, status.to_u16(), "seed {seed}");
                    assert_eq!((entry.gref, entry.flags), (before.gref, before.flags));
                }
                assert_eq!(count, expected, "seed {seed}");
            }
            // Each takes as long as a turn is waited for.
            _ if numbers.once_in(150) => {
                let staged = |&(_, &(queue, _)): &(_, &(u16, _))| usize::from(queue) == number;
                let used = model.iter().find(staged).map(|(&gref, _)| gref);
                in_flight(&queues[number], &mut policies[number], used, &stats);
            }
            _ => {
                let grefs: Vec<_> = (0..8).map(|_| names.any(numbers)).collect();
                look(&rig, &mut policies[number], number as u16, &grefs, &names, &model, &stats);
            }
        }
        let mapped = rig.counters().mapped as usize;
        assert_eq!(mapped, model.len(), "seed {seed}: a mapping without an owner");
        assert!(mapped <= QUOTA);
        let of = |n: u16| model.values().filter(|&&(queue, _)| queue == n).count();
        for n in 0..QUEUES {
            assert_eq!(queues[usize::from(n)].pages(), of(n), "seed {seed}, queue {n}");
        }
        assert_eq!(staged.pages(), model.len());
    }
    assert!(added > 10, "seed {seed}: the lists were hardly ever good: {added}");
    staged.close();
    assert_eq!(rig.counters().mapped, 0, "seed {seed}: mappings left");
    assert!(
        queues[0].add(&[GrefEntry { gref: writable.grefs[0].0, ..Default::default() }]).is_err()
    );
    let VifStatsSnapshot { mapped_hits, mapped_misses, .. } = stats.snapshot();
    assert!(mapped_hits > 0 && mapped_misses > 0);
}

/// A turn uses a page: nothing of its queue is taken back until it is over.
fn in_flight(queue: &StagedQueue, policy: &mut Buffers, used: Option<GrantRef>, stats: &VifStats) {
    let Some(gref) = used else { return };
    let before = queue.pages();
    let mut one = pieces(&[gref], 60);
    policy.fetch(&mut one, &mut [0; 60]).unwrap();
    let mut list = [GrefEntry { gref: gref.0, ..GrefEntry::default() }];
    assert_eq!(queue.del(&mut list), 0, "it is in use");
    assert_eq!(list[0].status, Status::InvalidParameter.to_u16());
    assert_eq!(queue.pages(), before);
    assert_eq!(policy.end_turn(false, &Instant::now, stats), None);
}

/// Fetches and stores: what is staged on the queue asks for no grant operation,
/// the rest for one each, and both give the same bytes.
fn look(
    rig: &Rig,
    policy: &mut Buffers,
    number: u16,
    grefs: &[GrantRef],
    names: &Names,
    model: &Model,
    stats: &VifStats,
) {
    let staged = |piece: &Piece| model.get(&piece.gref).filter(|(queue, _)| *queue == number);
    let (mut arena, mut list) = (vec![0xee; 4096], pieces(grefs, 60));
    let before = rig.counters();
    policy.fetch(&mut list, &mut arena).unwrap();
    let spent = rig.counters().since(&before);
    assert_eq!(spent.copies as usize, list.iter().filter(|p| staged(p).is_none()).count());
    for piece in &list {
        let granted = names.grants(piece.gref, Access::ReadOnly);
        assert_eq!(piece.status.is_okay(), granted, "{piece:?}");
        if granted {
            let of = [&names.writable, &names.readable];
            let index = of.iter().find_map(|of| of.iter().position(|g| *g == piece.gref)).unwrap();
            let at = piece.at as usize;
            assert_eq!(arena[at..at + 60], [index as u8; 60]);
        }
    }
    // The same bytes go back, so that the pages keep theirs.
    list.retain(|piece| piece.status.is_okay());
    let before = rig.counters();
    policy.store(&mut list, &mut arena).unwrap();
    let spent = rig.counters().since(&before);
    assert_eq!(spent.copies as usize, list.iter().filter(|p| staged(p).is_none()).count());
    for piece in &list {
        let writable = match staged(piece) {
            Some(&(_, access)) => access == Access::ReadWrite,
            None => names.grants(piece.gref, Access::ReadWrite),
        };
        let expected = if writable { GrantStatus::OKAY } else { piece.status };
        assert_eq!(piece.status, expected);
        assert_eq!(piece.status.is_okay(), writable, "{piece:?}");
    }
    assert_eq!(policy.end_turn(false, &Instant::now, stats), None);
}
