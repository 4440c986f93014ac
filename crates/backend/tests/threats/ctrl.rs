//! The control ring: absurd indices, pages that change, requests beyond all
//! bounds, and where frames go by what was set.

use crate::support::ctrl::{CtrlRing, VECTORS, frame_of, words_page};
use crate::support::eventually;
use crate::support::hostile::{Hostile, frame};
use crate::support::rings::{Rings, SLOTS};
use crate::support::world::{GUEST, World};
use grantway_backend::WaitMode;
use grantway_hypervisor::{Access, DomId};
use grantway_netif::ctrl::{CtrlRequest, HashTypes, Message, Status, kind};
use grantway_netif::rx::{RxFlags, RxResponse};
use grantway_netif::{Extra, Hash, Offload, XenbusState};
use grantway_ring::{Index, RingMemory};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const INVALID: Result<u32, Status> = Err(Status::InvalidParameter);
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A guest with a control ring and one queue.
fn connected(guest: &mut Hostile) -> (CtrlRing, Rings) {
    let ctrl = CtrlRing::publish(guest);
    let rings = guest.connect();
    (ctrl, rings)
}

/// A guest with a control ring and several queues, on each of which pages are
/// posted.
pub fn connected_all(guest: &mut Hostile, count: usize) -> (CtrlRing, Vec<Rings>) {
    let ctrl = CtrlRing::publish(guest);
    let mut queues: Vec<Rings> = (0..count).map(|_| guest.rings()).collect();
    guest.start_anew();
    guest.publish_all(&queues);
    guest.state(XenbusState::Connected);
    guest.await_backend(XenbusState::Connected);
    for rings in &mut queues {
        post(guest, rings);
    }
    (ctrl, queues)
}

/// Posts pages, which stay the guest's for good, for as much as there is room.
fn post(guest: &mut Hostile, rings: &mut Rings) {
    let room = SLOTS - rings.rx_prod.wrapping_sub(rings.rx_cons);
    if room > 0 {
        let pages = guest.pages(room as usize, Access::ReadWrite);
        guest.post(rings, &pages.grefs);
        std::mem::forget(pages);
    }
}

#[test]
fn xsa_39_an_absurd_index_of_the_control_ring_disables_the_vif() {
    let mut world = World::new();
    let mut guest = world.guest();
    for index in [129, 1 << 31, u32::MAX] {
        let (ctrl, rings) = connected(&mut guest);
        ctrl.memory().store(Index::ReqProd, index);
        guest.kick(ctrl.event);
        let why = guest.await_disabled();
        assert!(why.contains("control ring") && why.contains("at most 128"), "{why}");
        world.settle();
        world.holds_nothing_of(GUEST.domain);
        for port in [ctrl.event, rings.tx_event, rings.rx_event] {
            guest.events.close(port);
        }
    }
    world.stands();
}

#[test]
fn xsa_270_parts_beyond_the_bounds_of_the_hash_table_are_refused() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut ctrl, _rings) = connected(&mut guest);
    let (_page, gref) = words_page(&guest, &[]);
    let part = |entries, offset| Message::SetHashMapping { gref: gref.0, entries, offset };
    assert_eq!(ctrl.ask(&mut guest, part(1, 0)), INVALID, "there is no table yet");
    assert_eq!(ctrl.ask(&mut guest, Message::SetHashMappingSize { entries: 128 }), Ok(0));
    for (entries, offset) in [
        (1, u32::MAX),
        (u32::MAX, 1),
        (u32::MAX, u32::MAX),
        (0x8000_0000, 0x8000_0000),
        (0x4000_0001, 0),
        (129, 0),
        (1, 128),
        (1025, 0),
        (0, 0),
    ] {
        assert_eq!(ctrl.ask(&mut guest, part(entries, offset)), INVALID, "{entries} at {offset}");
    }
    assert_eq!(ctrl.ask(&mut guest, part(128, 0)), Ok(0));
    assert_eq!(ctrl.ask(&mut guest, part(1, 127)), Ok(0));
    world.stands();
}

#[test]
fn ctrl_every_refusal() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut ctrl, mut rings) = connected(&mut guest);
    let (_page, gref) = words_page(&guest, &[0, 1]);
    let of_no_one = 4000;
    let unknown = HashTypes::from_bits_retain(16);
    let overflow = Err(Status::BufferOverflow);
    let none = Err(Status::NotSupported);
    let key = |gref, bytes| Message::SetHashKey { gref, bytes };
    let rows = [
        (Message::GetHashFlags, none),
        (Message::SetHashFlags { types: HashTypes::IPV4 }, INVALID),
        (Message::SetHashAlgorithm { algorithm: 2 }, INVALID),
        (Message::SetHashAlgorithm { algorithm: 0x101 }, INVALID),
        (Message::SetHashAlgorithm { algorithm: 1 }, Ok(0)),
        (Message::GetHashFlags, Ok(15)),
        (Message::SetHashFlags { types: unknown }, INVALID),
        (key(gref.0, 41), overflow),
        (key(gref.0, u32::MAX), overflow),
        (key(of_no_one, 40), INVALID),
        (key(of_no_one, 0), Ok(0)),
        (key(gref.0, 40), Ok(0)),
        (Message::GetHashMappingSize, Ok(128)),
        (Message::SetHashMappingSize { entries: 129 }, INVALID),
        (Message::SetHashMappingSize { entries: u32::MAX }, INVALID),
        (Message::SetHashMappingSize { entries: 2 }, Ok(0)),
        // Queue 1 of one queue.
        (Message::SetHashMapping { gref: gref.0, entries: 2, offset: 0 }, INVALID),
        (Message::SetHashMapping { gref: of_no_one, entries: 1, offset: 0 }, INVALID),
        (Message::SetHashMapping { gref: gref.0, entries: 1, offset: 0 }, Ok(0)),
        (Message::GetGrefMappingSize { queue: 0 }, Ok(1024)),
        (Message::GetGrefMappingSize { queue: 1 }, INVALID),
        // A reserved reference, and a list that cannot be written.
        (Message::AddGrefMapping { queue: 0, list: gref.0, entries: 1 }, INVALID),
        (Message::DelGrefMapping { queue: 0, list: gref.0, entries: 1 }, INVALID),
        (Message::SetHashAlgorithm { algorithm: 0 }, Ok(0)),
    ];
    for (message, expected) in rows {
        assert_eq!(ctrl.ask(&mut guest, message), expected, "{message:?}");
    }
    let odd = [kind::INVALID, 11, 0x8001, u16::MAX];
    let requests = odd.map(|kind| CtrlRequest { id: kind, kind, data: [u32::MAX; 3] });
    ctrl.put(&requests);
    guest.kick(ctrl.event);
    for (answer, kind) in ctrl.answers(&mut guest, 4).iter().zip(odd) {
        assert_eq!((answer.id, answer.kind, answer.status()), (kind, kind, none.err()));
    }
    let stats = world.control().report_of(GUEST).unwrap().stats;
    assert_eq!((stats.ctrl_requests, stats.ctrl_refused), (28, 19));
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn ctrl_a_full_ring_of_one_id_is_answered_once_each_in_order() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut ctrl, _rings) = connected(&mut guest);
    for _ in 0..20 {
        let requests: Vec<_> = (0..128)
            .map(|n| CtrlRequest { id: 5, kind: 4 + n % 2 * 8, data: [n.into(); 3] })
            .collect();
        ctrl.put(&requests);
        guest.kick(ctrl.event);
        let answers = ctrl.answers(&mut guest, 128);
        for (answer, request) in answers.iter().zip(&requests) {
            assert_eq!((answer.id, answer.kind), (5, request.kind));
        }
        assert_eq!(ctrl.memory().load(Index::RspProd), ctrl.front.req_prod_published());
    }
    world.stands();
}

#[test]
fn xsa_155_a_table_that_changes_while_it_is_read_is_taken_whole_or_not() {
    let mut world = World::new();
    let mut guest = world.guest_of(GUEST);
    let (mut ctrl, mut queues) = connected_all(&mut guest, 2);
    ctrl.set_hash(&mut guest, &[1; 64]);
    let (table, gref) = words_page(&guest, &[1; 64]);
    let page = table.run.page(0).unwrap();
    let stop = AtomicBool::new(false);
    let message = Message::SetHashMapping { gref: gref.0, entries: 64, offset: 0 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                // A queue that there is not, now here, now there.
                for at in 0..64 {
                    page.write(at * 4, &77u32.to_le_bytes()).unwrap();
                    page.write(at * 4, &1u32.to_le_bytes()).unwrap();
                }
            }
        });
        for _ in 0..300 {
            let done = ctrl.ask(&mut guest, message);
            assert!(done == Ok(0) || done == INVALID, "{done:?}");
        }
        stop.store(true, SeqCst);
    });
    // Whatever was taken, every entry is the one queue that was ever right.
    for vector in 0..5 {
        world.behind(GUEST).give(frame_of(vector, TCP), Offload::default());
    }
    guest.rx_answers(&mut queues[1], 10);
    assert_eq!(queues[0].rx_words().len(), 0);
    world.stands();
}

#[test]
fn xsa_332_391_a_storm_on_the_control_ring_costs_its_own_vif_only() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut ctrl, mut rings) = connected(&mut guest);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (guest, ctrl, stop) = (&mut guest, &mut ctrl, &stop);
        scope.spawn(move || {
            let (_key, gref) = words_page(guest, &[1; 10]);
            let key = Message::SetHashKey { gref: gref.0, bytes: 40 };
            while !stop.load(SeqCst) {
                let room = ctrl.front.free() as usize;
                ctrl.put(&vec![key.request(1); room]);
                guest.kick(ctrl.event);
                while ctrl.front.pop().unwrap().is_some() {}
            }
        });
        world.honest().carries(200);
        stop.store(true, SeqCst);
    });
    assert_eq!(guest.backend_state(), Some(XenbusState::Connected));
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn ctrl_nothing_is_served_before_both_ends_are_connected() {
    let mut world = World::with(DomId(0), WaitMode::Interrupt, true);
    let domain = world.boot(GUEST.domain);
    world.attach(GUEST, &[("hotplug-status", "")]);
    world.expects(GUEST);
    let mut guest = Hostile::new(domain, GUEST, world.setup.domain);
    let mut ctrl = CtrlRing::publish(&mut guest);
    guest.start_anew();
    let rings = guest.rings();
    guest.publish(&rings);
    guest.state(XenbusState::Connected);
    ctrl.put(&[Message::GetHashMappingSize.request(3)]);
    guest.kick(ctrl.event);
    world.settle();
    world.honest().carries(8);
    assert_eq!(ctrl.memory().load(Index::RspProd), 0);
    let path = format!("{}/hotplug-status", world.toolstack.back(GUEST));
    world.toolstack.store.write(&path, b"connected").unwrap();
    guest.await_backend(XenbusState::Connected);
    // The script's word is what wakes the backend.
    let answers = ctrl.answers(&mut guest, 1);
    assert_eq!((answers[0].id, answers[0].data), (3, 128));
    world.stands();
}

#[test]
fn ctrl_invalid_keys() {
    let mut world = World::new();
    let mut guest = world.guest();
    for (ring, event) in [("x", "1"), ("9", ""), ("9", "-3"), ("7", "2"), ("99999", "70")] {
        let rings = guest.rings();
        guest.start_anew();
        guest.publish(&rings);
        guest.key("ctrl-ring-ref", ring);
        guest.key("event-channel-ctrl", event);
        guest.state(XenbusState::Connected);
        guest.await_disabled();
        world.settle();
        world.holds_nothing_of(GUEST.domain);
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
    }
    guest.unkey("ctrl-ring-ref");
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

/// Waits for `frames` frames, and returns the hashes that came with them, by queue.
fn arrived(guest: &mut Hostile, queues: &mut [Rings], frames: usize) -> BTreeMap<u16, Vec<Hash>> {
    let mut found: BTreeMap<u16, Vec<Hash>> = BTreeMap::new();
    eventually("the frames", || {
        for (number, rings) in (0..).zip(&mut *queues) {
            let words = rings.rx_words();
            let mut slots = words.iter();
            while let Some(&first) = slots.next() {
                let response = RxResponse::from_words(first);
                assert_eq!(response.status, 60);
                let mut hash = Hash::default();
                if response.flags.contains(RxFlags::EXTRA_INFO) {
                    let extra = Extra::from_words(*slots.next().unwrap()).unwrap();
                    let (Extra::Hash(found), false) = extra else { panic!("{extra:?}") };
                    hash = found;
                }
                found.entry(number).or_default().push(hash);
            }
        }
        (found.values().map(Vec::len).sum::<usize>() >= frames).then_some(())
    });
    queues.iter_mut().for_each(|rings| post(guest, rings));
    found
}

/// Returns the hashes of the vectors' frames, by the queues that this table gives them.
fn expected(table: &[u32], protocol: u8) -> BTreeMap<u16, Vec<Hash>> {
    let mut expected: BTreeMap<u16, Vec<Hash>> = BTreeMap::new();
    for (.., plain, tcp) in VECTORS {
        let (kind, value) = if protocol == TCP { (1, tcp) } else { (0, plain) };
        let queue = table[value as usize % table.len()] as u16;
        expected.entry(queue).or_default().push(Hash { kind, algorithm: 1, value });
    }
    expected
}

fn sorted(mut found: BTreeMap<u16, Vec<Hash>>) -> BTreeMap<u16, Vec<Hash>> {
    found.values_mut().for_each(|hashes| hashes.sort_by_key(|hash| hash.value));
    found
}

#[test]
fn ctrl_frames_go_where_the_published_hashes_say() {
    for workers in [1, 2] {
        let mut world = World::new();
        world.setup.workers = workers;
        world.restart();
        let mut guest = world.guest();
        let (mut ctrl, mut queues) = connected_all(&mut guest, 4);
        let tables: [&[u32]; 3] = [&[0, 1, 2, 3, 3, 1, 0], &[3; 128], &[2, 1]];
        for table in tables {
            ctrl.set_hash(&mut guest, table);
            for protocol in [TCP, UDP] {
                for vector in 0..5 {
                    world.behind(GUEST).give(frame_of(vector, protocol), Offload::default());
                }
                let found = arrived(&mut guest, &mut queues, 5);
                assert_eq!(sorted(found), sorted(expected(table, protocol)));
            }
        }
        // What has no hash counts as hash 0.
        world.behind(GUEST).give(frame(60), Offload::default());
        let found = arrived(&mut guest, &mut queues, 1);
        assert_eq!(found, BTreeMap::from([(2, vec![Hash::default()])]));
        // Without a table the remainder tells.
        let message = Message::SetHashMappingSize { entries: 0 };
        assert_eq!(ctrl.ask(&mut guest, message), Ok(0));
        for vector in 0..5 {
            world.behind(GUEST).give(frame_of(vector, TCP), Offload::default());
        }
        let found = arrived(&mut guest, &mut queues, 5);
        assert_eq!(sorted(found), sorted(expected(&[0, 1, 2, 3], TCP)));
        // And without a hash it is as before, wherever that is: no extras.
        let message = Message::SetHashFlags { types: HashTypes::empty() };
        assert_eq!(ctrl.ask(&mut guest, message), Ok(0));
        world.behind(GUEST).give(frame_of(0, TCP), Offload::default());
        let found = arrived(&mut guest, &mut queues, 1);
        assert_eq!(found.into_values().collect::<Vec<_>>(), [[Hash::default()]]);
        world.stands_and(|_| ());
    }
}

#[test]
fn ctrl_settings_survive_a_restart_and_no_reconnect() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut ctrl, mut queues) = connected_all(&mut guest, 4);
    let table: &[u32] = &[0, 1, 2, 3, 3, 1, 0];
    ctrl.set_hash(&mut guest, table);
    for _ in 0..3 {
        world.stop();
        // Asked while nobody was there: whoever comes answers.
        ctrl.put(&[Message::GetHashFlags.request(9), Message::GetHashMappingSize.request(9)]);
        world.start();
        let answers = ctrl.answers(&mut guest, 2);
        assert_eq!((answers[0].data, answers[1].data), (15, 128));
        assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "the guest noticed");
        for vector in 0..5 {
            world.behind(GUEST).give(frame_of(vector, TCP), Offload::default());
        }
        let found = arrived(&mut guest, &mut queues, 5);
        assert_eq!(sorted(found), sorted(expected(table, TCP)));
    }
    // Another connection begins with nothing set.
    for rings in queues {
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
    }
    let (mut ctrl, mut queues) = connected_all(&mut guest, 2);
    assert_eq!(ctrl.ask(&mut guest, Message::GetHashFlags), Err(Status::NotSupported));
    world.behind(GUEST).give(frame_of(0, TCP), Offload::default());
    let found = arrived(&mut guest, &mut queues, 1);
    assert_eq!(found.into_values().collect::<Vec<_>>(), [[Hash::default()]]);
    world.stands_and(|_| ());
}

#[test]
fn ctrl_a_frontend_that_changes_its_control_ring_begins_anew() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (ctrl, rings) = connected(&mut guest);
    world.stop();
    guest.key("ctrl-ring-ref", "12");
    world.start();
    guest.await_backend(XenbusState::Closing);
    world.settle();
    world.holds_nothing_of(GUEST.domain);
    for port in [ctrl.event, rings.tx_event, rings.rx_event] {
        guest.events.close(port);
    }
    let (ctrl, mut rings) = connected(&mut guest);
    guest.is_served(&mut rings);
    // Nor can the index be turned back while nobody looks.
    world.stop();
    ctrl.memory().store(Index::RspProd, 7);
    world.start();
    guest.await_backend(XenbusState::Closing);
    world.stands_and(|_| ());
}
