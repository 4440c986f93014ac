//! Datagrams that are merged, and cut again into the same datagrams.

mod common;

use common::large::{merged, on_the_wire};
use common::{Bench, Kind, Packet, mac, to_be_cut};
use etherparse::checksum::Sum16BitWords;
use grantway_netif::headers::{self, Protocol};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use grantway_ports::SentBurst;
use grantway_ports::finish::finish_checksum;
use grantway_vector::nodes::Checks;
use grantway_vector::receivers::Takes;
use grantway_vector::{PortId, Reason};
use proptest::prelude::*;
use std::sync::Arc;

const DONE: Offload = Offload { checksum: Checksum::Complete, gso: None };
const BLANK: Offload = Offload { checksum: Checksum::Partial, gso: None };

/// A datagram of a flow.
#[derive(Debug, Clone, Copy)]
struct Datagram {
    flow: u16,
    v6: bool,
    vlan: Option<u16>,
    id: u16,
    dont_fragment: bool,
    length: usize,
    /// Value of the first bytes of its payload.
    mark: u8,
    ttl: u8,
}

impl Datagram {
    fn new(v6: bool, id: u16, length: usize) -> Self {
        let (flow, vlan, dont_fragment) = (0, None, true);
        Self { flow, v6, vlan, id, dont_fragment, length, mark: id as u8, ttl: 64 }
    }

    /// Its bytes, with all checksums finished.
    fn bytes(self) -> Vec<u8> {
        let Self { flow, v6, vlan, id, dont_fragment, length, mark, ttl } = self;
        let kind = Kind::Udp { ports: [1000 + flow, 53] };
        let (stations, hosts) = ([1, 2], [1, 2]);
        let packet = Packet { from: 0, stations, vlan, v6, hosts, kind, payload: length };
        let (mut frame, ip) = (packet.bytes(), packet.network_at());
        if v6 {
            frame[ip + 7] = ttl;
        } else {
            frame[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
            frame[ip + 6] = if dont_fragment { 0x40 } else { 0 };
            frame[ip + 8] = ttl;
            sum_header(&mut frame, ip);
        }
        let payload = headers::read(&frame, frame.len()).unwrap().header_end;
        frame[payload..].iter_mut().for_each(|byte| *byte = byte.wrapping_add(mark));
        finish_checksum(&mut frame).unwrap();
        frame
    }
}

fn sum_header(frame: &mut [u8], ip: usize) {
    let header = &mut frame[ip..ip + 20];
    header[10..12].fill(0);
    let sum = Sum16BitWords::new().add_slice(header).ones_complement();
    header[10..12].copy_from_slice(&sum.to_ne_bytes());
}

/// Datagrams of one flow, of these lengths.
fn flow(v6: bool, lengths: &[usize]) -> Vec<(Vec<u8>, Offload)> {
    let numbered = lengths.iter().zip(0..);
    numbered.map(|(&length, id)| (Datagram::new(v6, id, length).bytes(), DONE)).collect()
}

/// Lengths of the payloads of frames.
fn payloads(frames: &[(Vec<u8>, Offload)]) -> Vec<usize> {
    let length = |(frame, _): &(Vec<u8>, Offload)| {
        let found = headers::read(frame, frame.len()).unwrap();
        found.end - found.header_end
    };
    frames.iter().map(length).collect()
}

#[test]
fn a_burst_of_datagrams_becomes_one_large_frame_for_a_port() {
    for checksum in [Checksum::Unknown, Checksum::Partial, Checksum::Complete] {
        for v6 in [false, true] {
            let frames: Vec<_> = flow(v6, &[18; 64]);
            let frames: Vec<_> =
                frames.into_iter().map(|(f, _)| (f, Offload { checksum, gso: None })).collect();
            let (given, sent) = merged(&frames, true);
            let bytes = frames.iter().map(|(frame, _)| frame.len()).sum();
            assert_eq!(sent, SentBurst { taken: 64, bytes, merged: 64, ..SentBurst::default() });
            assert_eq!(given.len(), 1, "{checksum:?}");
            let (frame, offload) = &given[0];
            assert_eq!(*offload, to_be_cut(Gso { kind: GsoKind::Udp, size: 18 }));
            let found = headers::read(frame, frame.len()).unwrap();
            assert_eq!((found.protocol, found.end), (Protocol::Udp, frame.len()));
            let length = u16::from_be_bytes([frame[found.start + 4], frame[found.start + 5]]);
            assert_eq!(usize::from(length), 8 + 64 * 18);
            let came: Vec<_> = frames.iter().map(|(frame, _)| frame.clone()).collect();
            assert_eq!(on_the_wire(&given[0]), came, "{checksum:?}");
            // Another port gets them as they came.
            let (given, sent) = merged(&frames, false);
            assert_eq!((given, sent.merged), (frames, 0));
        }
    }
}

#[test]
fn only_the_last_datagram_is_shorter_and_none_is_empty_or_longer() {
    for v6 in [false, true] {
        for (lengths, expected) in [
            (vec![100, 100, 40, 100, 100], vec![240, 200]),
            (vec![100, 100, 101, 101], vec![200, 202]),
            (vec![100, 0, 100, 100], vec![100, 0, 200]),
            (vec![0, 0, 0], vec![0, 0, 0]),
            (vec![1, 1], vec![2]),
            (vec![1472; 50], vec![44 * 1472, 6 * 1472]),
        ] {
            let (given, _) = merged(&flow(v6, &lengths), true);
            assert_eq!(payloads(&given), expected, "{lengths:?}");
        }
    }
}

#[test]
fn a_frame_has_at_most_64_datagrams_over_two_bursts() {
    let mut bench = bench(Takes::ALL);
    let frames: Vec<_> = flow(false, &[20; 130]).into_iter().map(|(f, o)| (0, f, o)).collect();
    let given = bench.run(&frames, 256, 0);
    let lengths: Vec<_> = given.iter().map(|(_, _, bytes, _)| bytes.len() - 42).collect();
    assert_eq!(lengths, [64 * 20, 64 * 20, 2 * 20]);
}

/// Two datagrams that are merged unless the second is changed.
fn pair(v6: bool, change: impl Fn(&mut Vec<u8>, &mut Offload)) -> usize {
    let mut frames = flow(v6, &[50, 50]);
    let (frame, offload) = &mut frames[1];
    change(frame, offload);
    merged(&frames, true).0.len()
}

#[test]
fn datagrams_that_differ_are_not_merged() {
    for v6 in [false, true] {
        let (ip, udp) = (14, if v6 { 54 } else { 34 });
        assert_eq!(pair(v6, |_, _| {}), 1);
        let set = |at: usize, value: u8| {
            pair(v6, move |frame, _| {
                frame[at] = value;
                if !v6 {
                    sum_header(frame, ip);
                }
                finish_checksum(frame).unwrap();
            })
        };
        for at in [0, 6] {
            assert_eq!(set(at, 0x0a), 2, "stations");
        }
        assert_eq!(set(ip + 1, 3), 2, "class of service");
        assert_eq!(set(ip + if v6 { 7 } else { 8 }, 9), 2, "time to live");
        assert_eq!(set(ip + if v6 { 23 } else { 15 }, 9), 2, "source");
        assert_eq!(set(ip + if v6 { 39 } else { 19 }, 9), 2, "destination");
        assert_eq!(set(udp + 1, 9), 2, "source port");
        assert_eq!(set(udp + 3, 9), 2, "destination port");
        assert_eq!(pair(v6, |_, offload| *offload = BLANK), 2, "another state of the checksum");
    }
    assert_eq!(pair(true, |frame, _| frame[17] = 1), 2, "flow label");
}

#[test]
fn a_datagram_without_checksum_is_not_merged() {
    for offload in [DONE, BLANK, Offload::default()] {
        let frames: Vec<_> = flow(false, &[50; 4])
            .into_iter()
            .map(|(mut frame, _)| {
                frame[40..42].fill(0);
                (frame, offload)
            })
            .collect();
        let (given, sent) = merged(&frames, true);
        assert_eq!((given.len(), sent.merged), (4, 0), "{offload:?}");
        assert!(given.iter().all(|(frame, _)| frame[40..42] == [0, 0]));
    }
}

#[test]
fn a_datagram_with_a_wrong_checksum_is_not_merged() {
    let spoil = |frame: &mut Vec<u8>, offload: &mut Offload| {
        *frame.last_mut().unwrap() ^= 1;
        *offload = Offload::default();
    };
    assert_eq!(pair(false, spoil), 2);
    assert_eq!(pair(true, spoil), 2);
}

#[test]
fn padding_options_and_fragments_keep_a_datagram_apart() {
    // Bytes behind the datagram that belong to the packet.
    let surplus = |frame: &mut Vec<u8>, _: &mut Offload| {
        frame.extend([0; 6]);
        frame[17] += 6;
        sum_header(frame, 14);
    };
    assert_eq!(pair(false, surplus), 2);
    // Bytes behind the packet belong to the wire.
    assert_eq!(pair(false, |frame, _| frame.extend([0; 6])), 1);
    let fragment = |frame: &mut Vec<u8>, _: &mut Offload| {
        frame[20] = 0x20;
        sum_header(frame, 14);
    };
    assert_eq!(pair(false, fragment), 2);
    let options = |frame: &mut Vec<u8>, _: &mut Offload| {
        frame.splice(34..34, [1; 4]);
        (frame[14], frame[17]) = (0x46, frame[17] + 4);
        let sum = Sum16BitWords::new().add_slice(&frame[14..24]).add_slice(&frame[26..38]);
        let sum = sum.ones_complement().to_ne_bytes();
        frame[24..26].copy_from_slice(&sum);
    };
    assert_eq!(pair(false, options), 2);
}

#[test]
fn identifications_count_up_or_have_no_meaning() {
    let ids = |ids: &[u16], dont_fragment| {
        let datagram = |&id| Datagram { dont_fragment, mark: 0, ..Datagram::new(false, id, 50) };
        let frames: Vec<_> = ids.iter().map(|id| (datagram(id).bytes(), DONE)).collect();
        payloads(&merged(&frames, true).0).into_iter().map(|n| n / 50).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[65_534, 65_535, 0, 1], true), [4]);
    assert_eq!(ids(&[65_534, 65_535, 0, 1], false), [4]);
    assert_eq!(ids(&[0, 0, 0], true), [3]);
    assert_eq!(ids(&[7, 7, 7], false), [1, 1, 1], "fragments of them could be mixed up");
    assert_eq!(ids(&[5, 5, 6, 7], true), [2, 2]);
    assert_eq!(ids(&[5, 6, 6, 6], true), [2, 2]);
    assert_eq!(ids(&[5, 4, 9], true), [1, 1, 1]);
}

#[test]
fn a_flow_of_tcp_with_the_same_ports_is_another_flow() {
    let kind = Kind::Tcp { ports: [1000, 53], flags: 0x10 };
    let (stations, hosts) = ([1, 2], [1, 2]);
    let tcp = Packet { from: 0, stations, vlan: None, v6: false, hosts, kind, payload: 200 };
    let mut frames = flow(false, &[200; 4]);
    frames.insert(2, (tcp.bytes(), DONE));
    let (given, _) = merged(&frames, true);
    assert_eq!(payloads(&given), [800, 200]);
}

/// A bench whose port 1 is where station 2 is, and takes this.
fn bench(takes: Takes) -> Bench {
    let mut bench = Bench::new(Arc::default(), 2, Checks::Verify);
    let hello = [mac(1).as_slice(), &mac(2), &[0x88, 0xb5]].concat();
    bench.run(&[(1, hello, Offload::default())], 1, 0);
    bench.graph.set_receiver(PortId(1), takes);
    bench
}

#[test]
fn frames_of_several_datagrams_pass_a_graph_and_are_cut_for_their_receiver() {
    for v6 in [false, true] {
        let came = flow(v6, &[300; 20]);
        let (given, _) = merged(&came, true);
        let large: Vec<_> = given.into_iter().map(|(f, o)| (0, f, o)).collect();
        assert_eq!(large.len(), 1);
        // A guest takes large frames of TCP only.
        let guest = Takes { udp: false, ..Takes::ALL };
        let partial = bench(guest).run(&large, 256, 0);
        assert!(partial.iter().all(|(_, _, _, offload)| *offload == BLANK));
        let whole = bench(Takes::default()).run(&large, 256, 0);
        let went: Vec<_> =
            whole.into_iter().map(|(_, _, frame, offload)| (frame, offload)).collect();
        assert_eq!((partial.len(), went), (20, came));
        let kept = bench(Takes::ALL).run(&large, 256, 0);
        assert_eq!(kept.len(), 1, "a port that takes it gets it as it is");
    }
}

#[test]
fn udp_segmentation_of_other_protocols_is_dropped() {
    let gso = to_be_cut(Gso { kind: GsoKind::Udp, size: 8 });
    for v6 in [false, true] {
        let (stations, hosts) = ([1, 2], [1, 2]);
        let of = |kind| Packet { from: 0, stations, vlan: None, v6, hosts, kind, payload: 64 };
        let kinds = [
            Kind::Tcp { ports: [1, 2], flags: 0x10 },
            Kind::Echo { id: 1, answer: true },
            Kind::Arp,
            Kind::Other,
        ];
        for kind in kinds {
            let mut bench = bench(Takes::ALL);
            assert!(bench.run(&[(0, of(kind).bytes(), gso)], 1, 0).is_empty(), "{kind:?}");
            assert_eq!(bench.graph.drops().of(Reason::Gso), 1, "{kind:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// For any frames of a guest: the merged frames, cut again, are the frames that came, for
    /// each flow. Only identifications without a meaning may differ.
    #[test]
    fn datagrams_merged_for_a_port_and_cut_again_are_unchanged(
        steps in proptest::collection::vec(
            (
                0u16..3,
                proptest::sample::select(vec![0usize, 1, 18, 18, 18, 18, 40, 1472]),
                0u32..30,
                proptest::sample::select(vec![
                    Checksum::Unknown, Checksum::Partial, Checksum::Partial, Checksum::Complete,
                ]),
                any::<u8>(),
            ),
            1..64,
        ),
        v6 in any::<bool>(),
        vlan in proptest::option::of(1u16..9),
        dont_fragment in any::<bool>(),
        id_step in 0u16..2,
    ) {
        let mut next = [0xfff0u16; 3];
        let mut frames = Vec::new();
        for (flow, length, fault, checksum, mark) in steps {
            let id = &mut next[usize::from(flow)];
            let ttl = if fault == 3 { 9 } else { 64 };
            let datagram = Datagram { flow, v6, vlan, id: *id, dont_fragment, length, mark, ttl };
            let mut frame = datagram.bytes();
            let mut offload = Offload { checksum, gso: None };
            match fault {
                0 => *id = id.wrapping_add(7),
                1 => {
                    // It was damaged on its way, and nobody looked.
                    *frame.last_mut().unwrap() ^= 1;
                    offload.checksum = Checksum::Unknown;
                }
                2 if !v6 => {
                    // It has no checksum.
                    let at = headers::read(&frame, frame.len()).unwrap().checksum_at();
                    frame[at..at + 2].fill(0);
                    offload.checksum = Checksum::Complete;
                }
                _ => {}
            }
            frames.push((frame, offload));
            *id = id.wrapping_add(id_step);
        }
        let (given, sent) = merged(&frames, true);
        prop_assert!(given.len() <= frames.len());
        prop_assert_eq!(sent.taken, frames.len());
        for (_, offload) in &given {
            prop_assert!(offload.gso.is_none_or(|gso| gso.kind == GsoKind::Udp));
        }
        let mut cut: Vec<_> = given.iter().flat_map(on_the_wire).collect();
        let mut came: Vec<_> = frames.into_iter().map(|(frame, _)| frame).collect();
        let (ip, udp) = headers::read(&came[0], came[0].len()).map(|at| (at.ip, at.start)).unwrap();
        if !v6 && dont_fragment && id_step == 0 {
            for frame in cut.iter_mut().chain(&mut came) {
                frame[ip + 4..ip + 6].fill(0);
                frame[ip + 10..ip + 12].fill(0);
            }
        }
        for flow in 0..3u16 {
            let port = (1000 + flow).to_be_bytes();
            let of = |bytes: &&Vec<u8>| bytes[udp..udp + 2] == port;
            let came: Vec<_> = came.iter().filter(of).collect();
            let went: Vec<_> = cut.iter().filter(of).collect();
            prop_assert_eq!(came, went);
        }
    }
}
