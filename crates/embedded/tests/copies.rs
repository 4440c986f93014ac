//! Grant copies against a model that copies in plain memory.

mod support;

use grantway_hypervisor::{
    Access, CopyOp, CopySide, DomId, FrontendPlatform, GrantRef, GrantStatus, Granted, Mapper,
    Platform,
};
use grantway_testkit::Numbers;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use support::{BACK, FRONT, Fixture, eventually};

const OTHER: DomId = DomId(8);
const PAGES: usize = 6;
const ARENA: usize = 3 * 4096;

fn foreign(domain: DomId, gref: GrantRef, offset: u16) -> CopySide {
    CopySide::Foreign { domain, gref, offset }
}

fn contents(granted: &Granted) -> Vec<u8> {
    let mut bytes = vec![0; granted.run.pages() * 4096];
    for (index, page) in bytes.chunks_mut(4096).enumerate() {
        granted.run.page(index).unwrap().read(0, page).unwrap();
    }
    bytes
}

/// Has a test copy by the call of its own, and by mapping.
fn either_way(test: fn()) {
    test();
    let by_mapping = std::thread::spawn(move || {
        grantway_embedded::copy_by_mapping();
        test();
    });
    by_mapping.join().unwrap();
}

#[test]
fn random_batches_do_what_plain_copies_do() {
    either_way(random_batches);
}

fn random_batches() {
    let fixture = Fixture::new();
    let (front, other, back) = (fixture.guest(FRONT), fixture.guest(OTHER), fixture.service());
    let mut numbers = Numbers::new(0x9e37_79b9_7f4a_7c15);
    let pages = [(FRONT, &front), (OTHER, &other)].map(|(domain, granter)| {
        let granted = granter.grant(BACK, PAGES, Access::ReadWrite).unwrap();
        for index in 0..PAGES {
            let bytes: Vec<u8> = (0..4096).map(|_| numbers.next() as u8).collect();
            granted.run.page(index).unwrap().write(0, &bytes).unwrap();
        }
        (domain, granted)
    });
    let mut arena: Vec<u8> = (0..ARENA).map(|_| numbers.next() as u8).collect();
    let mut model = [contents(&pages[0].1), contents(&pages[1].1), arena.clone()];
    let mut moved = 0;
    for _ in 0..300 {
        let count = 1 + numbers.below(100);
        let mut ops = Vec::new();
        for _ in 0..count {
            let longest = if numbers.below(4) == 0 { 4096 } else { 200 };
            let len = 1 + numbers.below(longest);
            // Operations of one kind often follow each other, so that groups form.
            let kind = if numbers.below(3) > 0 && !ops.is_empty() {
                None
            } else {
                Some((numbers.below(3), numbers.below(3)))
            };
            let kind = kind.or_else(|| ops.last().map(|(kind, _, _, _)| *kind)).unwrap();
            let place = |which: usize, numbers: &mut Numbers| {
                if which == 2 {
                    numbers.below(ARENA - len + 1)
                } else {
                    numbers.below(PAGES) * 4096 + numbers.below(4096 - len + 1)
                }
            };
            let from = place(kind.0, &mut numbers);
            let to = place(kind.1, &mut numbers);
            ops.push((kind, from, to, len));
        }
        let side = |which: usize, at: usize| match which {
            2 => CopySide::Local { offset: at as u32 },
            _ => foreign(pages[which].0, pages[which].1.grefs[at / 4096], (at % 4096) as u16),
        };
        let mut batch: Vec<CopyOp> = ops
            .iter()
            .map(|&((from, to), at, into, len)| {
                CopyOp::new(side(from, at), side(to, into), len as u16)
            })
            .collect();
        back.copy(&mut arena, &mut batch).unwrap();
        assert!(batch.iter().all(|op| op.status.is_okay()));
        for ((from, to), at, into, len) in ops {
            let bytes = model[from][at..at + len].to_vec();
            model[to][into..into + len].copy_from_slice(&bytes);
            moved += len as u64;
        }
        assert!(model[2] == arena, "arena");
    }
    assert!(model[0] == contents(&pages[0].1), "domain 7");
    assert!(model[1] == contents(&pages[1].1), "domain 8");
    let counters = back.counters();
    assert_eq!((counters.copy_batches, counters.copy_bytes), (300, moved));
    assert!(fixture.tables().domains.iter().all(|domain| domain.grants_held == 0));
}

#[test]
fn each_operation_is_refused_for_its_own_reason() {
    either_way(refused_operations);
}

fn refused_operations() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let granted = front.grant(BACK, 1, Access::ReadWrite).unwrap();
    let readonly = front.grant(BACK, 1, Access::ReadOnly).unwrap();
    let others = front.grant(DomId(9), 1, Access::ReadWrite).unwrap();
    let (rw, ro) = (granted.grefs[0], readonly.grefs[0]);
    let local = |offset| CopySide::Local { offset };
    let theirs = |gref, offset| foreign(FRONT, gref, offset);
    let mut arena = vec![7; 8192];
    let cases = [
        (theirs(rw, 0), local(0), 4096, GrantStatus::OKAY),
        (theirs(rw, 1), local(0), 4096, GrantStatus::BAD_COPY_ARG),
        (theirs(rw, 4096), local(0), 1, GrantStatus::BAD_COPY_ARG),
        (theirs(rw, u16::MAX), local(0), u16::MAX, GrantStatus::BAD_COPY_ARG),
        (theirs(rw, 0), local(0), 0, GrantStatus::BAD_COPY_ARG),
        (theirs(rw, 0), local(4097), 4096, GrantStatus::BAD_VIRT_ADDR),
        (theirs(rw, 0), local(u32::MAX), 1, GrantStatus::BAD_VIRT_ADDR),
        (theirs(rw, 0), local(8191), 1, GrantStatus::OKAY),
        (theirs(others.grefs[0], 0), local(0), 1, GrantStatus::BAD_GNTREF),
        (theirs(GrantRef(3), 0), local(0), 1, GrantStatus::BAD_GNTREF),
        (theirs(GrantRef(u32::MAX), 0), local(0), 1, GrantStatus::BAD_GNTREF),
        (theirs(ro, 5), local(5), 5, GrantStatus::OKAY),
        (local(0), theirs(ro, 0), 1, GrantStatus::PERMISSION_DENIED),
        (theirs(rw, 0), theirs(ro, 0), 1, GrantStatus::PERMISSION_DENIED),
        (theirs(ro, 0), theirs(rw, 0), 1, GrantStatus::OKAY),
        (theirs(ro, 0), theirs(rw, 4000), 97, GrantStatus::BAD_COPY_ARG),
        (foreign(DomId(66), rw, 0), local(0), 1, GrantStatus::BAD_DOMAIN),
        (foreign(DomId(66), rw, 0), theirs(rw, 0), 1, GrantStatus::BAD_DOMAIN),
        (foreign(DomId(u16::MAX), rw, 0), local(0), 1, GrantStatus::BAD_DOMAIN),
        (local(0), theirs(rw, 0), 4096, GrantStatus::OKAY),
        (local(0), local(4096), 4096, GrantStatus::OKAY),
        (local(0), local(4097), 4096, GrantStatus::BAD_VIRT_ADDR),
    ];
    let mut ops: Vec<CopyOp> =
        cases.iter().map(|&(from, to, len, _)| CopyOp::new(from, to, len)).collect();
    back.copy(&mut arena, &mut ops).unwrap();
    for (op, (_, _, _, expected)) in ops.iter().zip(&cases) {
        assert_eq!(op.status, *expected, "{op:?}");
    }
    assert_eq!(fixture.tables().domain(7).unwrap().grants_held, 0);
    back.copy(&mut [], &mut []).unwrap();
    drop((front, granted, readonly, others));
    fixture.settles("the domain is dead", |t| t.domain(7).unwrap().pid.is_none());
    back.copy(&mut arena, &mut ops[..1]).unwrap();
    assert_eq!(ops[0].status, GrantStatus::BAD_DOMAIN);
}

#[test]
fn more_operations_than_one_call_takes() {
    either_way(many_operations);
}

fn many_operations() {
    let fixture = Fixture::new();
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let granted = front.grant(BACK, 1, Access::ReadWrite).unwrap();
    let bytes: Vec<u8> = (0..4096).map(|at| (at % 251) as u8).collect();
    granted.run.page(0).unwrap().write(0, &bytes).unwrap();
    let mut arena = vec![0; 4096];
    let mut ops: Vec<CopyOp> = (0..4096)
        .map(|at| {
            CopyOp::new(
                foreign(FRONT, granted.grefs[0], at),
                CopySide::Local { offset: 4095 - u32::from(at) },
                1,
            )
        })
        .collect();
    // Some operations are wrong, in the middle of calls.
    for at in [0, 1000, 1023, 1024, 4095] {
        ops[at].len = 0;
    }
    back.copy(&mut arena, &mut ops).unwrap();
    for (at, op) in ops.iter().enumerate() {
        assert_eq!(op.status.is_okay(), op.len == 1);
        assert_eq!(arena[4095 - at], if op.len == 1 { bytes[at] } else { 0 });
    }
}

/// A granter that ends while copies go on causes statuses, and nothing else.
#[test]
fn a_granter_that_ends_costs_its_own_operations() {
    let fixture = Fixture::new();
    let back = fixture.service();
    for maps in [false, true].repeat(10) {
        let front = fixture.guest(FRONT);
        let granted = front.grant(BACK, 1, Access::ReadWrite).unwrap();
        let gref = granted.grefs[0];
        let turns = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| {
                if maps {
                    grantway_embedded::copy_by_mapping();
                }
                let mut arena = vec![1; 4096];
                let mut ops =
                    vec![
                        CopyOp::new(CopySide::Local { offset: 0 }, foreign(FRONT, gref, 0), 4096);
                        32
                    ];
                loop {
                    back.copy(&mut arena, &mut ops).unwrap();
                    turns.fetch_add(1, SeqCst);
                    if let Some(op) = ops.iter().find(|op| !op.status.is_okay()) {
                        assert!(
                            [
                                GrantStatus::BAD_DOMAIN,
                                GrantStatus::BAD_PAGE,
                                GrantStatus::BAD_GNTREF
                            ]
                            .contains(&op.status),
                            "{op:?}"
                        );
                        break;
                    }
                }
            });
            eventually("copies", || (turns.load(SeqCst) > 0).then_some(()));
            drop((granted, front));
            copying.join().unwrap();
        });
        fixture.settles("the domain is dead", |t| t.domain(7).unwrap().pid.is_none());
    }
}
