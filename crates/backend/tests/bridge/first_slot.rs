//! XSA-522 on the bridge: however a sender cuts its packets, no guest gets a frame whose first
//! slot is shorter than an Ethernet header. Every answer that these tests take off a ring is
//! checked for it (`support::rings`).

use crate::guest::{BROADCAST, Guest, NOBODY, frame, three_as};
use crate::rules::by_rules;
use crate::support::port::UPLINK;
use crate::support::rings::{page, slot};
use crate::support::world::World;
use grantway_backend::policy::Policy;
use grantway_netif::Offload;
use grantway_netif::tx::{TxFlags, status};

const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 1, 2];

/// Bytes before the first whole page of a packet: none, less than a header, a little
/// more, and all but as little.
fn leads() -> impl Iterator<Item = usize> {
    (1..=70).chain([127, 128, 129, 1000]).chain(4030..=4096)
}

/// Slots of a packet with `lead` bytes before a whole page, and ten behind the page.
fn packet(sender: &Guest, to: [u8; 6], lead: usize) -> (Vec<u8>, Vec<[u32; 3]>) {
    let bytes = frame(to, sender.address, lead + 4096 + 10);
    let mut cuts = [lead, 4096, 10].into_iter();
    let slots = sender.slots(&bytes, &mut || cuts.next().unwrap(), 7);
    (bytes, slots)
}

/// Each packet finds pages, finds none at first, and goes to all.
#[track_caller]
fn carries(a: &mut Guest, b: &mut Guest, c: &mut Guest) {
    for lead in leads() {
        let (bytes, slots) = packet(a, b.address, lead);
        b.posts(3);
        a.sends_slots(&slots);
        assert!(b.gets() == bytes, "{lead} bytes before a page");
        a.sends_slots(&slots);
        b.posts(3);
        assert!(b.gets() == bytes, "{lead} bytes before a page, waiting");
        let (bytes, slots) = packet(a, BROADCAST, lead);
        a.sends_slots(&slots);
        b.posts(3);
        c.posts(3);
        assert!(b.gets() == bytes && c.gets() == bytes, "{lead} bytes before a page, to all");
    }
}

#[test]
fn xsa_522_no_packet_of_another_guest_begins_with_a_shorter_slot() {
    for (most, staged) in [
        (Policy::Copy, false),
        (Policy::Map, false),
        (Policy::Staging, false),
        (Policy::Staging, true),
    ] {
        let mut world = World::bridged();
        world.setup.policy.most = most;
        world.restart();
        let [mut a, mut b, mut c] = three_as(&mut world, false, staged);
        carries(&mut a, &mut b, &mut c);
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn xsa_522_a_frame_shorter_than_a_header_reaches_no_guest() {
    for rules in [false, true] {
        let world = World::bridged();
        let mut world = if rules { by_rules(world, "") } else { world };
        let [mut a, mut b, mut c] = three_as(&mut world, false, false);
        for short in 0..14 {
            // From a guest, to one and to all: in one slot, and in several.
            for to in [b.address, BROADCAST, NOBODY] {
                let mut bytes = [0; 14];
                bytes[..6].copy_from_slice(&to);
                let (memory, gref) = page(&a.out, 0);
                memory.write(0, &bytes).unwrap();
                let size = short as u16;
                let mut packets = vec![vec![slot(gref, 0, size, 3, TxFlags::empty())]];
                if short > 0 {
                    packets.push(vec![
                        slot(gref, 0, size, 3, TxFlags::MORE_DATA),
                        slot(gref, size - 1, 1, 3, TxFlags::empty()),
                    ]);
                }
                for slots in packets {
                    let answers = a.hostile.transmit(&mut a.rings, &slots);
                    let refused = answers.iter().all(|answer| answer.status == status::ERROR);
                    assert!(refused, "{short} bytes: {answers:?}");
                }
            }
            // From the uplink. The next frame is the first that they are given.
            let whole = frame(BROADCAST, OUTSIDE, 60 + short);
            world.behind(UPLINK).give(whole[..short].to_vec(), Offload::default());
            world.behind(UPLINK).give(whole.clone(), Offload::default());
            for guest in [&mut a, &mut b, &mut c] {
                guest.posts(1);
                assert_eq!(guest.gets(), whole, "behind {short} bytes");
            }
        }
        drop((a, b, c));
        world.bridge_stands();
    }
}
