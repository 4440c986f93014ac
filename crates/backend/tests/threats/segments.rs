//! TCP frames that are larger than a guest takes, or have headers cut to pieces.

use crate::support::eventually;
use crate::support::inbox::Inbox;
use crate::support::rings::slot;
use crate::support::tcp::{SEQUENCE, Tcp};
use crate::support::world::World;
use grantway_backend::Patience;
use grantway_netif::extra::Extra;
use grantway_netif::tx::{TxFlags, TxResponse, status};
use grantway_netif::{Checksum, Offload};
use grantway_ports::TapOffloads;
use grantway_ports::finish::{SegmentChecksum, Segments};

const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SEGMENT: u16 = 1448;

/// Offloads for a guest that offers these keys. For IPv4 and for IPv6: the checksum, which is
/// left to the guest or complete. `whole`: a large frame comes as one, not in segments.
struct Case {
    keys: &'static [(&'static str, &'static str)],
    checksums: [Checksum; 2],
    whole: bool,
}

const CASES: [Case; 6] = [
    Case {
        keys: &[("feature-gso-tcpv6", "1"), ("feature-ipv6-csum-offload", "1")],
        checksums: [Checksum::Partial, Checksum::Partial],
        whole: true,
    },
    Case {
        keys: &[("feature-gso-tcpv4", "0"), ("feature-ipv6-csum-offload", "1")],
        checksums: [Checksum::Partial, Checksum::Partial],
        whole: false,
    },
    // Blank checksums over IPv6 are off where nothing is said.
    Case {
        keys: &[("feature-gso-tcpv4", "0"), ("feature-gso-tcpv6", "1")],
        checksums: [Checksum::Partial, Checksum::Complete],
        whole: false,
    },
    Case {
        keys: &[
            ("feature-no-csum-offload", "1"),
            ("feature-gso-tcpv4", "0"),
            ("feature-ipv6-csum-offload", "1"),
        ],
        checksums: [Checksum::Complete, Checksum::Partial],
        whole: false,
    },
    // No large frames in one page, whatever else is said.
    Case {
        keys: &[
            ("feature-sg", "0"),
            ("feature-gso-tcpv6", "1"),
            ("feature-ipv6-csum-offload", "1"),
        ],
        checksums: [Checksum::Partial, Checksum::Partial],
        whole: false,
    },
    Case {
        keys: &[("feature-no-csum-offload", "1"), ("feature-gso-tcpv6", "1")],
        checksums: [Checksum::Complete, Checksum::Complete],
        whole: false,
    },
];

#[test]
fn a_guest_gets_large_and_unfinished_frames_as_it_can_take_them() {
    let mut world = World::new();
    let mut guest = world.guest();
    let payload: Vec<u8> = (0..40_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
    for (number, case) in CASES.iter().enumerate() {
        for key in ["feature-gso-tcpv6", "feature-ipv6-csum-offload", "feature-no-csum-offload"] {
            guest.unkey(key);
        }
        let mut rings = guest.connect_as(case.keys);
        let offloads = world.behind(guest.vif).look().offloads;
        let mut inbox = Inbox::posted(&mut guest, &mut rings);
        for (tcp, checksum) in Tcp::BOTH.into_iter().zip(case.checksums) {
            let what = format!("case {number}, {tcp:?}");
            // A port is not asked to leave undone what the guest does not take.
            let large = if tcp.v6 { offloads.tso6 } else { offloads.tso4 };
            assert_eq!(large, case.whole, "{what}: {offloads:?}");
            let frame = tcp.frame(TO, FROM, &payload);
            world.behind(guest.vif).give(frame.clone(), tcp.offload(SEGMENT));
            if case.whole {
                assert!(inbox.next(&mut rings) == (frame, tcp.offload(SEGMENT)), "{what}");
            } else {
                let mut got = Vec::new();
                while got.len() < payload.len() {
                    let (segment, offload) = inbox.next(&mut rings);
                    assert_eq!(offload, Offload { checksum, gso: None }, "{what}");
                    let (sequence, part) = tcp.check(&segment, checksum);
                    assert_eq!(sequence, SEQUENCE.wrapping_add(got.len() as u32), "{what}");
                    assert!(part.len() <= SEGMENT.into(), "{what}: {} bytes", part.len());
                    got.extend_from_slice(part);
                }
                assert!(got == payload, "{what}");
            }
            // One that is large for nobody, its checksum left undone.
            let frame = tcp.frame(TO, FROM, &payload[..1000]);
            let partial = Offload { checksum: Checksum::Partial, gso: None };
            world.behind(guest.vif).give(frame, partial);
            let (frame, offload) = inbox.next(&mut rings);
            assert_eq!(offload, Offload { checksum, gso: None }, "{what}");
            assert_eq!(tcp.check(&frame, checksum), (SEQUENCE, &payload[..1000]));
        }
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
    }
    world.stands();
}

#[test]
fn a_port_that_wants_large_frames_gives_and_gets_them_with_any_guest() {
    let mut world = World::new();
    let mut guest = world.guest();
    world.behind(guest.vif).look().merges = true;
    let payload: Vec<u8> = (0..20_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
    let pages: Vec<_> = (0..20).map(|_| guest.page(&[])).collect();
    for (number, case) in CASES.iter().enumerate() {
        for key in ["feature-gso-tcpv6", "feature-ipv6-csum-offload", "feature-no-csum-offload"] {
            guest.unkey(key);
        }
        let mut rings = guest.connect_as(case.keys);
        // What is to be cut here has its checksums left to the guest.
        let [v4, v6] = case.checksums.map(|checksum| checksum == Checksum::Partial);
        let offloads = TapOffloads { checksum: v4, tso4: v4, tso6: v4 && v6, uso: v4 };
        assert_eq!(world.behind(guest.vif).look().offloads, offloads, "case {number}");
        for tcp in Tcp::BOTH {
            let frame = tcp.frame(TO, FROM, &payload);
            let gso = tcp.offload(1000).gso.unwrap();
            let mut segments = Segments::new(&frame, gso, SegmentChecksum::Partial).unwrap();
            let mut room = vec![0; segments.longest()];
            let mut slots = Vec::new();
            while let Some(meta) = segments.next_into(&mut room).unwrap() {
                let (memory, gref) = &pages[slots.len()];
                memory.write(0, &room[..meta.len]).unwrap();
                slots.push(slot(*gref, 0, meta.len as u16, 3, TxFlags::CSUM_BLANK));
            }
            let answers = guest.transmit(&mut rings, &slots);
            assert_eq!(answers, [TxResponse { id: 3, status: status::OKAY }; 20]);
            let taken = std::mem::take(&mut world.behind(guest.vif).look().taken);
            assert!(taken == [(frame, tcp.offload(1000))], "case {number}, {tcp:?}");
        }
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
    }
    world.stands();
}

/// Each segment that is built waits: those that have no room are dropped, and not built before.
#[test]
fn a_large_frame_of_the_port_is_cut_no_further_than_there_is_room() {
    const SEGMENTS: u64 = 8000;
    // What waits is dropped by time, too: here it stands.
    let mut world = World::patient(Patience::default());
    let mut guest = world.guest();
    // It takes no large frames over IPv4, and posts no page.
    let _rings = guest.connect_as(&[("feature-gso-tcpv4", "0")]);
    let tcp = Tcp { v6: false };
    let frame = tcp.frame(TO, FROM, &[7; 8 * SEGMENTS as usize]);
    world.behind(guest.vif).give(frame, tcp.offload(8));
    let (cut, dropped) = eventually("each segment is built or dropped", || {
        let stats = world.control().report_of(guest.vif)?.stats;
        let counts = (stats.rx_cut, stats.rx_dropped_drained);
        (counts.0 + counts.1 >= SEGMENTS).then_some(counts)
    });
    assert!(cut > 0 && dropped > 0, "{cut} built, {dropped} dropped: there was room for all");
    assert_eq!(cut + dropped, SEGMENTS, "{cut} built, {dropped} dropped");
    world.stands();
}

#[test]
fn dpdk_cve_2022_2132_headers_across_descriptors() {
    // Headers of Ethernet, IP and TCP in fragments of some bytes each, none of
    // which holds one whole: what follows is in the last.
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let pages: Vec<_> = (0..19).map(|_| guest.page(&[])).collect();
    for tcp in Tcp::BOTH {
        let frame = tcp.frame(TO, FROM, &[0xa5; 4000]);
        for step in [tcp.headers().div_ceil(18), 7, 13, 33, tcp.headers() - 1] {
            let (head, rest) = frame.split_at(tcp.headers());
            let parts: Vec<_> = head.chunks(step).chain([rest]).collect();
            assert!(parts.len() <= 19);
            let mut slots = Vec::new();
            for (n, part) in parts.iter().enumerate() {
                // Up to the very end of the page.
                let (memory, gref) = &pages[n];
                let offset = 4096 - part.len();
                memory.write(offset, part).unwrap();
                let size = if n == 0 { frame.len() } else { part.len() };
                let mut flags = TxFlags::empty();
                flags.set(TxFlags::MORE_DATA, n + 1 < parts.len());
                flags.set(TxFlags::EXTRA_INFO | TxFlags::CSUM_BLANK, n == 0);
                slots.push(slot(*gref, offset as u16, size as u16, n as u16, flags));
                if n == 0 {
                    let gso = tcp.offload(SEGMENT).gso.unwrap();
                    slots.push(Extra::Gso(gso.try_into().unwrap(), 0).to_tx_words(false));
                }
            }
            let answers = guest.transmit(&mut rings, &slots);
            let good = |answer: &TxResponse| answer.status >= status::OKAY;
            assert!(answers.iter().all(good), "{tcp:?} by {step}: {answers:?}");
            let taken = world.behind(guest.vif).look().taken.pop().unwrap();
            assert!(taken == (frame.clone(), tcp.offload(SEGMENT)), "{tcp:?} by {step}");
        }
    }
    world.stands();
}
