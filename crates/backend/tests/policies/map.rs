//! Pages that are mapped while their packet is on its way: never longer than until
//! its answer, and never more than may be.

use crate::rig::{GUEST as RIGS, Rig};
use crate::support::honest::Honest;
use crate::support::hostile::{Hostile, frame};
use crate::support::port::Call;
use crate::support::rings::{Rings, SLOTS, slot};
use crate::support::world::{GUEST, World};
use crate::support::{Ends, panics};
use grantway_backend::policy::{Map, Policy, Quota, Stretch};
use grantway_backend::{VifStatsSnapshot, WaitMode};
use grantway_embedded::Revoke;
use grantway_frontend::Wishes;
use grantway_hypervisor::{Access, DomId, FrontendPlatform, GrantRef, Granted};
use grantway_netif::Offload;
use grantway_netif::extra::{Extra, Hash};
use grantway_netif::tx::{TxFlags, TxRequest, status};
use grantway_ring::RingMemory;
use grantway_testkit::Numbers;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

const NONE: TxFlags = TxFlags::empty();
/// Bytes that are copied of each packet.
const HEAD: usize = 128;

fn stretches(grefs: &[GrantRef]) -> Vec<Stretch> {
    grefs.iter().map(|&gref| Stretch { gref, offset: 0, len: 64, page: None }).collect()
}

#[test]
fn a_list_is_one_run_and_counts_until_it_is_unmapped() {
    let rig = Rig::new();
    let quota = Quota::new(300);
    let new = || Map::new(Arc::clone(&rig.backend) as _, RIGS, Arc::clone(&quota));
    let (mut one, mut other) = (new(), new());
    let pages = rig.pages(200, Access::ReadOnly);
    assert_eq!((one.room(), one.mapped()), (256, 0));
    let before = rig.counters();
    let mut lists = [stretches(&pages.grefs[..120]), stretches(&pages.grefs[120..])];
    assert!(lists.iter_mut().all(|list| one.map(list)));
    let spent = rig.counters().since(&before);
    assert_eq!((spent.maps, spent.map_batches, spent.unmaps), (200, 2, 0));
    for (n, stretch) in lists.iter().flatten().enumerate() {
        let mut bytes = [0xff; 64];
        stretch.page.as_ref().unwrap().read(100, &mut bytes).unwrap();
        assert_eq!(bytes, [n as u8; 64]);
    }
    assert_eq!((one.room(), one.mapped(), other.room(), quota.used().pages), (56, 200, 100, 200));
    assert!(!other.map(&mut stretches(&pages.grefs[..101])), "beyond the vif's limit");
    assert_eq!((other.mapped(), quota.used().pages), (0, 200));
    assert_eq!(rig.guest.revoke(pages.grefs[7]), Revoke::StillMapped);
    drop(lists);
    one.unmap();
    let spent = rig.counters().since(&before);
    assert_eq!((spent.unmaps, spent.unmap_batches, spent.mapped), (200, 2, 0));
    assert_eq!((one.room(), one.mapped(), quota.used().pages), (256, 0, 0));
    assert_eq!(rig.guest.revoke(pages.grefs[7]), Revoke::Revoked);
}

#[test]
fn a_list_that_cannot_be_mapped_stops_mapping_for_a_while() {
    let rig = Rig::new();
    let quota = Quota::new(300);
    let mut policy = Map::new(Arc::clone(&rig.backend) as _, RIGS, Arc::clone(&quota));
    let pages = rig.pages(4, Access::ReadOnly);
    let anothers = rig.guest.grant(DomId(5), 1, Access::ReadWrite).unwrap();
    for bad in [anothers.grefs[0], GrantRef(30_000), GrantRef(u32::MAX)] {
        let mut list = stretches(&[pages.grefs[0], bad, pages.grefs[1]]);
        assert!(!policy.map(&mut list));
        assert!(list.iter().all(|stretch| stretch.page.is_none()));
        assert_eq!((rig.counters().mapped, quota.used().pages, policy.mapped()), (0, 0, 0));
        let mut turns = 0;
        while policy.room() == 0 {
            turns += 1;
            policy.end_turn(true);
            policy.end_turn(false);
        }
        assert_eq!(turns, 64);
    }
    assert!(policy.map(&mut stretches(&pages.grefs)));
    drop(policy);
    assert_eq!((rig.counters().mapped, quota.used().pages), (0, 0));
}

/// A world whose backend maps, and whose honest vif rests.
fn world() -> World {
    world_with(4096)
}

fn world_with(pages: usize) -> World {
    // The honest vif begins behind the restart, which may cost it a frame.
    let mut world = World::of_workers(1, WaitMode::Interrupt, false);
    world.setup.policy.most = Policy::Map;
    world.setup.policy.pages = pages;
    world.restart();
    world.begins_beside();
    world.honest().count(0);
    world
}

fn stats(world: &World) -> VifStatsSnapshot {
    world.control().report_of(GUEST).unwrap().stats
}

/// A packet in pages of its own: its slots, its pages, its bytes.
struct Packet {
    slots: Vec<[u32; 3]>,
    pages: Granted,
    bytes: Vec<u8>,
}

impl Packet {
    /// Makes a packet in pieces of at most `cut` bytes, each somewhere in its page.
    fn new(guest: &Hostile, len: usize, cut: usize, id: u16) -> Self {
        let mut bytes = frame(len);
        // No two are alike.
        bytes[14..16].copy_from_slice(&id.to_be_bytes());
        let parts: Vec<&[u8]> = bytes.chunks(cut).collect();
        let pages = guest.pages(parts.len(), Access::ReadOnly);
        let mut slots = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            let (memory, gref) = pages.page(n).unwrap();
            let offset = (4096 - part.len()) / 3;
            memory.write(offset, part).unwrap();
            let size = if n == 0 { len } else { part.len() };
            let more = if n + 1 < parts.len() { TxFlags::MORE_DATA } else { NONE };
            slots.push(slot(gref, offset as u16, size as u16, id, more));
        }
        Self { slots, pages, bytes }
    }
}

/// Every page of an answered packet can be taken back at once.
#[track_caller]
fn is_free(guest: &Hostile, packet: &Packet) {
    for &gref in &packet.pages.grefs {
        assert_eq!(guest.domain.revoke(gref), Revoke::Revoked, "{gref} is mapped and answered");
    }
}

fn taken(world: &World) -> Vec<Vec<u8>> {
    let taken = std::mem::take(&mut world.behind(GUEST).look().taken);
    taken.into_iter().map(|(bytes, _)| bytes).collect()
}

#[test]
fn frames_of_every_length_and_cut_arrive_whole_and_are_free_when_answered() {
    let mut world = world();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let held = world.control().counters().mapped;
    let mut mapped = 0;
    for len in [60, 127, 128, 129, 130, 300, 1514, 4096, 4224, 9014, 30_000, 65_535] {
        for cut in [100, 129, 1448, 4000, 4096] {
            if len > 18 * cut {
                continue;
            }
            let before = stats(&world);
            let packet = Packet::new(&guest, len, cut, 7);
            let answers = guest.transmit(&mut rings, &packet.slots);
            is_free(&guest, &packet);
            assert!(answers.iter().all(|answer| (answer.id, answer.status) == (7, status::OKAY)));
            assert!(taken(&world) == [packet.bytes], "{len} bytes by {cut}");
            // A page whose bytes are all among the first needs no mapping.
            let behind = if len > HEAD { len.div_ceil(cut) - HEAD / cut } else { 0 };
            let hits = stats(&world).mapped_hits - before.mapped_hits;
            assert_eq!(hits, behind as u64, "{len} bytes by {cut}");
            mapped += hits;
        }
    }
    let report = world.control().report_of(GUEST).unwrap();
    assert_eq!((report.policy, report.mapped), (Policy::Map, 0));
    assert_eq!((report.stats.mapped_pages, report.stats.mapped_misses), (mapped, 0));
    assert_eq!(world.control().counters().mapped, held, "more than the rings");
    // What guests receive is copied, as by stock netback.
    let into = guest.pages(4, Access::ReadWrite);
    guest.post(&mut rings, &into.grefs);
    world.behind(GUEST).give(frame(9000), Offload::default());
    let answers = guest.rx_answers(&mut rings, 3);
    assert!(answers.iter().all(|answer| answer.status > 0));
    assert_eq!(stats(&world).mapped_hits, mapped);
    world.honest().go_on();
    world.stands();
}

/// Sends packets as fast as there is room, and takes back the pages of each as soon as it is
/// answered.
fn floods(guest: &mut Hostile, rings: &mut Rings, count: u16, mut len: impl FnMut() -> usize) {
    let (mut sent, mut answered) = (0, 0);
    let mut out = std::collections::VecDeque::new();
    let start = Instant::now();
    while answered < count {
        while sent < count {
            let packet = Packet::new(guest, len(), 4096, sent);
            let room = SLOTS - rings.tx_prod.wrapping_sub(rings.tx_cons);
            if packet.slots.len() as u32 > room {
                guest.domain.release(packet.pages);
                break;
            }
            rings.put_tx(&packet.slots);
            out.push_back((packet.slots.len(), packet));
            sent += 1;
        }
        guest.kick(rings.tx_event);
        for answer in rings.tx_answers() {
            let (left, packet) = out.front_mut().expect("a packet for each answer");
            assert_eq!((answer.id, answer.status), (answered, status::OKAY), "out of order");
            *left -= 1;
            if *left == 0 {
                is_free(guest, packet);
                out.pop_front();
                answered += 1;
            }
        }
        assert!(start.elapsed() < crate::support::PROMPT, "{answered} of {count} answered");
    }
}

#[test]
fn under_load_every_answer_comes_in_order_and_after_the_unmapping() {
    for pages in [4096, 40] {
        let mut world = world_with(pages);
        world.honest().go_on();
        let mut guest = world.guest();
        let mut rings = guest.connect();
        let numbers = &mut Numbers::new(1);
        floods(&mut guest, &mut rings, 1500, || {
            numbers.one_of(&[60, 200, 1514, 1514, 9000, 65_535])
        });
        let found = stats(&world);
        assert_eq!(found.tx_packets, 1500);
        assert!(found.mapped_hits > 500, "{found:?}");
        assert_eq!(found.mapped_misses > 0, pages == 40, "{found:?}");
        let counters = world.control().counters();
        assert!(counters.map_batches < counters.maps, "{counters:?}");
        assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 0);
        world.stands();
    }
}

#[test]
fn a_page_is_pinned_while_the_port_has_it_and_what_was_judged_is_not_read_again() {
    let mut world = world();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    for busy in [false, true] {
        let packet = Packet::new(&guest, 3000, 1500, 3);
        let (domain, grefs) = (Arc::clone(&guest.domain), packet.pages.grefs.clone());
        let pages: Vec<_> = (0..2).map(|n| packet.pages.page(n).unwrap().0).collect();
        let pinned = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&pinned);
        world.behind(GUEST).look().busy = busy;
        world.behind(GUEST).hook(move |call| {
            if call == Call::Send {
                for &gref in &grefs {
                    let pins = domain.revoke(gref) == Revoke::StillMapped;
                    seen.fetch_add(u64::from(pins), SeqCst);
                }
                // The guest writes over all of it, what was judged too.
                pages.iter().for_each(|page| page.write(0, &[0xee; 4096]).unwrap());
            }
        });
        let answers = guest.transmit(&mut rings, &packet.slots);
        assert!(answers.iter().all(|answer| answer.status == status::OKAY));
        assert_eq!(pinned.load(SeqCst), 2, "not pinned while the port had it");
        is_free(&guest, &packet);
        world.behind(GUEST).unhook();
        let frames = taken(&world);
        match busy {
            // As under any policy, it is dropped.
            true => assert_eq!((frames.len(), stats(&world).tx_dropped_busy), (0, 1)),
            false => {
                assert_eq!(frames[0][..HEAD], packet.bytes[..HEAD]);
                assert!(frames[0][HEAD..].iter().all(|&byte| byte == 0xee));
            }
        }
    }
    world.behind(GUEST).look().busy = false;
    world.honest().go_on();
    world.stands();
}

#[test]
fn an_invalid_reference_drops_only_its_own_packet() {
    let mut world = world();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let anothers = guest.domain.grant(DomId(5), 1, Access::ReadOnly).unwrap();
    for (round, bad) in [GrantRef(30_000), anothers.grefs[0], GrantRef(u32::MAX), GrantRef(0)]
        .into_iter()
        .enumerate()
    {
        // In its first page, which is copied, and in its second, which is mapped.
        for place in [0, 1] {
            let mut packets: Vec<_> = (0..12).map(|n| Packet::new(&guest, 2000, 1000, n)).collect();
            let broken = &mut packets[5].slots[place];
            let request = TxRequest::from_words(*broken);
            *broken = TxRequest { gref: bad.0, ..request }.to_words();
            let slots: Vec<_> = packets.iter().flat_map(|packet| packet.slots.clone()).collect();
            let answers = guest.transmit(&mut rings, &slots);
            for (n, answer) in answers.iter().enumerate() {
                let expected = if n / 2 == 5 { status::ERROR } else { status::OKAY };
                assert_eq!((answer.id, answer.status), (n as u16 / 2, expected), "{bad}");
            }
            packets.iter().for_each(|packet| is_free(&guest, packet));
            packets.remove(5);
            let expected: Vec<_> = packets.into_iter().map(|packet| packet.bytes).collect();
            assert!(taken(&world) == expected, "{bad} at {place}");
        }
        let found = stats(&world);
        assert_eq!(found.tx_dropped_grant, 2 * (round as u64 + 1));
        assert!(found.mapped_misses > 0);
        // Pages are mapped again before long.
        let before = found.mapped_hits;
        for _ in 0..70 {
            let packet = Packet::new(&guest, 200, 4096, 1);
            guest.transmit(&mut rings, &packet.slots);
            is_free(&guest, &packet);
        }
        assert!(stats(&world).mapped_hits > before);
        taken(&world);
    }
    world.honest().go_on();
    world.stands();
}

#[test]
fn a_payload_that_changes_in_flight_arrives_with_its_length() {
    let mut world = world();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let packet = Packet::new(&guest, 20_000, 4096, 9);
    let pages: Vec<_> = (0..5).map(|n| packet.pages.page(n).unwrap().0).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| {
            let mut numbers = Numbers::new(155);
            while !stop.load(SeqCst) {
                let page = &pages[numbers.below(5)];
                page.write(numbers.below(4090), &numbers.word().to_be_bytes()).unwrap();
            }
        });
        for _ in 0..300 {
            for answer in guest.transmit(&mut rings, &packet.slots) {
                assert_eq!(answer.status, status::OKAY);
            }
        }
    });
    assert!(taken(&world).iter().all(|bytes| bytes.len() == 20_000));
    is_free(&guest, &packet);
    world.honest().go_on();
    world.stands();
}

#[test]
fn a_chain_that_is_longer_than_a_turn_is_served() {
    let mut world = world();
    // Beside another one, turns are short.
    world.honest().go_on();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    for extras in [1, 30, 31, 32, 127, 128, 200, 254] {
        let packet = Packet::new(&guest, 4000, 4000, 5);
        let mut slots = packet.slots.clone();
        let first = TxRequest::from_words(slots[0]);
        slots[0] = TxRequest { flags: TxFlags::EXTRA_INFO, ..first }.to_words();
        let hash = Extra::Hash(Hash { kind: 1, algorithm: 1, value: 1 });
        slots.extend((0..extras).map(|n| hash.to_tx_words(n + 1 < extras)));
        let answers = guest.transmit(&mut rings, &slots);
        assert_eq!(answers[0].status, status::OKAY, "{extras} extras");
        assert!(answers[1..].iter().all(|answer| answer.status == status::NULL));
        is_free(&guest, &packet);
        assert!(taken(&world) == [packet.bytes], "{extras} extras");
    }
    world.stands();
}

/// Lets the worker die as it hands over the frame of this number.
fn dies_at_send(world: &World, number: u32) {
    let mut sends = 0;
    world.behind(GUEST).hook(move |call| {
        if call == Call::Send {
            sends += 1;
            if sends > number {
                panics::die();
            }
        }
    });
}

#[test]
fn a_kill_answers_each_slot_once_whether_its_pages_were_mapped_or_only_waited() {
    let mut world = world();
    let mut guest = world.guest();
    // In the first turn, and in the second, while the answers of the first wait.
    for (kill, policy) in [(3, Policy::Map), (70, Policy::Map), (70, Policy::Copy)] {
        let mut rings = guest.connect();
        taken(&world);
        dies_at_send(&world, kill);
        let packets: Vec<_> = (0..90).map(|n| Packet::new(&guest, 200, 4096, n)).collect();
        let slots: Vec<_> = packets.iter().flat_map(|packet| packet.slots.clone()).collect();
        rings.put_tx(&slots);
        guest.kick(rings.tx_event);
        world.falls();
        assert_eq!(rings.tx_answers().len(), 0, "answered before its pages were unmapped");
        // What was consumed is not read again: of a turn, 32 slots at least.
        let consumed = if kill < 32 { 32 } else { 90 };
        for index in 0..consumed {
            rings.tx.write_slot(index, slot(GrantRef(7), 1, 14, 9, NONE));
        }
        world.behind(GUEST).unhook();
        // The successor may have been told otherwise.
        world.setup.policy.most = policy;
        world.start();
        let answers = guest.tx_answers(&mut rings, 90);
        for (n, answer) in answers.iter().enumerate() {
            assert_eq!((usize::from(answer.id), answer.status), (n, status::OKAY));
        }
        packets.iter().for_each(|packet| is_free(&guest, packet));
        let ids: Vec<_> = taken(&world).iter().map(|bytes| [bytes[14], bytes[15]]).collect();
        let once: BTreeSet<_> = ids.iter().collect();
        assert_eq!(once.len(), ids.len(), "sent twice: {ids:?}");
        // Lost is what was consumed: 64 packets at most in the turn that was cut.
        let least = if kill < 32 { kill + 90 - 64 } else { kill };
        assert!(ids.len() >= least as usize, "{} frames", ids.len());
        guest.is_served(&mut rings);
        assert_eq!(rings.tx_words().len(), 0);
        guest.start_anew();
        world.holds_nothing_of(GUEST.domain);
    }
    world.honest().go_on();
    world.stands_and(|_| ());
}

#[test]
fn a_guest_that_leaves_or_is_removed_under_load_leaves_no_page_mapped() {
    let mut world = world();
    for round in 0..6 {
        let mut guest = world.guest();
        let mut rings = guest.connect();
        let packets: Vec<_> = (0..13).map(|n| Packet::new(&guest, 65_535, 4096, n)).collect();
        for packet in &packets {
            rings.put_tx(&packet.slots);
        }
        guest.kick(rings.tx_event);
        match round % 3 {
            0 => guest.start_anew(),
            1 => world.detaches(GUEST),
            // An index that cannot be, behind all that.
            _ => {
                rings.tx_prod = rings.tx_prod.wrapping_add(10 * SLOTS);
                rings.put_tx(&[]);
                guest.kick(rings.tx_event);
                guest.await_disabled();
                world.detaches(GUEST);
            }
        }
        world.holds_nothing_of(GUEST.domain);
        packets.iter().for_each(|packet| is_free(&guest, packet));
        drop(guest);
        if round % 3 == 0 {
            world.detaches(GUEST);
        }
    }
    world.honest().go_on();
    world.stands_and(|honest| assert_eq!(honest.connections(), 1));
}

#[test]
fn the_real_frontend_is_served_by_policy_map() {
    for queues in [1, 2] {
        let mut world = world();
        let domain = world.boot(GUEST.domain);
        world.attach(GUEST, &[]);
        world.expects(GUEST);
        for policy in [grantway_frontend::Policy::Copy, grantway_frontend::Policy::Staging] {
            let wishes = Wishes { queues, policy, ..Wishes::default() };
            let guest = Honest::start_with(Arc::clone(&domain), world.ports.of(GUEST), wishes);
            guest.carries(600);
            let report = world.control().report_of(GUEST).unwrap();
            assert_eq!(report.policy, Policy::Map);
            assert!(report.stats.mapped_hits >= 600 && report.stats.mapped_misses == 0);
            guest.lost_nothing();
            // They are unmapped behind what arrived, in batches.
            crate::support::eventually("all is unmapped", || {
                (world.control().report_of(GUEST)?.mapped == 0).then_some(())
            });
            world.toolstack.ask_to_close(GUEST);
            world.toolstack.await_closed(GUEST);
            guest.leave();
            world.detaches(GUEST);
            world.attach(GUEST, &[]);
        }
        world.honest().go_on();
        world.stands();
    }
}
