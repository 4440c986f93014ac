//! UDP datagrams: merged for a port that wants it and for no guest, and cut for every guest.

use crate::guest::{self, Guest, know_each_other};
use crate::rules::{by_rules, stats};
use crate::support::port::UPLINK;
use crate::support::rings::{SLOTS, page, slot};
use crate::support::tcp::sum;
use crate::support::world::World;
use grantway_backend::WaitMode;
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use grantway_ports::finish::{begin_checksum, finish_checksum};

/// Bytes of a datagram. A turn of shorter frames goes by the bridge without a look at its payloads.
const SIZE: usize = 600;
const COUNT: usize = 20;
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 9, 9];
const LARGE: Offload = Offload {
    checksum: Checksum::Partial,
    gso: Some(Gso { kind: GsoKind::Udp, size: SIZE as u16 }),
};

/// A UDP frame with a blank checksum.
fn frame(v6: bool, to: [u8; 6], from: [u8; 6], id: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let mut frame = [to, from].concat();
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend([0xfd; 16]);
        frame.extend([0xfe; 16]);
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + length).to_be_bytes());
        frame.extend(id.to_be_bytes());
        frame.extend([0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !sum(&frame[14..]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame.extend([4000u16, 5000, length, 0].map(u16::to_be_bytes).concat());
    frame.extend(payload);
    begin_checksum(&mut frame).unwrap();
    frame
}

fn payload() -> Vec<u8> {
    (0..SIZE * COUNT - 30).map(|n| ((n * 7) >> 3) as u8).collect()
}

/// The datagrams that a large frame stands for.
fn datagrams(v6: bool, to: [u8; 6], from: [u8; 6]) -> Vec<Vec<u8>> {
    let payload = payload();
    (7..).zip(payload.chunks(SIZE)).map(|(id, part)| frame(v6, to, from, id, part)).collect()
}

/// A guest that takes large frames of TCP and blank checksums.
const ALL: [(&str, &str); 2] = [("feature-gso-tcpv6", "1"), ("feature-ipv6-csum-offload", "1")];
/// A guest that takes nothing unfinished.
const NONE: [(&str, &str); 1] = [("feature-no-csum-offload", "1")];

fn guests(world: &mut World) -> [Guest; 3] {
    let mut guests = [1, 2, 3].map(|number| {
        let keys = if number < 3 { &ALL[..] } else { &NONE };
        Guest::boot_as(world, number, keys)
    });
    know_each_other(&mut guests);
    guests
}

/// Sends datagrams in one turn.
#[track_caller]
fn send(sender: &mut Guest, datagrams: &[Vec<u8>]) {
    let slots: Vec<_> = (0..)
        .zip(datagrams)
        .map(|(n, datagram)| {
            let (memory, gref) = page(&sender.out, n);
            memory.write(100, datagram).unwrap();
            slot(gref, 100, datagram.len() as u16, n as u16, TxFlags::CSUM_BLANK)
        })
        .collect();
    let answers = sender.hostile.transmit(&mut sender.rings, &slots);
    assert!(answers.iter().all(|answer| answer.status == status::OKAY));
}

#[test]
fn the_uplink_gets_merged_datagrams_if_it_wants_them() {
    for (merges, merges_udp) in [(false, false), (true, false), (true, true)] {
        let mut world = World::bridged();
        let uplink = world.behind(UPLINK);
        (uplink.look().merges, uplink.look().merges_udp) = (merges, merges_udp);
        world.restart();
        let [mut a, mut b, c] = guests(&mut world);
        a.posts(1);
        uplink.give(guest::frame(a.address, OUTSIDE, 60), Offload::default());
        a.gets();
        for v6 in [false, true] {
            let known = uplink.look().taken.len();
            let sent = datagrams(v6, OUTSIDE, a.address);
            send(&mut a, &sent);
            let taken = uplink.look().taken.split_off(known);
            if merges_udp {
                let whole = frame(v6, OUTSIDE, a.address, 7, &payload());
                assert!(taken == [(whole, LARGE)], "{v6}");
            } else {
                let taken: Vec<_> = taken.into_iter().map(|(frame, _)| frame).collect();
                assert!(taken == sent, "{v6}");
            }
            // A guest gets none merged, whatever it takes of TCP.
            b.posts(COUNT);
            let sent = datagrams(v6, b.address, a.address);
            send(&mut a, &sent);
            for datagram in sent {
                assert!(b.gets() == datagram, "{v6}");
            }
        }
        assert_eq!(stats(&world, &a).tx_merged, if merges_udp { 2 * COUNT as u64 } else { 0 });
        drop((a, b, c));
        world.bridge_stands();
    }
}

/// Asserts that a guest gets the datagrams of large frames as it takes them.
fn gets_datagrams(guest: &mut Guest, behind: &crate::support::port::Behind, whole: bool) {
    for v6 in [false, true] {
        guest.posts(COUNT);
        let large = frame(v6, guest.address, OUTSIDE, 7, &payload());
        behind.give(large, LARGE);
        for mut datagram in datagrams(v6, guest.address, OUTSIDE) {
            // The checksum tells if it is blank.
            if whole {
                finish_checksum(&mut datagram).unwrap();
            }
            assert!(guest.gets() == datagram, "{v6}");
        }
    }
}

#[test]
fn a_guest_gets_the_datagrams_of_a_large_frame() {
    for rules in [false, true] {
        for (keys, whole) in [(&ALL[..], false), (&NONE, true)] {
            let mut world = World::of_workers(1, WaitMode::Interrupt, false);
            if rules {
                world = by_rules(world, "[firewall]\ndefault = \"accept\"\n");
            }
            let mut guest = Guest::boot_as(&mut world, 1, keys);
            let behind = world.behind(guest.hostile.vif);
            gets_datagrams(&mut guest, &behind, whole);
            let found = stats(&world, &guest);
            assert_eq!((found.rx_cut, found.rx_dropped_offload), (2 * COUNT as u64, 0));
            drop(guest);
            world.bridge_stands();
        }
    }
}

#[test]
fn rules_judge_a_large_frame_as_udp() {
    let world = World::of_workers(1, WaitMode::Interrupt, false);
    let rules = "[firewall]\ndefault = \"accept\"\n[[rule]]\nname = \"port\"\naction = \"drop\"\n\
                 network = \"ipv4\"\nprotocol = \"udp\"\nto-ports = 5000\n";
    let mut world = by_rules(world, rules);
    let mut guest = Guest::boot_as(&mut world, 1, &ALL);
    guest.posts(SLOTS as usize);
    let behind = world.behind(guest.hostile.vif);
    behind.give(frame(false, guest.address, OUTSIDE, 7, &payload()), LARGE);
    behind.give(frame(true, guest.address, OUTSIDE, 7, &payload()), LARGE);
    for datagram in datagrams(true, guest.address, OUTSIDE) {
        assert!(guest.gets() == datagram);
    }
    assert_eq!(stats(&world, &guest).rx_dropped_rules, 1, "one frame");
    drop(guest);
    world.bridge_stands();
}

#[test]
fn a_large_frame_over_the_bridge_is_cut_for_each_guest() {
    let mut world = World::bridged();
    let [mut a, b, mut c] = guests(&mut world);
    let uplink = world.behind(UPLINK);
    gets_datagrams(&mut a, &uplink, false);
    gets_datagrams(&mut c, &uplink, true);
    drop((a, b, c));
    world.bridge_stands();
}
