//! Buffers that belong to slots: answers to them in any order, and lies about them;
//! frames that are looked at where they came.

use crate::support::frame;
use crate::support::server::Rings;
use crate::support::world::World;
use grantway_frontend::{Policy, Queue, SendError, TxMeta, Wishes};
use grantway_netif::rx::{RxFlags, RxRequest};
use grantway_netif::tx::{TxRequest, status};
use grantway_netif::{Checksum, Offload};
use grantway_ring::RingMemory;

/// Ids of the small buffers, behind those of whole pages.
const SMALL: std::ops::Range<u16> = 512..768;

/// Returns a connected frontend.
fn connected() -> (World, Rings) {
    let mut world = World::new();
    let rings = world.connect();
    (world, rings)
}

/// Sends `frames` short frames, and returns their ids.
fn send(world: &mut World, rings: &mut Rings, frames: usize) -> Vec<u16> {
    for n in 0..frames {
        world.vif.send(&frame(60, n as u8), Offload::default()).unwrap();
    }
    world.vif.flush().unwrap();
    rings.requests().iter().map(|&words| TxRequest::from_words(words).id).collect()
}

fn are_small(ids: &[u16]) -> usize {
    ids.iter().filter(|id| SMALL.contains(id)).count()
}

#[test]
fn small_buffers_are_used_again_whatever_order_they_are_answered_in() {
    let (mut world, mut rings) = connected();
    let mut from = rings.tx_cons;
    for round in 0..6usize {
        let ids = send(&mut world, &mut rings, 256);
        assert_eq!(are_small(&ids), 256, "round {round}");
        for n in 0..256 {
            // The answers come in order, turned round, or by pairs, and with or without errors.
            let id = match round % 3 {
                0 => ids[n],
                1 => ids[255 - n],
                _ => ids[n ^ 1],
            };
            let status = if round == 3 && n == 77 { status::DROPPED } else { status::OKAY };
            rings.tx_put(from.wrapping_add(n as u32), id, status);
        }
        from = rings.tx_cons;
        rings.tx_publish(from);
        assert_eq!(world.vif.reap().unwrap(), 256, "{:?}", world.vif.take_failure());
    }
    assert_eq!(world.vif.stats().tx_errors, 1);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn a_slot_whose_buffer_is_still_out_takes_a_whole_page() {
    let (mut world, mut rings) = connected();
    let from = rings.tx_cons;
    let ids = send(&mut world, &mut rings, 256);
    // The last answers first: their slots' turn comes later.
    for n in 0..128 {
        rings.tx_put(from.wrapping_add(n), ids[128 + n as usize], status::OKAY);
    }
    rings.tx_publish(from.wrapping_add(128));
    assert_eq!(world.vif.reap().unwrap(), 128);
    let more = send(&mut world, &mut rings, 128);
    assert_eq!((more.len(), are_small(&more)), (128, 0));
    let second = from.wrapping_add(128);
    for n in 0..128 {
        rings.tx_put(second.wrapping_add(n), ids[n as usize], status::OKAY);
    }
    for n in 0..128 {
        rings.tx_put(second.wrapping_add(128 + n), more[n as usize], status::OKAY);
    }
    rings.tx_publish(rings.tx_cons);
    assert_eq!(world.vif.reap().unwrap(), 256);
    let ids = send(&mut world, &mut rings, 256);
    assert_eq!(are_small(&ids), 256);
    rings.tx_cons = rings.tx_cons.wrapping_sub(256);
    assert_eq!(rings.serve_tx().0, 256);
    assert_eq!(world.vif.reap().unwrap(), 256);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn xsa_376_small_buffers_that_are_not_outstanding() {
    // Ids that were never used, are out of range, were answered already, or are answered twice; the
    // last in a burst that is in order otherwise.
    for attack in 0..6 {
        let (mut world, mut rings) = connected();
        world.works(&mut rings);
        let from = rings.tx_cons;
        let ids = send(&mut world, &mut rings, 3);
        assert_eq!(are_small(&ids), 3);
        let never = SMALL.clone().find(|id| !ids.contains(id)).unwrap();
        let second = match attack {
            0 => never,
            1 => SMALL.end,
            2 => 0xffff,
            // A further page, of which none is granted.
            3 => SMALL.start - 2,
            _ => ids[0],
        };
        if attack == 4 {
            // The second's slot answers for the third; then the third's for itself.
            rings.tx_put(from, ids[0], status::OKAY);
            rings.tx_put(from.wrapping_add(1), ids[2], status::OKAY);
            rings.tx_publish(from.wrapping_add(2));
            assert_eq!(world.vif.reap().unwrap(), 2);
        } else {
            rings.tx_put(from, ids[0], status::OKAY);
            rings.tx_put(from.wrapping_add(1), second, status::OKAY);
        }
        rings.tx_put(from.wrapping_add(2), ids[2], status::OKAY);
        rings.tx_publish(from.wrapping_add(3));
        assert_eq!(world.vif.reap().unwrap(), 0, "attack {attack}");
        // The next connection is an ordinary vif.
        world.closed_for(rings, "which is not outstanding");
    }
}

#[test]
fn a_checksum_that_is_not_to_be_blank_is_refused_once_the_frame_is_written() {
    for size in [60, 1000] {
        let policy = Policy::Persistent;
        let mut world = World::with(Wishes { policy, checksum: false, ..Wishes::default() });
        world.server.key("feature-persistent", b"1");
        let mut rings = world.connect();
        let queue = &mut world.vif.queues()[0];
        let blank = Offload { checksum: Checksum::Partial, gso: None };
        let meta = |&offload: &Offload| TxMeta { len: size, offload };
        let items = [Offload::default(), blank, Offload::default()];
        let (sent, why_not) = queue.lend_burst(&items, meta, |_, at, mut room| {
            assert_eq!((at, room.len()), (0, size));
            room.write(0, &frame(size, 1)).unwrap();
        });
        let refused = Some(SendError::NotOffered { what: "a blank checksum" });
        assert_eq!((sent, why_not), (1, refused));
        queue.flush().unwrap();
        // A frame that was not taken holds nothing up.
        assert_eq!(rings.serve_tx().0, 1);
        assert_eq!(world.vif.reap().unwrap(), 1);
        for _ in 0..300 {
            world.works(&mut rings);
        }
        world.ends(rings);
    }
}

#[test]
fn room_for_any_frame_is_lent_and_unused_pages_are_lent_again() {
    let (mut world, mut rings) = connected();
    let meta = |len| TxMeta { len, offload: Offload::default() };
    let write = |queue: &mut Queue, len: usize| {
        queue.lend_room(|pages| {
            assert_eq!(pages.iter().map(|page| page.len()).sum::<usize>(), 65_536);
            for (page, part) in pages.iter_mut().zip(frame(len, 3).chunks(4096)) {
                page.write(0, part).unwrap();
            }
            (Some(meta(len)), len)
        })
    };
    for round in 0..300 {
        let queue = &mut world.vif.queues()[0];
        // No frame, and frames of impossible lengths, take no page.
        assert_eq!(queue.lend_room(|_| (None, 7)), Ok((7, Ok(false))));
        for len in [13, 65_536, usize::MAX] {
            let refused = SendError::Length { found: len, longest: 65_535 };
            assert_eq!(queue.lend_room(|_| (Some(meta(len)), ())), Ok(((), Err(refused))));
        }
        let len = [14, 4096, 4097, 9000][round % 4];
        assert_eq!(write(queue, len), Ok((len, Ok(true))));
        queue.flush().unwrap();
        assert_eq!(rings.serve_tx().0, len.div_ceil(4096));
        assert_eq!(world.vif.reap().unwrap(), len.div_ceil(4096));
    }
    // The pages of a queue are room for eight of sixteen pages each.
    let queue = &mut world.vif.queues()[0];
    for _ in 0..8 {
        assert_eq!(write(queue, 65_535), Ok((65_535, Ok(true))));
    }
    assert_eq!(queue.lend_room(|_| unreachable!() as (_, ())), Err(SendError::Full));
    queue.flush().unwrap();
    assert_eq!(rings.serve_tx().0, 128);
    world.vif.reap().unwrap();
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn frames_read_in_place_are_judged_like_copied_ones() {
    let (mut world, mut rings) = connected();
    world.works(&mut rings);
    for (round, len) in [60usize, 4096, 4097, 9000, 1500].into_iter().cycle().take(600).enumerate()
    {
        let bytes = frame(len, round as u8);
        rings.deliver(&world.server, &bytes);
        let mut seen = Vec::new();
        let queue = &mut world.vif.queues()[0];
        let looked = queue.recv_lent_burst(|frame| {
            let mut copy = vec![0; frame.len()];
            assert_eq!(frame.copy_to(&mut copy), len);
            assert_eq!(frame.slices().len(), len.div_ceil(4096));
            assert_eq!(frame.slices().iter().map(|slice| slice.len()).sum::<usize>(), len);
            let mut head = [0; 14];
            assert_eq!((frame.copy_to(&mut head), frame.bytes()), (14, None));
            assert_eq!(head, copy[..14]);
            seen.push(copy);
        });
        assert_eq!((looked.unwrap(), seen), (1, vec![bytes]), "round {round}");
        queue.repost().unwrap();
        if round % 7 == 0 {
            // Beside frames that are kept for longer.
            rings.deliver(&world.server, &frame(70, 1));
            let queue = &mut world.vif.queues()[0];
            let kept = queue.recv_lent().unwrap().unwrap();
            rings.deliver(&world.server, &frame(80, 2));
            assert_eq!(queue.recv_lent_burst(|frame| assert_eq!(frame.len(), 80)).unwrap(), 1);
            queue.repost().unwrap();
            drop(kept);
        }
    }
    assert_eq!(world.vif.stats().rx_packets, 1 + 600 + 2 * 86);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn a_burst_lends_a_quarter_of_the_ring() {
    let (mut world, mut rings) = connected();
    let mut received = 0;
    // Frames of one slot, and of three.
    for (len, frames, first) in [(60, 128, 64), (4096, 65, 64), (9000, 42, 22)] {
        for _ in 0..frames {
            rings.deliver(&world.server, &frame(len, 1));
        }
        let queue = &mut world.vif.queues()[0];
        assert_eq!(queue.recv_lent_burst(|frame| assert_eq!(frame.len(), len)), Ok(first));
        assert_eq!(queue.recv_lent_burst(|_| ()), Ok(frames - first));
        assert_eq!(queue.recv_lent_burst(|_| ()), Ok(0));
        world.vif.arm().unwrap();
        received += frames as u64;
    }
    let stats = world.vif.stats();
    assert_eq!((stats.rx_packets, stats.rx_lent, stats.rx_copied), (received, received, 0));
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn later_writes_of_the_backend_show_only_behind_the_copied_bytes() {
    let (mut world, mut rings) = connected();
    for len in [14usize, 60, 128, 129, 4096, 4097, 9000] {
        for most in [0, 14, 128, 4096, 5000, 10_000] {
            let bytes = frame(len, 5);
            let first = rings.rx_cons;
            let grefs: Vec<u32> = (0..len.div_ceil(4096))
                .map(|n| RxRequest::from_words(rings.rx.read_slot(first + n as u32)).gref)
                .collect();
            rings.deliver(&world.server, &bytes);
            let server = &world.server;
            let queue = &mut world.vif.queues()[0];
            let looked = queue.recv_lent_burst(|frame| {
                let mut head = vec![0; most];
                let private = frame.copy_to(&mut head);
                assert_eq!(private, most.min(len));
                grefs.iter().for_each(|&gref| server.fill(gref, 0, &[0xee; 4096]));
                assert_eq!(head[..private], bytes[..private]);
                let mut behind = 0;
                for slice in frame.rest(private) {
                    let mut rest = vec![0; slice.len()];
                    slice.read(0, &mut rest).unwrap();
                    assert!(!rest.is_empty() && rest.iter().all(|&byte| byte == 0xee));
                    behind += rest.len();
                }
                assert_eq!(private + behind, len);
            });
            assert_eq!(looked, Ok(1));
            queue.repost().unwrap();
        }
    }
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn xsa_376_a_wrong_page_is_an_error_for_frames_read_in_place() {
    let (mut world, mut rings) = connected();
    world.works(&mut rings);
    let (index, request) = (rings.rx_cons, rings.take());
    rings.rx_put(index, request.id.wrapping_add(1), 0, RxFlags::empty(), 60);
    rings.rx_publish(rings.rx_cons);
    let queue = &mut world.vif.queues()[0];
    let found = queue.recv_lent_burst(|_| panic!("a frame"));
    let error = found.unwrap_err();
    assert!(error.to_string().contains("expected"), "{error}");
    drop(rings);
}
