//! XSA-376: no claim of a response is believed.

use crate::support::server::{RESTING, Rings};
use crate::support::world::World;
use crate::support::{Ends, frame};
use grantway_frontend::{VifStatus, Wishes};
use grantway_netif::extra::Extra;
use grantway_netif::rx::RxFlags;
use grantway_netif::tx::{TxRequest, status};
use grantway_netif::{Checksum, Gso, GsoKind, Hash, Offload};
use grantway_ring::{Index, RingMemory};

const NONE: RxFlags = RxFlags::empty();
const MORE: RxFlags = RxFlags::MORE_DATA;
const EXTRA: RxFlags = RxFlags::EXTRA_INFO;

fn flush(world: &mut World) {
    world.vif.flush().unwrap();
}

/// Sends `frames` frames, and returns their ids.
fn send(world: &mut World, rings: &mut Rings, frames: usize) -> Vec<u16> {
    for n in 0..frames {
        world.vif.send(&frame(60, n as u8), Offload::default()).unwrap();
    }
    flush(world);
    rings.requests().iter().map(|&words| TxRequest::from_words(words).id).collect()
}

fn reap(world: &mut World) -> usize {
    world.vif.reap().unwrap()
}

#[test]
fn xsa_376_transmit_ids_that_are_not_outstanding() {
    // Ids that were never used, are out of range, were answered already, or are answered twice.
    for attack in 0..5 {
        let mut world = World::new();
        let mut rings = world.connect();
        world.works(&mut rings);
        let from = rings.tx_cons;
        let ids = send(&mut world, &mut rings, 3);
        let never = (0..256).find(|id| !ids.contains(id)).unwrap();
        let second = match attack {
            0 => never,
            1 => 256,
            2 => 0xffff,
            _ => ids[0],
        };
        rings.tx_put(from, ids[0], status::OKAY);
        rings.tx_put(from + 1, second, if attack == 4 { status::ERROR } else { status::OKAY });
        rings.tx_put(from + 2, ids[2], status::OKAY);
        rings.tx_publish(from + 3);
        assert_eq!(reap(&mut world), 0);
        world.closed_for(rings, "which is not outstanding");
    }
}

#[test]
fn xsa_376_an_extra_that_was_not_sent_is_answered() {
    let mut world = World::new();
    let mut rings = world.connect();
    let from = rings.tx_cons;
    send(&mut world, &mut rings, 2);
    rings.tx_put(from, 0, status::NULL);
    rings.tx_publish(from + 1);
    assert_eq!(reap(&mut world), 0);
    world.closed_for(rings, "answers an extra slot");
}

#[test]
fn xsa_376_more_extras_are_answered_than_were_sent() {
    let mut world = World::new();
    let mut rings = world.connect();
    let gso = Some(Gso { kind: GsoKind::Tcpv4, size: 500 });
    let offload = Offload { checksum: Checksum::Partial, gso };
    world.vif.send(&frame(60, 1), offload).unwrap();
    flush(&mut world);
    assert_eq!(rings.requests().len(), 2);
    for index in 0..2 {
        rings.tx_put(index, 0, status::NULL);
    }
    rings.tx_publish(2);
    assert_eq!(reap(&mut world), 0);
    world.closed_for(rings, "answers an extra slot");
}

#[test]
fn every_status_of_a_transmit_answer_frees_its_page() {
    let mut world = World::new();
    let mut rings = world.connect();
    for status in [status::OKAY, status::ERROR, status::DROPPED, i16::MIN, i16::MAX, 2] {
        for _ in 0..3 {
            let from = rings.tx_cons;
            let ids = send(&mut world, &mut rings, 256);
            assert_eq!(ids.len(), 256);
            // The order is any: only the ids count.
            for (n, id) in ids.iter().rev().enumerate() {
                rings.tx_put(from.wrapping_add(n as u32), *id, status);
            }
            rings.tx_publish(rings.tx_cons);
            assert_eq!(reap(&mut world), 256);
        }
    }
    assert_eq!(world.vif.stats().tx_errors, 5 * 3 * 256);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn xsa_376_absurd_rsp_prod() {
    for receive in [false, true] {
        for ahead in [4, 257, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let mut world = World::new();
            let mut rings = world.connect();
            world.works(&mut rings);
            send(&mut world, &mut rings, 3);
            if receive {
                // Every page is posted; one more than that, and so on.
                let most = rings.rx.load(Index::ReqProd);
                rings.rx.store(Index::RspProd, most.wrapping_add(ahead));
                assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
                world.closed_for(rings, "receive ring");
            } else {
                let answered = rings.tx.load(Index::RspProd);
                rings.tx.store(Index::RspProd, answered.wrapping_add(ahead));
                assert_eq!(reap(&mut world), 0);
                world.closed_for(rings, "transmit ring");
            }
        }
    }
}

#[test]
fn xsa_376_rsp_prod_that_goes_back() {
    for receive in [false, true] {
        let mut world = World::new();
        let mut rings = world.connect();
        world.works(&mut rings);
        if receive {
            rings.rx.store(Index::RspProd, 0);
            assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
            world.closed_for(rings, "receive ring");
        } else {
            rings.tx.store(Index::RspProd, 0);
            assert_eq!(reap(&mut world), 0);
            world.closed_for(rings, "transmit ring");
        }
    }
}

#[test]
fn xsa_376_a_receive_answer_for_another_slot() {
    for wrong in [1, 255, 256, 0x8000, 0xffff] {
        let mut world = World::new();
        let mut rings = world.connect();
        world.works(&mut rings);
        let index = rings.rx_cons;
        let request = rings.take();
        rings.rx_put(index, request.id.wrapping_add(wrong), 0, NONE, 60);
        rings.rx_publish(rings.rx_cons);
        assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
        world.closed_for(rings, "receive ring: response at");
    }
}

#[test]
fn a_burst_has_what_comes_one_by_one_and_ends_where_an_answer_is_wrong() {
    let mut world = World::new();
    let mut rings = world.connect();
    world.works(&mut rings);
    let sent: Vec<_> =
        [60, 64, 5000, 61, 4096, 14].into_iter().zip(1..).map(|(len, n)| frame(len, n)).collect();
    for (n, bytes) in sent.iter().enumerate() {
        rings.deliver(&world.server, bytes);
        if n == 3 {
            let index = rings.rx_cons;
            let id = rings.take().id;
            rings.rx_put(index, id, 0, NONE, status::ERROR);
        }
    }
    let mut arena = vec![0; 2 * 65_536];
    let mut places = Vec::new();
    let queue = &mut world.vif.queues()[0];
    let got = queue.recv_burst(&mut arena, |at, frame| places.push((at, frame.len))).unwrap();
    assert_eq!(got, sent.len());
    for (&(at, len), bytes) in places.iter().zip(&sent) {
        assert!(at % 64 == 0 && arena[at..at + len] == bytes[..]);
    }
    // With less room than the longest frame needs, nothing more is taken.
    rings.deliver(&world.server, &sent[2]);
    let queue = &mut world.vif.queues()[0];
    assert_eq!(queue.recv_burst(&mut arena[..60_000], |_, _| ()).unwrap(), 0);
    assert_eq!(queue.recv_burst(&mut arena, |_, _| ()).unwrap(), 1);
    rings.deliver(&world.server, &sent[0]);
    let index = rings.rx_cons;
    let id = rings.take().id;
    rings.rx_put(index, id ^ 1, 0, NONE, 60);
    rings.rx_publish(index + 1);
    let queue = &mut world.vif.queues()[0];
    let mut taken = 0;
    assert!(
        queue.recv_burst(&mut arena, |_, _| taken += 1).is_ok_and(|got| got == 1) || taken == 1
    );
    assert!(queue.recv_burst(&mut arena, |_, _| ()).is_err());
}

/// A program that polls never arms, and posts pages again after frames only.
#[test]
fn pages_of_undelivered_frames_are_posted_by_the_next_receive_call() {
    for way in 0..4 {
        let mut world = World::new();
        let mut rings = world.connect();
        let posted = rings.posted();
        for _ in 0..posted {
            let (index, id) = (rings.rx_cons, rings.take().id);
            rings.rx_put(index, id, 0, NONE, status::ERROR);
        }
        rings.rx_publish(rings.rx_cons);
        let (queue, mut arena) = (&mut world.vif.queues()[0], vec![0; 2 * 65_536]);
        for _ in 0..5 {
            match way {
                0 => assert_eq!(queue.recv(&mut arena).unwrap(), None),
                1 => assert_eq!(queue.recv_burst(&mut arena, |_, _| ()).unwrap(), 0),
                2 => assert!(queue.recv_lent().unwrap().is_none()),
                _ => assert_eq!(queue.recv_lent_burst(|_| ()).unwrap(), 0),
            }
        }
        assert!(rings.posted() >= posted, "way {way}: {} pages are posted", rings.posted());
        world.works(&mut rings);
        world.ends(rings);
    }
}

#[test]
fn xsa_376_the_wrong_id_behind_an_extra_and_in_a_later_fragment() {
    for extra in [false, true] {
        let mut world = World::new();
        let mut rings = world.connect();
        let ids: Vec<_> = (0..3).map(|_| rings.take().id).collect();
        let flags = if extra { MORE | EXTRA } else { MORE };
        rings.rx_put(0, ids[0], 0, flags, 60);
        let last = if extra {
            let gso = Gso { kind: GsoKind::Tcpv4, size: 100 };
            rings.rx.write_slot(1, Extra::Gso(gso.try_into().unwrap(), 0).to_rx_words(false));
            2
        } else {
            1
        };
        rings.rx_put(last, ids[last as usize] ^ 1, 0, NONE, 60);
        rings.rx_publish(last + 1);
        assert_eq!(world.vif.recv(&mut [0; 200]).unwrap(), None);
        world.closed_for(rings, "expected");
    }
}

/// Gives one answer to one page: it is refused and counted, its page is posted again, and the vif
/// goes on.
#[track_caller]
fn skipped(world: &mut World, rings: &mut Rings, offset: u16, flags: RxFlags, status: i16) {
    let errors = world.vif.stats().rx_errors;
    let index = rings.rx_cons;
    let request = rings.take();
    rings.rx_put(index, request.id, offset, flags, status);
    rings.rx_publish(rings.rx_cons);
    let received = world.vif.recv(&mut [0; 9000]).unwrap();
    assert_eq!(received, None, "{offset} {flags:?} {status}");
    let seen = world.vif.take_failure();
    assert_eq!(world.vif.status(), VifStatus::Connected, "{offset} {status}: {seen:?}");
    assert_eq!(world.vif.stats().rx_errors, errors + 1);
    world.works(rings);
    assert_eq!(rings.posted(), RESTING, "every page is posted again");
}

#[test]
fn xsa_376_receive_answers_beyond_their_page() {
    let mut world = World::new();
    let mut rings = world.connect();
    for (offset, status) in [
        (0, 4097),
        (0, i16::MAX),
        (1, 4096),
        (4096, 60),
        (4095, 14),
        (0xffff, 1),
        (0xffff, i16::MAX),
        (4083, 14),
    ] {
        skipped(&mut world, &mut rings, offset, NONE, status);
    }
    world.ends(rings);
}

#[test]
fn xsa_376_negative_and_short_receive_answers() {
    let mut world = World::new();
    let mut rings = world.connect();
    for status in [-1, -2, i16::MIN, 0, 1, 13] {
        for offset in [0, 4096, 0xffff] {
            skipped(&mut world, &mut rings, offset, NONE, status);
        }
    }
    // The deprecated prefix, which was not asked for.
    skipped(&mut world, &mut rings, 0, RxFlags::GSO_PREFIX, 60);
    world.ends(rings);
}

#[test]
fn an_offset_and_flags_without_a_name_are_legal() {
    let mut world = World::new();
    let mut rings = world.connect();
    for (offset, flags) in [(2, NONE), (4036, NONE), (0, RxFlags::from_bits_retain(0xffe0))] {
        let index = rings.rx_cons;
        let request = rings.take();
        world.server.fill(request.gref, offset, &frame(60, 9));
        rings.rx_put(index, request.id, offset, flags, 60);
        rings.rx_publish(rings.rx_cons);
        let mut buffer = [0; 100];
        let received = world.vif.recv(&mut buffer).unwrap().unwrap();
        assert_eq!(buffer[..received.len], frame(60, 9));
    }
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn xsa_376_frames_of_too_many_pages() {
    // Chains of 19 slots are taken; up to a ring they are dropped; without an end they are fatal.
    for (count, end) in [(19, true), (20, true), (63, true), (64, false), (RESTING, false)] {
        let mut world = World::new();
        let mut rings = world.connect();
        for index in 0..count {
            let request = rings.take();
            let flags = if end && index + 1 == count { NONE } else { MORE };
            rings.rx_put(index, request.id, 0, flags, 10);
        }
        rings.rx_publish(count);
        let mut buffer = vec![0; 65_536];
        let received = world.vif.recv(&mut buffer).unwrap();
        assert_eq!(received.map(|frame| frame.len), (count == 19).then_some(190), "{count}");
        if end {
            world.works(&mut rings);
            assert_eq!(rings.posted(), RESTING);
            world.ends(rings);
        } else {
            world.closed_for(rings, "goes on past");
        }
    }
}

#[test]
fn xsa_376_a_whole_ring_without_an_end() {
    for extras in [false, true] {
        let mut world = World::new();
        let mut rings = world.connect();
        for index in 0..RESTING {
            let request = rings.take();
            if extras && index > 0 {
                let hash = Hash { kind: 1, algorithm: 1, value: 7 };
                rings.rx.write_slot(index, Extra::Hash(hash).to_rx_words(true));
            } else {
                rings.rx_put(index, request.id, 0, if extras { EXTRA } else { MORE }, 60);
            }
        }
        rings.rx_publish(RESTING);
        assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
        world.closed_for(rings, "receive ring, response at");
    }
}

#[test]
fn xsa_376_extras_that_no_rule_explains() {
    let mut world = World::new();
    let mut rings = world.connect();
    for extra in [
        [0, 0],
        [6, 0],
        [0xff, u32::MAX],
        // Segments of no bytes, and for a protocol without a number.
        [1, 1],
        [1 | 100 << 16, 0],
        [1 | 100 << 16, 3],
    ] {
        let errors = world.vif.stats().rx_errors;
        let index = rings.rx_cons;
        let first = rings.take();
        rings.take();
        rings.rx_put(index, first.id, 0, EXTRA, 60);
        rings.rx.write_slot(index + 1, extra);
        rings.rx_publish(rings.rx_cons);
        assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None, "{extra:x?}");
        assert_eq!(world.vif.stats().rx_errors, errors + 1, "{extra:x?}");
        world.works(&mut rings);
        assert_eq!(rings.posted(), RESTING);
    }
    world.ends(rings);
}

#[test]
fn unwanted_extras_are_reported_and_never_hidden() {
    // A frontend that did not wish for unfinished frames learns that this is one.
    let wishes = Wishes { gso: false, checksum: false, ..Wishes::default() };
    let mut world = World::with(wishes);
    let mut rings = world.connect();
    for key in ["feature-gso-tcpv4", "feature-gso-tcpv6", "feature-ipv6-csum-offload"] {
        assert_eq!(world.server.front_key(key).as_deref(), Some("0"), "{key}");
    }
    assert_eq!(world.server.front_key("feature-no-csum-offload").as_deref(), Some("1"));
    let index = rings.rx_cons;
    let first = rings.take();
    rings.take();
    world.server.fill(first.gref, 0, &frame(100, 2));
    rings.rx_put(index, first.id, 0, EXTRA, 100);
    let gso = Gso { kind: GsoKind::Tcpv4, size: 40 };
    rings.rx.write_slot(index + 1, Extra::Gso(gso.try_into().unwrap(), 0).to_rx_words(false));
    rings.rx_publish(rings.rx_cons);
    let mut buffer = [0; 200];
    match world.vif.recv(&mut buffer).unwrap() {
        None => assert_eq!(world.vif.stats().rx_errors, 1),
        Some(received) => {
            let expected = Offload { checksum: Checksum::Partial, gso: Some(gso) };
            assert_eq!(received.offload, expected);
        }
    }
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn xsa_155_answers_rewritten_while_they_are_read() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let mut world = World::new();
    let mut rings = world.connect();
    let stop = AtomicBool::new(false);
    let ring = rings.rx.clone();
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        // Lengths and offsets change all the while; ids stay right.
        scope.spawn(|| {
            let mut n = 0u32;
            while !stop.load(SeqCst) {
                n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let slot = n >> 24;
                let [first, _] = ring.read_slot(slot);
                let length = [60, 4096, 4097, 0x7fff, 0xffff][(n >> 8) as usize % 5];
                let offset = [0, 2, 4000, 4096, 0xffff][(n >> 12) as usize % 5];
                ring.write_slot(slot, [first & 0xffff | offset << 16, length << 16]);
            }
        });
        let mut buffer = vec![0; 65_536];
        for round in 0..4000 {
            if world.vif.status() != VifStatus::Connected {
                break;
            }
            if rings.posted() < 8 {
                world.vif.arm().unwrap();
                continue;
            }
            for _ in 0..4 {
                let index = rings.rx_cons;
                let request = rings.take();
                rings.rx_put(index, request.id, 0, NONE, 60 + round % 100);
            }
            rings.rx_publish(rings.rx_cons);
            while let Some(received) = world.vif.recv(&mut buffer).unwrap() {
                assert!((14..=4096).contains(&received.len));
            }
        }
    });
    // The backend keeps the page mapped.
    drop(ring);
    // A request that was scribbled on comes back with another id: then it was
    // found out.
    match world.vif.status() {
        VifStatus::Held => {
            world.vif.take_failure();
            world.comes_back(rings);
        }
        _ => world.ends(rings),
    }
}

#[test]
fn a_buffer_that_is_too_short_costs_the_frame_only() {
    let mut world = World::new();
    let mut rings = world.connect();
    rings.deliver(&world.server, &frame(9000, 1));
    rings.deliver(&world.server, &frame(60, 2));
    let mut buffer = [0; 100];
    let received = world.vif.recv(&mut buffer).unwrap().unwrap();
    assert_eq!(buffer[..received.len], frame(60, 2));
    assert_eq!(world.vif.stats().rx_too_large, 1);
    world.works(&mut rings);
    world.ends(rings);
}
