//! Threats to staged pages, and what an honest guest gets.

use crate::rig::{GUEST, OTHER, Overwritten, Rig, bytes, entries, entry, filled, pieces, statuses};
use crate::support::ctrl::Lists;
use crate::support::eventually;
use crate::support::hostile::frame;
use crate::support::rings::{page, slot};
use crate::support::world::World;
use grantway_backend::VifStats;
use grantway_backend::policy::{
    Buffers, Cross, QUEUE_AREAS, Quota, Staged, StagedQueue, StagingError,
};
use grantway_embedded::Revoke;
use grantway_hypervisor::{Access, CopySide, DomId, FrontendPlatform, GrantRef, GrantStatus};
use grantway_netif::ctrl::{BadList, GrefEntry, GrefFlags, Status};
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Offload, XenbusState};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NONE: TxFlags = TxFlags::empty();
const MORE: TxFlags = TxFlags::MORE_DATA;

fn staged(rig: &Rig, queues: u16, quota: usize) -> Arc<Staged> {
    let platform = Arc::clone(&rig.backend) as _;
    // One thread cannot wait for itself.
    Staged::with_lease(platform, GUEST, queues, Quota::new(quota), Duration::ZERO)
}

fn policy(rig: &Rig, queue: &StagedQueue) -> Buffers {
    Buffers::staging(Arc::clone(&rig.backend) as _, GUEST, queue)
}

fn end(policy: &mut Buffers) {
    policy.end_turn(false, &Instant::now, &VifStats::default());
}

#[test]
fn a_list_with_one_bad_entry_stages_nothing() {
    let rig = Rig::new();
    let vif = staged(&rig, 1, 4096);
    let queue = vif.queue(0).unwrap();
    let good = rig.pages(40, Access::ReadWrite);
    let revoked = rig.pages(1, Access::ReadWrite);
    assert_eq!(rig.guest.revoke(revoked.grefs[0]), Revoke::Revoked);
    let anothers = rig.guest.grant(DomId(5), 1, Access::ReadWrite).unwrap();
    let readonly = rig.pages(1, Access::ReadOnly);
    let bad = [
        entry(revoked.grefs[0], Access::ReadWrite),
        entry(anothers.grefs[0], Access::ReadOnly),
        entry(readonly.grefs[0], Access::ReadWrite),
        entry(GrantRef(31_000), Access::ReadWrite),
        entry(GrantRef(u32::MAX), Access::ReadOnly),
        entry(GrantRef(0), Access::ReadWrite),
        entry(GrantRef(7), Access::ReadOnly),
        entry(good.grefs[0], Access::ReadOnly),
        GrefEntry {
            flags: GrefFlags::from_bits_retain(3),
            ..entry(good.grefs[39], Access::ReadOnly)
        },
        GrefEntry {
            flags: GrefFlags::from_bits_retain(0x8000),
            ..entry(good.grefs[39], Access::ReadOnly)
        },
    ];
    for bad in bad {
        for place in [0, 1, 20, 38] {
            let mut list = entries(&good, Access::ReadWrite)[..39].to_vec();
            list.insert(place.max(usize::from(bad.gref == good.grefs[0].0)), bad);
            let refused = queue.add(&list).unwrap_err();
            assert_eq!(refused.status(), Status::InvalidParameter);
            assert_eq!((vif.pages(), rig.counters().mapped), (0, 0), "{refused}");
        }
    }
    // What was refused is nowhere in the way.
    queue.add(&entries(&good, Access::ReadWrite)).unwrap();
    assert_eq!((vif.pages(), rig.counters().mapped), (40, 40));
}

/// A guest that lists its pages one by one has few areas, whatever it lists, and each page is
/// found.
#[test]
fn lists_of_one_page_are_joined() {
    let rig = Rig::new();
    let mapper = Overwritten::of(&rig);
    let by = Arc::clone(&mapper) as _;
    let vif = Staged::with_lease(by, GUEST, 2, Quota::new(4096), Duration::ZERO);
    let queues = [0, 1].map(|n| vif.queue(n).unwrap());
    let (out, into) = (rig.pages(300, Access::ReadOnly), rig.pages(300, Access::ReadWrite));
    let areas = || rig.counters().map_batches - rig.counters().unmap_batches;
    for n in 0..300 {
        for (pages, access) in [(&out, Access::ReadOnly), (&into, Access::ReadWrite)] {
            queues[n % 2].add(&[entry(pages.grefs[n], access)]).unwrap();
        }
        assert!(areas() <= 2 * QUEUE_AREAS as u64, "{} areas", areas());
        assert_eq!((vif.pages(), rig.counters().mapped), (2 * n + 2, 2 * n as u64 + 2));
    }
    assert_eq!(queues.each_ref().map(StagedQueue::pages), [300, 300]);
    let before = rig.counters();
    let mut arena = vec![0; 1 << 20];
    for (n, queue) in queues.iter().enumerate() {
        let mut policy = policy(&rig, queue);
        let own: Vec<_> = out.grefs.iter().copied().skip(n).step_by(2).collect();
        let mut list = pieces(&own, 64);
        policy.fetch(&mut list, &mut arena).unwrap();
        for (at, piece) in list.iter().enumerate() {
            assert!(piece.status.is_okay());
            assert_eq!(arena[at * 64..][..64], [(2 * at + n) as u8; 64]);
        }
        end(&mut policy);
    }
    assert_eq!(rig.counters().since(&before).grant_ops(), 0);
    // A page that cannot be mapped again stands in the way of what it would be mapped with, and of
    // nothing that is staged.
    mapper.entries.lock().unwrap().push(into.grefs[299]);
    let more = rig.pages(40, Access::ReadWrite);
    let refused = more.grefs.iter().filter(|&&gref| {
        let list = [entry(gref, Access::ReadWrite)];
        matches!(queues[1].add(&list), Err(StagingError::Map(_)))
    });
    assert!(refused.count() > 0, "the smallest area is that of the revoked page at some time");
    assert_eq!(rig.counters().mapped, vif.pages() as u64);
    // All of them go by the lists that they came in.
    for n in 0..300 {
        for pages in [&out, &into] {
            let mut list = [entry(pages.grefs[n], Access::ReadOnly)];
            queues[n % 2].del(&mut list);
        }
    }
    vif.close();
    assert_eq!((rig.counters().mapped, areas()), (0, 0));
}

#[test]
fn duplicate_pages_are_refused_on_one_queue_and_across_queues() {
    let rig = Rig::new();
    let vif = staged(&rig, 2, 4096);
    let [first, second] = [0, 1].map(|n| vif.queue(n).unwrap());
    let pages = rig.pages(4, Access::ReadWrite);
    let list = entries(&pages, Access::ReadWrite);
    first.add(&list).unwrap();
    for queue in [&first, &second] {
        let refused = queue.add(&list[..1]).unwrap_err();
        assert!(matches!(refused, StagingError::Duplicate { entry: 0, queue: 0, .. }), "{refused}");
    }
    // Nor may another queue take it back.
    let mut theirs = list.clone();
    assert_eq!(second.del(&mut theirs), 0);
    assert!(theirs.iter().all(|e| e.status == Status::InvalidParameter.to_u16()));
    assert_eq!(first.del(&mut theirs), 4);
    second.add(&list).unwrap();
    assert_eq!(rig.counters().mapped, 4);
    assert!(vif.queue(2).is_none() && vif.queue(u32::MAX).is_none());
}

#[test]
fn lists_that_are_too_long_and_quotas_that_are_used_up() {
    let rig = Rig::new();
    let vif = staged(&rig, 2, 700);
    let [first, second] = [0, 1].map(|n| vif.queue(n).unwrap());
    assert_eq!((first.capacity(), second.capacity()), (700, 700));
    let pages = rig.pages(705, Access::ReadWrite);
    let list = entries(&pages, Access::ReadWrite);
    assert_eq!(first.add(&[]), Err(BadList::Length { found: 0 }.into()));
    assert_eq!(first.add(&list[..513]), Err(BadList::Length { found: 513 }.into()));
    let mut long = list[..513].to_vec();
    assert_eq!(first.del(&mut long), 0);
    first.add(&list[..512]).unwrap();
    // The quota is the vif's, not the queue's.
    let refused = second.add(&list[512..701]).unwrap_err();
    assert_eq!(refused, StagingError::Room { found: 189, room: 188 });
    second.add(&list[512..700]).unwrap();
    assert_eq!(rig.counters().mapped, 700);
    assert_eq!(first.add(&list[700..701]), Err(StagingError::Room { found: 1, room: 0 }));
    let mut back = vec![list[0], list[600]];
    assert_eq!((first.del(&mut back), back[1].status), (1, Status::InvalidParameter.to_u16()));
    first.add(&list[700..701]).unwrap();
    assert_eq!(rig.counters().mapped, 700);
}

#[test]
fn a_readonly_page_used_for_receiving_is_an_error() {
    let rig = Rig::new();
    let vif = staged(&rig, 1, 100);
    let queue = vif.queue(0).unwrap();
    // Granted to be written, and staged to be read only: the guest's word holds.
    let pages = rig.pages(2, Access::ReadWrite);
    queue.add(&[entry(pages.grefs[0], Access::ReadOnly)]).unwrap();
    let mut policy = policy(&rig, &queue);
    let (mut arena, mut list) = (vec![0x55; 200], pieces(&pages.grefs, 100));
    policy.store(&mut list, &mut arena).unwrap();
    assert_eq!(statuses(&list), [GrantStatus::PERMISSION_DENIED, GrantStatus::OKAY]);
    assert_eq!(bytes(&pages.run.page(0).unwrap(), 0, 100), [0; 100]);
    assert_eq!(bytes(&pages.run.page(1).unwrap(), 0, 100), [0x55; 100]);
    policy.fetch(&mut list, &mut arena).unwrap();
    assert_eq!(statuses(&list), [GrantStatus::OKAY; 2]);
}

#[test]
fn a_stretch_beyond_its_page_or_the_arena_is_refused() {
    let rig = Rig::new();
    let vif = staged(&rig, 1, 100);
    let queue = vif.queue(0).unwrap();
    let pages = rig.pages(2, Access::ReadWrite);
    queue.add(&entries(&pages, Access::ReadWrite)).unwrap();
    let mut policy = policy(&rig, &queue);
    let mut arena = vec![0; 200];
    let mut list = pieces(&pages.grefs, 100);
    list[0].offset = 3997;
    list[1].at = 101;
    for fetch in [true, false] {
        match fetch {
            true => policy.fetch(&mut list, &mut arena).unwrap(),
            false => policy.store(&mut list, &mut arena).unwrap(),
        }
        let expected = [GrantStatus::BAD_COPY_ARG, GrantStatus::BAD_VIRT_ADDR];
        assert_eq!(statuses(&list), expected);
    }
    list[0].offset = 3996;
    list[1].at = 100;
    policy.fetch(&mut list, &mut arena).unwrap();
    assert_eq!(statuses(&list), [GrantStatus::OKAY; 2]);
}

#[test]
fn a_part_of_a_run_is_taken_back_and_the_rest_stays_in_place() {
    let rig = Rig::new();
    let vif = staged(&rig, 1, 100);
    let queue = vif.queue(0).unwrap();
    let pages = rig.pages(20, Access::ReadWrite);
    queue.add(&entries(&pages, Access::ReadWrite)).unwrap();
    let before = rig.counters();
    let mut back: Vec<_> = entries(&pages, Access::ReadWrite).into_iter().step_by(2).collect();
    assert_eq!(queue.del(&mut back), 10);
    let spent = rig.counters().since(&before);
    assert_eq!((spent.maps, spent.map_batches), (10, 1), "what stays is mapped as a new run");
    assert_eq!((spent.unmaps, spent.unmap_batches), (20, 1), "the old one goes whole");
    assert_eq!(rig.counters().mapped, 10);
    for (n, &gref) in pages.grefs.iter().enumerate() {
        let expected = if n % 2 == 0 { Revoke::Revoked } else { Revoke::StillMapped };
        assert_eq!(rig.guest.revoke(gref), expected, "page {n}");
    }
    // Those that stayed serve, and those that went are nobody's.
    let mut policy = policy(&rig, &queue);
    let (mut arena, mut list) = (vec![0; 2000], pieces(&pages.grefs, 100));
    policy.fetch(&mut list, &mut arena).unwrap();
    for (n, piece) in list.iter().enumerate() {
        assert_eq!(piece.status.is_okay(), n % 2 == 1);
        if n % 2 == 1 {
            assert_eq!(arena[n * 100..][..100], [n as u8; 100]);
        }
    }
}

#[test]
fn del_in_flight_is_refused_and_the_mapping_kept() {
    let rig = Rig::new();
    let vif = staged(&rig, 1, 100);
    let queue = vif.queue(0).unwrap();
    let pages = rig.pages(3, Access::ReadWrite);
    queue.add(&entries(&pages, Access::ReadWrite)).unwrap();
    let mut policy = policy(&rig, &queue);
    let (mut arena, mut list) = (vec![0; 300], pieces(&pages.grefs, 100));
    policy.fetch(&mut list, &mut arena).unwrap();
    // The worker's turn goes on: it may look at these pages still.
    for count in [1, 3] {
        let mut back = entries(&pages, Access::ReadWrite)[..count].to_vec();
        assert_eq!(queue.del(&mut back), 0);
        assert!(back.iter().all(|entry| entry.status == Status::InvalidParameter.to_u16()));
        assert_eq!((vif.pages(), rig.counters().mapped), (3, 3));
    }
    let more = rig.pages(1, Access::ReadWrite);
    assert_eq!(queue.add(&entries(&more, Access::ReadWrite)), Err(StagingError::InUse));
    assert_eq!((vif.pages(), rig.counters().mapped), (3, 3));
    end(&mut policy);
    let mut back = entries(&pages, Access::ReadWrite);
    assert_eq!(queue.del(&mut back), 3);
    assert_eq!(rig.counters().mapped, 0);
    // A worker that ends in the middle of a turn gives the table back, too.
    queue.add(&entries(&pages, Access::ReadWrite)).unwrap();
    policy.fetch(&mut list, &mut arena).unwrap();
    drop(policy);
    vif.close();
    assert_eq!(rig.counters().mapped, 0);
}

/// Two guests; each has two pages, the first of which is staged where asked.
fn crossing(sender_stages: bool, receiver_stages: bool) {
    let rig = Rig::new();
    let other = rig.other();
    let from = rig.pages(1, Access::ReadOnly);
    let to = filled(&other, 1, Access::ReadWrite);
    let sending = staged(&rig, 1, 100);
    let receiving = Staged::new(Arc::clone(&rig.backend) as _, OTHER, 1, Quota::new(100));
    let [s, r] = [&sending, &receiving].map(|vif| vif.queue(0).unwrap());
    if sender_stages {
        s.add(&entries(&from, Access::ReadOnly)).unwrap();
    }
    if receiver_stages {
        r.add(&entries(&to, Access::ReadWrite)).unwrap();
    }
    let mut sender = policy(&rig, &s);
    let mut receiver = Buffers::staging(Arc::clone(&rig.backend) as _, OTHER, &r);
    // The guest's page, seen by it: what crosses is its bytes of now.
    let bytes_sent: Vec<u8> = (0..300).map(|n| n as u8).collect();
    from.run.page(0).unwrap().write(50, &bytes_sent).unwrap();
    let cross = |from: (GrantRef, u16), len| Cross {
        packet: 0,
        from,
        to: (to.grefs[0], 1000),
        len,
        status: GrantStatus::GENERAL_ERROR,
    };
    let mut crosses = [cross((from.grefs[0], 50), 300)];
    let before = rig.counters();
    receiver.cross(&mut sender, &mut crosses).unwrap();
    let spent = rig.counters().since(&before);
    let copies = u64::from(!(sender_stages && receiver_stages));
    assert_eq!((spent.grant_ops(), spent.copies), (copies, copies));
    assert!(crosses[0].status.is_okay());
    assert_eq!(bytes(&to.run.page(0).unwrap(), 1000, 300), bytes_sent);
    assert_eq!(bytes(&to.run.page(0).unwrap(), 1300, 10), [0; 10]);
    let side = sender.side(from.grefs[0], 50);
    let named = CopySide::Foreign { domain: GUEST, gref: from.grefs[0], offset: 50 };
    assert_eq!((side.grant, side.mapped.is_some()), (named, sender_stages));
    let mut crosses = [cross((from.grefs[0], 3900), 300), cross((GrantRef(31_000), 0), 64)];
    receiver.cross(&mut sender, &mut crosses).unwrap();
    assert!(crosses.iter().all(|cross| !cross.status.is_okay()), "{crosses:?}");
}

#[test]
fn bytes_between_guests_with_and_without_staged_pages() {
    for (sender, receiver) in [(true, true), (true, false), (false, true), (false, false)] {
        crossing(sender, receiver);
    }
}

#[test]
fn staged_and_plain_slots_on_one_ring_and_in_one_packet() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, mut rings) = Lists::connect(&mut guest);
    let out = guest.pages(8, Access::ReadOnly);
    assert_eq!(lists.add(&mut guest, &entries(&out, Access::ReadOnly)[..4]), Ok(0));
    let whole = frame(8 * 500);
    for n in 0..8 {
        page(&out, n).0.write(0, &whole[n * 500..][..500]).unwrap();
    }
    let slots: Vec<_> = (0..8u16)
        .map(|n| {
            let gref = out.grefs[usize::from(n)];
            slot(gref, 0, if n == 0 { 4000 } else { 500 }, n, if n < 7 { MORE } else { NONE })
        })
        .collect();
    let answers = guest.transmit(&mut rings, &slots);
    assert!(answers.iter().all(|answer| answer.status == status::OKAY));
    assert_eq!(world.behind(guest.vif).look().taken[0].0, whole);
    let report = world.control().report_of(guest.vif).unwrap();
    assert_eq!((report.stats.mapped_hits, report.stats.mapped_misses), (4, 4));
    assert_eq!((report.mapped, report.policy.as_str()), (4, "staging"));
    world.stands();
}

#[test]
fn staged_packets_need_no_hypervisor_call() {
    let mut world = World::new();
    // The honest vif uses grant copy.
    world.honest().count(0);
    let mut guest = world.guest();
    let (mut lists, mut rings) = Lists::connect(&mut guest);
    let (out, into) = (guest.pages(1, Access::ReadOnly), guest.pages(8, Access::ReadWrite));
    assert_eq!(lists.add(&mut guest, &entries(&out, Access::ReadOnly)), Ok(0));
    assert_eq!(lists.add(&mut guest, &entries(&into, Access::ReadWrite)), Ok(0));
    page(&out, 0).0.write(0, &frame(200)).unwrap();
    let before = world.control().counters();
    for round in 0..20 {
        let slots: Vec<_> = (0..32).map(|n| slot(out.grefs[0], 0, 200, n, NONE)).collect();
        let answers = guest.transmit(&mut rings, &slots);
        assert!(answers.iter().all(|answer| answer.status == status::OKAY));
        guest.post(&mut rings, &into.grefs);
        for len in [60, 9000, 1514, 70] {
            world.behind(guest.vif).give(frame(len), Offload::default());
        }
        let answers = guest.rx_answers(&mut rings, 6);
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [60, 4096, 4096, 808, 1514, 70], "round {round}");
        // Two pages are left on the ring; their turn is the next.
        guest.post(&mut rings, &[]);
        for len in [60, 60] {
            world.behind(guest.vif).give(frame(len), Offload::default());
        }
        guest.rx_answers(&mut rings, 2);
    }
    let spent = world.control().counters().since(&before);
    assert_eq!(spent.grant_ops(), 0, "{spent:?}");
    assert_eq!(world.behind(guest.vif).look().taken.len(), 640);
    world.honest().go_on();
    world.stands();
}

#[test]
fn a_page_that_is_revoked_after_it_was_staged_stays_the_guests_own() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, mut rings) = Lists::connect(&mut guest);
    let out = guest.pages(1, Access::ReadOnly);
    assert_eq!(lists.add(&mut guest, &entries(&out, Access::ReadOnly)), Ok(0));
    page(&out, 0).0.write(0, &frame(200)).unwrap();
    assert_eq!(guest.domain.revoke(out.grefs[0]), Revoke::StillMapped);
    let answers = guest.transmit(&mut rings, &[slot(out.grefs[0], 0, 200, 5, NONE)]);
    assert_eq!(answers[0].status, status::OKAY);
    assert_eq!(lists.del(&mut guest, &entries(&out, Access::ReadOnly)), Ok(1));
    assert_eq!(guest.domain.revoke(out.grefs[0]), Revoke::Revoked);
    let answers = guest.transmit(&mut rings, &[slot(out.grefs[0], 0, 200, 6, NONE)]);
    assert_eq!(answers[0].status, status::ERROR);
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn teardown_drops_what_is_staged_however_the_connection_ends() {
    let mut world = World::new();
    let mut guest = world.guest();
    for way in 0..4 {
        let (mut lists, mut rings) = Lists::connect(&mut guest);
        let pages = guest.pages(300, Access::ReadWrite);
        assert_eq!(lists.add(&mut guest, &entries(&pages, Access::ReadWrite)), Ok(0));
        assert_eq!(world.table(guest.vif.domain).grants_held, 303);
        match way {
            0 => guest.start_anew(),
            1 => {
                rings.put_tx(&[slot(pages.grefs[0], 0, 60, 1, NONE)]);
                use grantway_ring::RingMemory;
                rings.tx.store(grantway_ring::Index::ReqProd, 5000);
                guest.kick(rings.tx_event);
                guest.await_backend(XenbusState::Closing);
            }
            2 => guest.state(XenbusState::Closed),
            _ => guest.state(XenbusState::Closing),
        }
        world.holds_nothing_of(guest.vif.domain);
        assert_eq!(world.control().report_of(guest.vif).unwrap().mapped, 0);
    }
    // Without a control ring nothing can be staged.
    guest.unkey("ctrl-ring-ref");
    let mut rings = guest.connect();
    assert_eq!(world.control().report_of(guest.vif).unwrap().policy.as_str(), "copy");
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn lists_change_under_load_and_no_packet_is_lost() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, mut rings) = Lists::connect(&mut guest);
    let out = guest.pages(32, Access::ReadOnly);
    for n in 0..32 {
        page(&out, n).0.write(0, &frame(100)).unwrap();
    }
    let list = entries(&out, Access::ReadOnly);
    let mut sent = 0;
    for rounds in 0..1000 {
        // A list changes while the packets are on their way.
        let part = (rounds % 8) * 4;
        let message = match rounds % 9 {
            8 => lists.to_add(0, &list),
            _ if rounds < 8 => lists.to_del(0, &[entry(GrantRef(9999), Access::ReadOnly)]),
            _ => lists.to_del(0, &list[part..part + 4]),
        };
        lists.ring.put(&[message.request(1)]);
        guest.kick(lists.ring.event);
        let slots: Vec<_> =
            (0..32u16).map(|n| slot(out.grefs[usize::from(n)], 0, 100, n, NONE)).collect();
        let answers = guest.transmit(&mut rings, &slots);
        assert!(answers.iter().all(|answer| answer.status == status::OKAY), "{answers:?}");
        sent += 32;
        lists.ring.answers(&mut guest, 1);
    }
    eventually("all frames to arrive", || {
        let behind = world.behind(guest.vif);
        let inner = behind.look();
        assert!(inner.taken.iter().all(|(bytes, _)| *bytes == frame(100)));
        (inner.sent == sent).then_some(())
    });
    world.stands();
}
