//! XSA-522: a frame in several slots whose first is shorter than an Ethernet header, on which stock
//! netfront crashes its guest. Such a frame is odd, and legal. Taken in any way, all of it arrives,
//! and nothing beyond its slots.

use crate::support::frame;
use crate::support::server::{RESTING, Rings};
use crate::support::world::{World, paths};
use grantway_embedded::Domain;
use grantway_frontend::{RxFrame, Vif, VifStatus, Wishes};
use grantway_hypervisor::Platform;
use grantway_netif::extra::Extra;
use grantway_netif::rx::RxFlags;
use grantway_netif::{ETH_HEADER_BYTES, Hash};
use grantway_ring::RingMemory;
use std::sync::Arc;

/// Filler of pages around the bytes of a frame.
const BESIDE: u8 = 0xee;

/// The ways in which a frame is taken off a queue.
#[derive(Debug, Clone, Copy)]
enum Way {
    Recv,
    Burst,
    Lent,
    Looked,
}

const WAYS: [Way; 4] = [Way::Recv, Way::Burst, Way::Lent, Way::Looked];

/// Takes the next frame, and its first bytes as a reader of headers sees them.
fn take(world: &mut World, way: Way) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut buffer = vec![0; 2 * 65_536];
    let queue = &mut world.vif.queues()[0];
    let mut taken = None;
    let headed = |bytes: &[u8]| (bytes.to_vec(), bytes[..14].to_vec());
    match way {
        Way::Recv => {
            let received = queue.recv(&mut buffer).unwrap();
            taken = received.map(|frame| headed(&buffer[..frame.len]));
        }
        Way::Burst => {
            let mut place = None;
            queue.recv_burst(&mut buffer, |at, frame| place = Some((at, frame.len))).unwrap();
            taken = place.map(|(at, len)| headed(&buffer[at..at + len]));
        }
        Way::Lent => {
            if let Some(frame) = queue.recv_lent().unwrap() {
                let mut head = [0; ETH_HEADER_BYTES as usize];
                assert_eq!(frame.copy_to(&mut head), head.len());
                assert_eq!(frame.copy_to(&mut buffer), frame.len());
                let lent: usize = frame.slices().map(|slice| slice.len()).sum();
                assert_eq!(lent, if frame.bytes().is_some() { 0 } else { frame.len() });
                taken = Some((buffer[..frame.len()].to_vec(), head.to_vec()));
            }
        }
        Way::Looked => {
            let look = |frame: RxFrame<'_>| {
                let mut head = [0; ETH_HEADER_BYTES as usize];
                assert_eq!(frame.copy_to(&mut head), head.len());
                assert_eq!(frame.copy_to(&mut buffer), frame.len());
                let lent: usize = frame.slices().iter().map(|slice| slice.len()).sum();
                assert_eq!(lent, if frame.bytes().is_some() { 0 } else { frame.len() });
                taken = Some((buffer[..frame.len()].to_vec(), head.to_vec()));
            };
            queue.recv_lent_burst(look).unwrap();
        }
    }
    queue.repost().unwrap();
    taken
}

/// Answers with a frame of these parts, each at the end of its page, or at its start.
fn deliver(world: &World, rings: &mut Rings, parts: &[&[u8]], at_end: bool, extra: bool) {
    for (n, part) in parts.iter().enumerate() {
        let (index, request) = (rings.rx_cons, rings.take());
        let offset = if at_end { 4096 - part.len() as u16 } else { 0 };
        world.server.fill(request.gref, 0, &[BESIDE; 4096]);
        if !part.is_empty() {
            world.server.fill(request.gref, offset, part);
        }
        let mut flags = RxFlags::empty();
        flags.set(RxFlags::MORE_DATA, n + 1 < parts.len());
        flags.set(RxFlags::EXTRA_INFO, extra && n == 0);
        rings.rx_put(index, request.id, offset, flags, part.len() as i16);
        if extra && n == 0 {
            let index = rings.rx_cons;
            rings.take();
            let hash = Hash { kind: 1, algorithm: 1, value: 7 };
            rings.rx.write_slot(index, Extra::Hash(hash).to_rx_words(false));
        }
    }
    rings.rx_publish(rings.rx_cons);
}

/// Returns a connected frontend that was told to trust its backend, or not to.
fn connected(trusts: bool) -> (World, Rings) {
    let mut world = World::new();
    if !trusts {
        world.toolstack.write(&format!("{}/trusted", paths().0), b"0").unwrap();
        let platform: Arc<dyn Platform> = Arc::<Domain>::clone(&world.guest);
        world.vif = Vif::open(platform, 0, Wishes::default()).unwrap();
    }
    let rings = world.connect();
    (world, rings)
}

#[test]
fn xsa_522_a_first_slot_shorter_than_an_ethernet_header_is_no_trouble() {
    for trusts in [true, false] {
        let (mut world, mut rings) = connected(trusts);
        for way in WAYS {
            for first in 0..=14 {
                for (rest, at_end, extra) in [
                    (1, true, false),
                    (14, false, true),
                    (46, true, true),
                    (4096, false, false),
                    (9000, true, false),
                ] {
                    let bytes = frame(first + rest, (first + rest) as u8);
                    let (head, behind) = bytes.split_at(first);
                    let parts: Vec<_> = std::iter::once(head).chain(behind.chunks(4096)).collect();
                    let errors = world.vif.stats().rx_errors;
                    deliver(&world, &mut rings, &parts, at_end, extra);
                    let what = format!("{way:?}: {first} bytes, then {rest}, trusted {trusts}");
                    let taken = take(&mut world, way);
                    if bytes.len() < 14 {
                        assert_eq!(taken, None, "{what}");
                        assert_eq!(world.vif.stats().rx_errors, errors + 1, "{what}");
                    } else {
                        let (whole, begin) = taken.unwrap_or_else(|| panic!("{what}"));
                        assert!(whole == bytes && begin == bytes[..14], "{what}");
                        assert_eq!(world.vif.stats().rx_errors, errors, "{what}");
                    }
                    assert_eq!(world.vif.status(), VifStatus::Connected, "{what}");
                }
            }
            world.works(&mut rings);
            assert_eq!(rings.posted(), RESTING, "every page is posted again");
        }
        world.ends(rings);
    }
}

#[test]
fn xsa_522_a_header_in_slots_of_one_byte_and_of_none() {
    let (mut world, mut rings) = connected(true);
    let bytes = frame(19, 3);
    let ones: Vec<&[u8]> = bytes.chunks(1).collect();
    let none: &[u8] = &[];
    // All bytes in the last slot, each byte by itself, and bytes among empty slots.
    let all_in_last: Vec<_> = std::iter::repeat_n(none, 18).chain([&bytes[..]]).collect();
    let among: Vec<_> = bytes.chunks(3).flat_map(|part| [none, part]).collect();
    for way in WAYS {
        for at_end in [false, true] {
            for parts in [&ones, &all_in_last, &among] {
                deliver(&world, &mut rings, parts, at_end, false);
                let (whole, begin) = take(&mut world, way).expect("a frame");
                assert_eq!((&whole[..], &begin[..]), (&bytes[..], &bytes[..14]), "{way:?}");
            }
            // A packet of empty slots only is no frame.
            let errors = world.vif.stats().rx_errors;
            deliver(&world, &mut rings, &[none; 19], at_end, false);
            assert_eq!(take(&mut world, way), None, "{way:?}");
            assert_eq!(world.vif.stats().rx_errors, errors + 1);
        }
        world.works(&mut rings);
    }
    world.ends(rings);
}
