//! One guest on the bridge is marked for complete checksums: each frame that it sends or gets
//! has a complete checksum. The other guests keep their offloads.

use crate::guest::{BROADCAST, Guest, frame, know_each_other, uplink_takes};
use crate::rules::stats;
use crate::support::port::UPLINK;
use crate::support::rings::{page, slot};
use crate::support::sums::{is_whole, udp};
use crate::support::tcp::{SEQUENCE, Tcp};
use crate::support::world::{CREWS, World};
use grantway_netif::tx::{TxFlags, TxRequest};
use grantway_netif::{Checksum, Offload};
use grantway_ports::finish::{SegmentChecksum, Segments};

const FULL: [(&str, &str); 1] = [("checksum", "full")];
/// Keys of a guest that accepts everything unfinished.
const ALL: [(&str, &str); 2] = [("feature-gso-tcpv6", "1"), ("feature-ipv6-csum-offload", "1")];
const BLANK: Offload = Offload { checksum: Checksum::Partial, gso: None };
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 1, 7];
const SEGMENT: u16 = 1448;

/// Three guests that accept everything unfinished. The second one has full checksums.
fn guests(world: &mut World) -> [Guest; 3] {
    let mut guests = [1, 2, 3].map(|number| {
        let nodes = if number == 2 { &FULL[..] } else { &[] };
        Guest::boot_with(world, number, nodes, &ALL)
    });
    know_each_other(&mut guests);
    guests
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n * 7) >> 3) as u8).collect()
}

/// Frames with blank checksums, of each protocol and length.
fn blank_frames(to: [u8; 6], from: [u8; 6]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for len in [0, 1, 70, 440, 1448, 4000, 9000] {
        for v6 in [false, true] {
            frames.push(udp(v6, to, from, &payload(len)));
            frames.push(Tcp { v6 }.frame(to, from, &payload(len)));
        }
    }
    frames
}

/// Sends a frame in whole pages, with a blank checksum.
#[track_caller]
fn sends_blank(guest: &mut Guest, frame: &[u8]) {
    let mut slots = guest.slots(frame, &mut || 4096, 7);
    let mut first = TxRequest::from_words(slots[0]);
    first.flags |= TxFlags::CSUM_BLANK;
    slots[0] = first.to_words();
    guest.sends_slots(&slots);
}

/// Sends a large TCP frame, which is left to be cut.
#[track_caller]
fn sends_large(guest: &mut Guest, tcp: Tcp, frame: &[u8], size: u16) {
    let gso = tcp.offload(size).gso.unwrap();
    let slots = guest.unfinished(frame, &mut || 4096, gso);
    let count = guest.hostile.transmit(&mut guest.rings, &slots).len();
    assert_eq!(count, slots.len());
}

/// Checks that `segments` are all segments of a frame, each with a complete checksum.
#[track_caller]
fn are_segments(tcp: Tcp, segments: &[Vec<u8>], whole: &[u8]) {
    let mut got = Vec::new();
    for segment in segments {
        let (sequence, part) = tcp.check(segment, Checksum::Complete);
        assert_eq!(sequence, SEQUENCE.wrapping_add(got.len() as u32));
        assert!(part.len() <= SEGMENT.into());
        got.extend_from_slice(part);
    }
    assert!(got == whole, "{tcp:?}: {} bytes of {}", got.len(), whole.len());
}

/// Checks that `found` has the bytes of `sent`, except for the checksum, which is complete.
#[track_caller]
fn is_completed(found: &[u8], sent: &[u8]) {
    assert!(is_whole(found), "a blank checksum in {} bytes", found.len());
    let differ = found.iter().zip(sent).filter(|(a, b)| a != b).count();
    assert!(found.len() == sent.len() && differ <= 2, "{differ} bytes differ");
}

#[test]
fn a_marked_guest_gets_complete_checksums_and_others_get_what_was_sent() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = guests(&mut world);
        for sent in blank_frames(b.address, a.address) {
            b.posts(4);
            sends_blank(&mut a, &sent);
            let (found, offload) = b.gets_unfinished();
            is_completed(&found, &sent);
            assert_eq!(offload, Offload { checksum: Checksum::Complete, gso: None });
            // Flooded: each receiver gets it as it takes it.
            b.posts(4);
            c.posts(4);
            let mut flooded = sent.clone();
            flooded[..6].copy_from_slice(&BROADCAST);
            sends_blank(&mut a, &flooded);
            is_completed(&b.gets_unfinished().0, &flooded);
            assert!(c.gets_unfinished() == (flooded, BLANK));
            // From the uplink, too.
            b.posts(4);
            let mut outside = sent.clone();
            outside[6..12].copy_from_slice(&OUTSIDE);
            world.behind(UPLINK).give(outside.clone(), BLANK);
            is_completed(&b.gets_unfinished().0, &outside);
        }
        for tcp in Tcp::BOTH {
            b.posts(20);
            let large = tcp.frame(b.address, a.address, &payload(19_500));
            sends_large(&mut a, tcp, &large, SEGMENT);
            let segments: Vec<_> = (0..14).map(|_| b.gets()).collect();
            are_segments(tcp, &segments, &payload(19_500));
        }
        // Between the others nothing is completed or cut.
        for sent in blank_frames(c.address, a.address) {
            c.posts(4);
            sends_blank(&mut a, &sent);
            assert!(c.gets_unfinished() == (sent, BLANK));
        }
        for tcp in Tcp::BOTH {
            c.posts(6);
            let large = tcp.frame(c.address, a.address, &payload(19_500));
            sends_large(&mut a, tcp, &large, SEGMENT);
            assert!(c.gets_unfinished() == (large, tcp.offload(SEGMENT)));
        }
        let found = stats(&world, &a);
        assert_eq!((found.tx_completed, found.tx_cut), (0, 0));
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn frames_of_a_marked_guest_are_complete_for_every_receiver() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = guests(&mut world);
        let uplink = world.behind(UPLINK);
        a.posts(1);
        uplink.give(frame(a.address, OUTSIDE, 60), Offload::default());
        a.gets();
        let complete = Offload { checksum: Checksum::Complete, gso: None };
        let mut count = 0;
        for sent in blank_frames(a.address, b.address) {
            a.posts(4);
            sends_blank(&mut b, &sent);
            let (found, offload) = a.gets_unfinished();
            is_completed(&found, &sent);
            assert_eq!(offload, complete);
            count += 1;
        }
        for sent in blank_frames(OUTSIDE, b.address) {
            sends_blank(&mut b, &sent);
            let (found, offload) = uplink_takes(&uplink, 1).pop().unwrap();
            is_completed(&found, &sent);
            assert_eq!(offload, complete);
            count += 1;
        }
        for sent in blank_frames(BROADCAST, b.address) {
            a.posts(4);
            c.posts(4);
            sends_blank(&mut b, &sent);
            for guest in [&mut a, &mut c] {
                is_completed(&guest.gets_unfinished().0, &sent);
            }
            is_completed(&uplink_takes(&uplink, 1).pop().unwrap().0, &sent);
            count += 1;
        }
        assert_eq!(stats(&world, &b).tx_completed, count);
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn large_frames_of_a_marked_guest_go_on_as_segments_and_segments_are_not_merged() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let uplink = world.behind(UPLINK);
        uplink.look().merges = true;
        world.restart();
        let [mut a, mut b, c] = guests(&mut world);
        a.posts(1);
        uplink.give(frame(a.address, OUTSIDE, 60), Offload::default());
        a.gets();
        for tcp in Tcp::BOTH {
            // The offer is withheld, and a guest may do so all the same.
            a.posts(20);
            let large = tcp.frame(a.address, b.address, &payload(19_500));
            sends_large(&mut b, tcp, &large, SEGMENT);
            let segments: Vec<_> = (0..14).map(|_| a.gets()).collect();
            are_segments(tcp, &segments, &payload(19_500));
            let large = tcp.frame(OUTSIDE, b.address, &payload(19_500));
            sends_large(&mut b, tcp, &large, SEGMENT);
            let taken = uplink_takes(&uplink, 14);
            assert!(taken.iter().all(|(_, offload)| offload.checksum == Checksum::Complete));
            let segments: Vec<_> = taken.into_iter().map(|(frame, _)| frame).collect();
            are_segments(tcp, &segments, &payload(19_500));
            // Its own segments, one after the other, in one turn.
            a.posts(20);
            let whole = tcp.frame(a.address, b.address, &payload(19_500));
            let gso = tcp.offload(SEGMENT).gso.unwrap();
            let mut cut = Segments::new(&whole, gso, SegmentChecksum::Partial).unwrap();
            let (mut slots, mut room) = (Vec::new(), vec![0; cut.longest()]);
            while let Some(meta) = cut.next_into(&mut room).unwrap() {
                let (memory, gref) = page(&b.out, slots.len());
                memory.write(0, &room[..meta.len]).unwrap();
                slots.push(slot(gref, 0, meta.len as u16, 7, TxFlags::CSUM_BLANK));
            }
            b.sends_slots(&slots);
            let segments: Vec<_> = (0..slots.len()).map(|_| a.gets()).collect();
            are_segments(tcp, &segments, &payload(19_500));
        }
        let found = stats(&world, &b);
        assert_eq!((found.tx_cut, found.tx_merged), (4 * 14, 0));
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn a_frame_that_cannot_be_completed_is_dropped_and_costs_no_other_guest() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, c] = guests(&mut world);
        let tcp = Tcp { v6: false };
        // No protocol with a checksum, headers that end too early, and more segments than one turn
        // cuts.
        let without = frame(a.address, b.address, 200);
        sends_blank(&mut b, &without);
        let short = tcp.frame(a.address, b.address, b"payload");
        sends_blank(&mut b, &short[..40]);
        let many = tcp.frame(a.address, b.address, &payload(19_500));
        sends_large(&mut b, tcp, &many, 8);
        assert_eq!(stats(&world, &b).tx_dropped_offload, 3);
        assert_eq!(stats(&world, &b).tx_cut, 0);
        a.gets_nothing();
        a.posts(1);
        let sent = udp(false, a.address, b.address, b"the next one");
        sends_blank(&mut b, &sent);
        is_completed(&a.gets(), &sent);
        drop((a, b, c));
        world.bridge_stands();
    }
}
