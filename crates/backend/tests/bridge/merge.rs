//! TCP segments of a guest that sends them one by one, for others on the bridge.

use crate::guest::{self, Guest, know_each_other};
use crate::rules::{by_rules, stats};
use crate::support::PROMPT;
use crate::support::port::UPLINK;
use crate::support::rings::{SLOTS, page, slot};
use crate::support::tcp::{SEQUENCE, Tcp};
use crate::support::world::{CREWS, World};
use grantway_backend::WaitMode;
use grantway_hypervisor::GrantRef;
use grantway_netif::tx::{TxFlags, TxRequest, status};
use grantway_netif::{Checksum, Offload};
use grantway_ports::finish::{SegmentChecksum, Segments};
use std::time::Instant;

const SEGMENT: u16 = 1000;
/// Bytes of a large frame's payload: 20 segments, of which the last is shorter.
const PAYLOAD: usize = 19_500;

/// Keys of a guest that accepts no large frames.
const NO_LARGE: [(&str, &str); 2] =
    [("feature-gso-tcpv4", "0"), ("feature-ipv6-csum-offload", "1")];

/// Three guests, of which the last accepts no large frames.
fn guests(world: &mut World) -> [Guest; 3] {
    let all = [("feature-gso-tcpv6", "1"), ("feature-ipv6-csum-offload", "1")];
    let mut guests = [1, 2, 3].map(|number| {
        let keys = if number < 3 { &all } else { &NO_LARGE };
        Guest::boot_as(world, number, keys)
    });
    know_each_other(&mut guests);
    guests
}

fn payload() -> Vec<u8> {
    (0..PAYLOAD).map(|n| ((n * 7) >> 3) as u8).collect()
}

/// The slots of the segments of a frame, one in each page of the sender's.
fn slots(sender: &Guest, tcp: Tcp, frame: &[u8]) -> Vec<[u32; 3]> {
    let gso = tcp.offload(SEGMENT).gso.unwrap();
    let mut segments = Segments::new(frame, gso, SegmentChecksum::Partial).unwrap();
    let mut room = vec![0; segments.longest()];
    let mut slots = Vec::new();
    while let Some(meta) = segments.next_into(&mut room).unwrap() {
        let (memory, gref) = page(&sender.out, slots.len());
        memory.write(100, &room[..meta.len]).unwrap();
        slots.push(slot(gref, 100, meta.len as u16, slots.len() as u16, TxFlags::CSUM_BLANK));
    }
    assert_eq!(slots.len(), PAYLOAD.div_ceil(SEGMENT.into()));
    slots
}

/// Sends them all in one turn; their statuses.
fn send(sender: &mut Guest, slots: &[[u32; 3]]) -> Vec<i16> {
    let answers = sender.hostile.transmit(&mut sender.rings, slots);
    answers.iter().map(|answer| answer.status).collect()
}

fn merged(world: &World, guest: &Guest) -> u64 {
    stats(world, guest).tx_merged
}

#[test]
fn receivers_of_large_frames_get_one_and_others_get_segments() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = guests(&mut world);
        for (n, tcp) in (1..).zip(Tcp::BOTH) {
            b.posts(8);
            let frame = tcp.frame(b.address, a.address, &payload());
            let slots_of_it = slots(&a, tcp, &frame);
            let statuses = send(&mut a, &slots_of_it);
            assert_eq!(statuses, [status::OKAY; 20]);
            let whole = (frame, tcp.offload(SEGMENT));
            assert!(b.gets_unfinished() == whole, "{tcp:?}: as if it had never been cut");
            b.gets_nothing();
            assert_eq!(merged(&world, &a), 20 * n);

            c.posts(20);
            let frame = tcp.frame(c.address, a.address, &payload());
            let slots_of_it = slots(&a, tcp, &frame);
            assert_eq!(send(&mut a, &slots_of_it), [status::OKAY; 20]);
            for n in 0..20 {
                let segment = c.gets();
                let (sequence, part) = tcp.check(&segment, Checksum::Partial);
                let first = n * usize::from(SEGMENT);
                assert_eq!(sequence, SEQUENCE.wrapping_add(first as u32), "{tcp:?}");
                assert_eq!(part, &payload()[first..PAYLOAD.min(first + usize::from(SEGMENT))]);
            }
            assert_eq!(merged(&world, &a), 20 * n, "nothing for who takes no such frame");
        }
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn one_large_frame_waits_if_no_page_is_posted() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, c] = guests(&mut world);
        let tcp = Tcp { v6: false };
        let frame = tcp.frame(b.address, a.address, &payload());
        let slots_of_it = slots(&a, tcp, &frame);
        assert_eq!(send(&mut a, &slots_of_it), [status::OKAY; 20]);
        // What the pages hold by now is nothing to the frame.
        for n in 0..20 {
            page(&a.out, n).0.write(0, &[0xee; 4096]).unwrap();
        }
        b.posts(8);
        assert!(b.gets_unfinished() == (frame, tcp.offload(SEGMENT)));
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn a_segment_that_cannot_be_read_ends_those_that_it_is_merged_with() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, c] = guests(&mut world);
        let tcp = Tcp { v6: true };
        let frame = tcp.frame(b.address, a.address, &payload());
        let mut slots_of_it = slots(&a, tcp, &frame);
        b.posts(20);
        // Its headers are private, and what follows them is in a page that is none.
        let mut third = TxRequest::from_words(slots_of_it[2]);
        third.flags |= TxFlags::MORE_DATA;
        let nowhere = slot(GrantRef(0x7fff_0000), 0, third.size - 128, 2, TxFlags::empty());
        slots_of_it[2] = third.to_words();
        slots_of_it.insert(3, nowhere);
        let statuses = send(&mut a, &slots_of_it);
        assert_eq!(statuses, [status::ERROR; 21], "all of them were one frame");
        b.gets_nothing();
        assert_eq!(stats(&world, &a).tx_dropped_grant, 20);
        // The next are none the worse for it.
        let slots_of_it = slots(&a, tcp, &frame);
        assert_eq!(send(&mut a, &slots_of_it), [status::OKAY; 20]);
        assert!(b.gets_unfinished() == (frame, tcp.offload(SEGMENT)));
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn the_uplink_gets_large_frames_if_it_wants_them() {
    let tcp = Tcp { v6: false };
    let outside = [2, 0, 0, 0, 9, 9];
    for wants in [false, true] {
        let mut world = World::bridged();
        let uplink = world.behind(UPLINK);
        uplink.look().merges = wants;
        world.restart();
        let [mut a, b, c] = guests(&mut world);
        a.posts(1);
        uplink.give(guest::frame(a.address, outside, 60), Offload::default());
        a.gets();
        let known = uplink.look().taken.len();
        let frame = tcp.frame(outside, a.address, &payload());
        let slots_of_it = slots(&a, tcp, &frame);
        assert_eq!(send(&mut a, &slots_of_it), [status::OKAY; 20]);
        let taken = uplink.look().taken.split_off(known);
        match wants {
            true => assert!(taken == [(frame, tcp.offload(SEGMENT))]),
            false => assert_eq!(taken.len(), 20),
        }
        assert_eq!(merged(&world, &a), if wants { 20 } else { 0 });
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn large_frames_by_rules_are_cut_however_little_room_a_list_leaves() {
    const FRAMES: usize = 13;
    const LARGE: u16 = 4000;
    let world = World::of_workers(1, WaitMode::Interrupt, false);
    let mut world = by_rules(world, "[firewall]\ndefault = \"accept\"\n");
    let mut a = Guest::boot_as(&mut world, 1, &NO_LARGE);
    let tcp = Tcp { v6: false };
    let payload: Vec<u8> = (0..16 * usize::from(LARGE)).map(|n| (n ^ (n >> 8)) as u8).collect();
    let frame = tcp.frame(a.address, [2, 0, 0, 0, 9, 9], &payload);
    a.posts(SLOTS as usize);
    let port = world.behind(a.hostile.vif);
    let waiting = std::iter::repeat_n((frame.clone(), tcp.offload(LARGE)), FRAMES - 1);
    port.look().waiting.extend(waiting);
    port.give(frame, tcp.offload(LARGE));
    for number in 0..FRAMES {
        for (n, part) in payload.chunks(LARGE.into()).enumerate() {
            let segment = a.gets();
            let found = tcp.check(&segment, Checksum::Partial);
            let sequence = SEQUENCE.wrapping_add((n * usize::from(LARGE)) as u32);
            assert!(found == (sequence, part), "segment {n} of frame {number}");
        }
    }
    let found = stats(&world, &a);
    assert_eq!((found.rx_cut, found.rx_dropped_offload), (16 * FRAMES as u64, 0));
    drop(a);
    world.bridge_stands();
}

#[test]
fn a_frame_is_cut_no_further_than_there_is_room() {
    const FRAMES: u64 = 10;
    const SEGMENTS: u64 = 8000;
    // In bytes, what waits for a guest; a segment of 8 bytes has 54 of headers.
    const MOST: u64 = 1024 * 1024 / 62;
    for rules in [false, true] {
        let mut world = World::bridged();
        if rules {
            world = by_rules(world, "[firewall]\ndefault = \"accept\"\n");
        }
        // The last one takes no large frames, and posts no page from now on.
        let [a, b, c] = guests(&mut world);
        let tcp = Tcp { v6: false };
        let frame = tcp.frame(c.address, [2, 0, 0, 0, 9, 9], &[7; 8 * SEGMENTS as usize]);
        for _ in 0..FRAMES {
            world.behind(UPLINK).give(frame.clone(), tcp.offload(8));
        }
        // No segment is built for nothing: each that was is given to the guest, or waits. The
        // others are dropped, and counted.
        let (all, start) = (FRAMES * SEGMENTS, Instant::now());
        let counts = || {
            let found = stats(&world, &c);
            (found.rx_cut, found.rx_dropped_drained)
        };
        while counts().0 + counts().1 < all {
            assert!(start.elapsed() < PROMPT, "{:?}", stats(&world, &c));
            std::thread::yield_now();
        }
        let (cut, dropped) = counts();
        assert!(cut <= MOST, "{cut} segments were built where {MOST} at most may wait");
        assert_eq!(cut + dropped, all, "{cut} built, {dropped} dropped");
        drop((a, b, c));
        world.bridge_stands();
    }
}
