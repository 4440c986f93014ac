//! Pages that the frontend says it uses again: mapped after their first packet,
//! for as long as they are used, and never beyond what they were granted for.

use crate::rig::{GUEST, OTHER, Overwritten, Rig, bytes, filled, pieces, statuses};
use crate::support::hostile::{Hostile, frame};
use crate::support::rings::{Rings, page, slot};
use crate::support::world::World;
use grantway_backend::policy::{Buffers, Cross, Mapped, Piece, QUEUE_AREAS, Quota};
use grantway_backend::{VifStats, VifStatsSnapshot};
use grantway_embedded::Revoke;
use grantway_hypervisor::{Access, DomId, FrontendPlatform, GrantRef, GrantStatus, Mapper};
use grantway_netif::Offload;
use grantway_netif::tx::{TxFlags, status};
use grantway_testkit::Numbers;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NONE: TxFlags = TxFlags::empty();

/// A queue's policy, its counters, and a clock that the test moves.
struct Queue {
    policy: Buffers,
    quota: Arc<Quota>,
    stats: VifStats,
    now: Cell<Instant>,
    arena: Vec<u8>,
}

impl Queue {
    fn new(rig: &Rig, quota: usize) -> Self {
        Self::sharing(rig, Quota::new(quota))
    }

    fn sharing(rig: &Rig, quota: Arc<Quota>) -> Self {
        Self::by(Arc::clone(&rig.backend) as _, quota)
    }

    fn by(mapper: Arc<dyn Mapper>, quota: Arc<Quota>) -> Self {
        Self {
            policy: Buffers::persistent(mapper, GUEST, Arc::clone(&quota)),
            quota,
            stats: VifStats::default(),
            now: Cell::new(Instant::now()),
            arena: vec![0; 1 << 20],
        }
    }

    fn fetch(&mut self, grefs: &[GrantRef]) -> Vec<Piece> {
        let mut list = pieces(grefs, 64);
        self.policy.fetch(&mut list, &mut self.arena).unwrap();
        self.end(false);
        list
    }

    fn store(&mut self, grefs: &[GrantRef]) -> Vec<Piece> {
        let mut list = pieces(grefs, 64);
        self.policy.store(&mut list, &mut self.arena).unwrap();
        self.end(false);
        list
    }

    fn end(&mut self, idle: bool) -> Option<Instant> {
        let now = self.now.get();
        self.policy.end_turn(idle, &|| now, &self.stats)
    }

    /// Lets time pass as an idle worker does: it is called when it asked to be.
    fn passes(&mut self, time: Duration) {
        let end = self.now.get() + time;
        while let Some(at) = self.end(true).filter(|&at| at <= end) {
            self.now.set(at);
            self.end(true);
        }
        self.now.set(end);
    }

    fn stats(&self) -> VifStatsSnapshot {
        self.stats.snapshot()
    }
}

#[test]
fn the_second_packet_of_a_page_needs_no_hypervisor_call() {
    let rig = Rig::new();
    let mut queue = Queue::new(&rig, 1000);
    let (out, into) = (rig.pages(40, Access::ReadOnly), rig.pages(30, Access::ReadWrite));
    let before = rig.counters();
    queue.fetch(&out.grefs);
    queue.store(&into.grefs);
    let spent = rig.counters().since(&before);
    assert_eq!((spent.copies, spent.maps, spent.map_batches), (70, 70, 2), "one run a turn");
    let before = rig.counters();
    for _ in 0..10 {
        let list = queue.fetch(&out.grefs);
        assert!(list.iter().all(|piece| piece.status.is_okay()));
        for n in 0..40 {
            assert_eq!(queue.arena[n * 64..][..64], [n as u8; 64]);
        }
        queue.arena[..64 * 30].fill(0xab);
        let list = queue.store(&into.grefs);
        assert!(list.iter().all(|piece| piece.status.is_okay()));
    }
    assert_eq!(rig.counters().since(&before).grant_ops(), 0);
    assert_eq!(bytes(&into.run.page(29).unwrap(), 0, 65)[63..], [0xab, 29]);
    let stats = queue.stats();
    assert_eq!((stats.mapped_hits, stats.mapped_misses, stats.mapped_pages), (700, 70, 70));
    assert_eq!(queue.quota.used(), Mapped { pages: 70, areas: 2 });
    drop(queue);
    assert_eq!(rig.counters().mapped, 0);
}

#[test]
fn pages_unused_for_a_minute_are_unmapped_in_small_steps() {
    let rig = Rig::new();
    let mut queue = Queue::new(&rig, 1000);
    let pages = rig.pages(300, Access::ReadOnly);
    // A turn for each page, and one page that is used on and on.
    for gref in &pages.grefs {
        queue.fetch(&[*gref]);
        let areas = rig.counters().map_batches - rig.counters().unmap_batches;
        assert!(areas <= QUEUE_AREAS as u64, "{areas} areas");
        assert_eq!(queue.quota.used().areas as u64, areas);
    }
    assert_eq!(rig.counters().mapped, 300);
    for _ in 0..5 {
        queue.passes(Duration::from_secs(11));
        queue.fetch(&pages.grefs[..1]);
    }
    assert_eq!(rig.counters().mapped, 300, "after 55 seconds");
    let mut least = 300;
    let mut steps = 0;
    for _ in 0..8 {
        let before = rig.counters();
        queue.passes(Duration::from_secs(5));
        queue.fetch(&pages.grefs[..1]);
        let spent = rig.counters().since(&before);
        assert!(spent.unmap_batches <= QUEUE_AREAS as u64 / 4, "{spent:?} at once");
        let mapped = rig.counters().mapped;
        steps += u64::from(mapped < least);
        least = mapped;
    }
    assert_eq!((least, queue.quota.used()), (1, Mapped { pages: 1, areas: 1 }));
    assert!(steps >= 2);
    assert_eq!(queue.stats().mapped_evicted, 299);
    // What was unmapped is mapped again when it comes again.
    queue.fetch(&pages.grefs);
    assert_eq!(rig.counters().mapped, 300);
    queue.passes(Duration::from_secs(120));
    assert_eq!(rig.counters().mapped, 0);
    assert_eq!(queue.end(true), None, "nobody wakes a worker for nothing");
}

/// Pages that come one by one, to be read and to be written, are in few areas. Each page is
/// still found, with the access that was asked for last.
#[test]
fn pages_that_come_one_by_one_are_joined() {
    let rig = Rig::new();
    let mut queue = Queue::new(&rig, 1000);
    let (out, into) = (rig.pages(200, Access::ReadOnly), rig.pages(200, Access::ReadWrite));
    for n in 0..200 {
        queue.fetch(&out.grefs[n..=n]);
        queue.store(&into.grefs[n..=n]);
        let used = queue.quota.used();
        assert!(used.areas <= QUEUE_AREAS && used.pages == 2 * n + 2, "{used:?}");
        let counters = rig.counters();
        assert_eq!(counters.mapped, used.pages as u64);
        assert_eq!(counters.map_batches - counters.unmap_batches, used.areas as u64);
    }
    // A page is mapped anew a few times at most, not with each that comes.
    let maps = rig.counters().maps;
    assert!(maps <= 400 * 8, "{maps} maps of 400 pages");
    let before = rig.counters();
    let list = queue.fetch(&out.grefs);
    assert!(list.iter().all(|piece| piece.status.is_okay()));
    for n in 0..200 {
        assert_eq!(queue.arena[n * 64..][..64], [n as u8; 64]);
    }
    queue.store(&into.grefs);
    assert_eq!(rig.counters().since(&before).grant_ops(), 0);
}

/// A page that cannot be mapped again takes the pages with it that it was joined with. They are
/// mapped again when they are used.
#[test]
fn runs_that_cannot_be_joined_are_forgotten() {
    let rig = Rig::new();
    let mapper = Overwritten::of(&rig);
    let mut queue = Queue::by(Arc::clone(&mapper) as _, Quota::new(1000));
    let pages = rig.pages(40, Access::ReadOnly);
    for gref in &pages.grefs[..16] {
        queue.fetch(&[*gref]);
    }
    assert_eq!(queue.quota.used(), Mapped { pages: 16, areas: 16 });
    mapper.entries.lock().unwrap().push(pages.grefs[3]);
    queue.fetch(&[pages.grefs[20]]);
    assert_eq!(queue.quota.used(), Mapped { pages: 9, areas: 9 }, "eight went, one came");
    assert_eq!(rig.counters().mapped, 9);
    assert_eq!(queue.stats().mapped_evicted, 8);
    // Nothing is tried before the next look.
    let before = rig.counters();
    queue.fetch(&pages.grefs[21..30]);
    assert_eq!(rig.counters().since(&before).map_batches, 0);
    queue.passes(Duration::from_secs(6));
    let good: Vec<_> = pages.grefs.iter().copied().filter(|&gref| gref != pages.grefs[3]).collect();
    queue.fetch(&good);
    queue.fetch(&good);
    assert_eq!(queue.quota.used().pages, 39);
}

#[test]
fn pages_beyond_the_limit_of_their_vif_use_grant_copy() {
    let rig = Rig::new();
    let quota = Quota::new(50);
    let mut first = Queue::sharing(&rig, Arc::clone(&quota));
    let mut second = Queue::sharing(&rig, Arc::clone(&quota));
    let pages = rig.pages(80, Access::ReadWrite);
    first.fetch(&pages.grefs[..40]);
    second.fetch(&pages.grefs[40..]);
    assert_eq!((rig.counters().mapped, quota.used().pages), (50, 50));
    for _ in 0..3 {
        let before = rig.counters();
        let list = second.fetch(&pages.grefs[40..]);
        assert!(list.iter().all(|piece| piece.status.is_okay()));
        let spent = rig.counters().since(&before);
        assert_eq!((spent.copies, spent.maps), (30, 0));
        for n in 0..40 {
            assert_eq!(second.arena[n * 64..][..64], [40 + n as u8; 64]);
        }
    }
    drop(first);
    assert_eq!(quota.used().pages, 10);
    second.passes(Duration::from_secs(6));
    second.fetch(&pages.grefs[40..]);
    assert_eq!((rig.counters().mapped, quota.used().pages), (40, 40));
}

#[test]
fn a_reference_that_is_used_again_with_other_access() {
    let rig = Rig::new();
    let mut queue = Queue::new(&rig, 100);
    let both = rig.pages(2, Access::ReadWrite);
    let readonly = rig.pages(1, Access::ReadOnly);
    let all = [both.grefs[0], readonly.grefs[0], both.grefs[1]];
    queue.fetch(&all);
    queue.arena.fill(0x77);
    // Mapped to be read; written by grant copy, as Xen allows or does not.
    let expected = [GrantStatus::OKAY, GrantStatus::PERMISSION_DENIED, GrantStatus::OKAY];
    let list = queue.store(&all);
    assert_eq!(list[0].status, expected[0]);
    assert!(!list[1].status.is_okay());
    let before = rig.counters();
    let list = queue.store(&all);
    assert!(list[0].status.is_okay() && !list[1].status.is_okay() && list[2].status.is_okay());
    assert_eq!(rig.counters().since(&before).copies, 1, "the readonly one, again and again");
    assert_eq!(bytes(&both.run.page(0).unwrap(), 0, 64), [0x77; 64]);
    assert_eq!(bytes(&readonly.run.page(0).unwrap(), 0, 64), [0; 64]);
    // Those that were mapped to be written serve for reading as well.
    let before = rig.counters();
    queue.fetch(&all);
    assert_eq!(rig.counters().since(&before).grant_ops(), 0);
    drop(queue);
    assert_eq!(rig.counters().mapped, 0);
}

#[test]
fn idle_pages_of_a_busy_run_are_unmapped_too() {
    let rig = Rig::new();
    let mut queue = Queue::new(&rig, 1000);
    let pages = rig.pages(10, Access::ReadWrite);
    // Three of ten pages are mapped a second time, to be written to. One is not used again.
    queue.fetch(&pages.grefs);
    queue.store(&pages.grefs[..3]);
    let busy = &pages.grefs[..9];
    assert_eq!(rig.counters().mapped, 13);
    let second = |queue: &mut Queue| {
        queue.passes(Duration::from_secs(1));
        queue.fetch(busy);
        rig.counters().mapped
    };
    // Most of the run is in use, so it is left alone for a while.
    for _ in 0..60 {
        assert_eq!(second(&mut queue), 13);
    }
    for _ in 60..180 {
        second(&mut queue);
    }
    assert_eq!((rig.counters().mapped, queue.quota.used().pages), (9, 9));
    assert_eq!(queue.stats().mapped_evicted, 4);
    // A run of which all pages are in use is not mapped anew.
    let before = rig.counters();
    (0..600).for_each(|_| assert_eq!(second(&mut queue), 9));
    assert_eq!(rig.counters().since(&before).grant_ops(), 0);
}

#[test]
fn references_that_cannot_be_mapped_cost_their_guest_alone() {
    let rig = Rig::new();
    let mut queue = Queue::new(&rig, 100);
    let good = rig.pages(4, Access::ReadOnly);
    let anothers = rig.guest.grant(DomId(5), 1, Access::ReadWrite).unwrap();
    let mut all = good.grefs.clone();
    all.extend([anothers.grefs[0], GrantRef(30_000), GrantRef(0), GrantRef(u32::MAX)]);
    let list = queue.fetch(&all);
    assert_eq!(statuses(&list)[..4], [GrantStatus::OKAY; 4]);
    assert!(list[4..].iter().all(|piece| !piece.status.is_okay()));
    assert_eq!(rig.counters().mapped, 4, "what could be read is mapped");
    // Revoked between its copy and its mapping: nothing of that turn is mapped,
    // and no other attempt is made until the next look.
    let late = rig.pages(2, Access::ReadOnly);
    let mut list = pieces(&late.grefs, 64);
    queue.policy.fetch(&mut list, &mut queue.arena).unwrap();
    assert_eq!(rig.guest.revoke(late.grefs[1]), Revoke::Revoked);
    queue.end(false);
    assert_eq!(rig.counters().mapped, 4);
    let list = queue.fetch(&late.grefs);
    assert!(list[0].status.is_okay() && !list[1].status.is_okay());
    assert_eq!(rig.counters().mapped, 4);
    queue.passes(Duration::from_secs(6));
    queue.fetch(&late.grefs);
    assert_eq!(rig.counters().mapped, 5);
    // One that is mapped cannot be revoked.
    assert_eq!(rig.guest.revoke(late.grefs[0]), Revoke::StillMapped);
}

#[test]
fn bytes_between_seen_pages_are_copied_by_the_processor() {
    let rig = Rig::new();
    let other = rig.other();
    let (from, to) = (rig.pages(4, Access::ReadOnly), filled(&other, 4, Access::ReadWrite));
    let mut sender = Queue::new(&rig, 100);
    let mut receiver = Queue::new(&rig, 100);
    receiver.policy = Buffers::persistent(Arc::clone(&rig.backend) as _, OTHER, Quota::new(100));
    for round in 0..3 {
        let mut crosses: Vec<Cross> = (0..4)
            .map(|n| Cross {
                packet: n,
                from: (from.grefs[n], 128),
                to: (to.grefs[3 - n], 1000),
                len: 900,
                status: GrantStatus::GENERAL_ERROR,
            })
            .collect();
        let before = rig.counters();
        receiver.policy.cross(&mut sender.policy, &mut crosses).unwrap();
        sender.end(false);
        receiver.end(false);
        let spent = rig.counters().since(&before);
        let expected = if round == 0 { (4, 8) } else { (0, 0) };
        assert_eq!((spent.copies, spent.maps), expected, "round {round}");
        assert!(crosses.iter().all(|cross| cross.status.is_okay()));
        for n in 0..4 {
            let page = to.run.page(3 - n).unwrap();
            assert_eq!(bytes(&page, 999, 902)[1..901], [n as u8; 900]);
            assert_eq!(bytes(&page, 1900, 1), [3 - n as u8]);
            page.write(1000, &[0xcc; 900]).unwrap();
        }
    }
    assert_eq!(rig.counters().mapped, 8);
}

#[test]
fn random_pages_at_random_times_against_a_model() {
    for seed in 1..=8 {
        let rig = Rig::new();
        let numbers = &mut Numbers::new(seed);
        let (out, into) = (rig.pages(60, Access::ReadOnly), rig.pages(60, Access::ReadWrite));
        let quota = Quota::new(70);
        let mut queues = [0; 2].map(|_| Queue::sharing(&rig, Arc::clone(&quota)));
        for _ in 0..300 {
            let queue = &mut queues[numbers.below(2)];
            match numbers.below(5) {
                0 => queue.passes(Duration::from_secs(numbers.below(40) as u64)),
                1 => {
                    let count = 1 + numbers.below(30);
                    let grefs: Vec<_> = (0..count).map(|_| numbers.one_of(&into.grefs)).collect();
                    // The pages keep their bytes.
                    queue.fetch(&grefs);
                    assert!(queue.store(&grefs).iter().all(|piece| piece.status.is_okay()));
                }
                _ => {
                    let of = if numbers.once_in(2) { &into } else { &out };
                    let count = 1 + numbers.below(30);
                    let indices: Vec<_> = (0..count).map(|_| numbers.below(60)).collect();
                    let grefs: Vec<_> = indices.iter().map(|&n| of.grefs[n]).collect();
                    queue.arena.fill(0xee);
                    let list = queue.fetch(&grefs);
                    assert!(list.iter().all(|piece| piece.status.is_okay()));
                    for (at, &n) in indices.iter().enumerate() {
                        assert_eq!(queue.arena[at * 64..][..64], [n as u8; 64], "seed {seed}");
                    }
                }
            }
            let mapped = rig.counters().mapped as usize;
            assert_eq!(mapped, quota.used().pages, "seed {seed}: a mapping that nobody counts");
            assert!(mapped <= 70, "seed {seed}");
        }
        for mut queue in queues {
            queue.passes(Duration::from_secs(200));
        }
        let left = (rig.counters().mapped, quota.used());
        assert_eq!(left, (0, Mapped::default()), "seed {seed}: mappings left");
    }
}

fn connect(guest: &mut Hostile) -> Rings {
    guest.key("feature-persistent", "1");
    guest.connect()
}

#[test]
fn a_handwritten_guest_is_served_without_grant_operations() {
    let mut world = World::new();
    world.honest().count(0);
    let mut guest = world.guest();
    let mut rings = connect(&mut guest);
    assert_eq!(guest.backend_key("feature-persistent").as_deref(), Some("1"));
    let (out, into) = (guest.pages(32, Access::ReadOnly), guest.pages(8, Access::ReadWrite));
    for n in 0..32 {
        page(&out, n).0.write(0, &frame(500)).unwrap();
    }
    let mut before = None;
    for round in 0..30 {
        let slots: Vec<_> =
            (0..32u16).map(|n| slot(out.grefs[usize::from(n)], 0, 500, n, NONE)).collect();
        let answers = guest.transmit(&mut rings, &slots);
        assert!(answers.iter().all(|answer| answer.status == status::OKAY), "round {round}");
        guest.post(&mut rings, &into.grefs);
        for len in [60, 9000, 1514, 70, 80, 90] {
            world.behind(guest.vif).give(frame(len), Offload::default());
        }
        let answers = guest.rx_answers(&mut rings, 8);
        assert!(answers.iter().all(|answer| answer.status > 0), "round {round}: {answers:?}");
        if round == 5 {
            before = Some(world.control().counters());
        }
    }
    let spent = world.control().counters().since(&before.unwrap());
    assert_eq!(spent.grant_ops(), 0, "{spent:?}");
    let report = world.control().report_of(guest.vif).unwrap();
    assert_eq!((report.policy.as_str(), report.mapped), ("persistent", 40));
    assert_eq!(report.stats.mapped_pages, 40);
    // It goes as it came.
    guest.start_anew();
    world.holds_nothing_of(guest.vif.domain);
    guest.unkey("feature-persistent");
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    assert_eq!(world.control().report_of(guest.vif).unwrap().policy.as_str(), "copy");
    world.honest().go_on();
    world.stands();
}
