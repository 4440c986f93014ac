//! Frames that are merged are cut again into the same frames.

mod common;

use common::large::{merged, on_the_wire};
use common::{Bench, Kind, Packet, mac};
use grantway_netif::{Checksum, Offload};
use grantway_ports::SentBurst;
use grantway_vector::PortId;
use grantway_vector::nodes::Checks;
use grantway_vector::receivers::Takes;
use proptest::prelude::*;
use std::sync::Arc;

const DONE: Offload = Offload { checksum: Checksum::Complete, gso: None };

/// Returns a segment of a stream. Its payload depends on its place in the stream.
fn segment(flow: u16, v6: bool, at: u32, id: u16, length: usize, flags: u8) -> Vec<u8> {
    let kind = Kind::Tcp { ports: [1000 + flow, 80], flags };
    let packet =
        Packet { from: 0, stations: [1, 2], vlan: None, v6, hosts: [1, 2], kind, payload: length };
    let mut frame = packet.bytes();
    let (ip, tcp) = (14, if v6 { 54 } else { 34 });
    if !v6 {
        frame[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
        let header = &mut frame[ip..ip + 20];
        header[10..12].fill(0);
        let sum = etherparse::checksum::Sum16BitWords::new().add_slice(header);
        header[10..12].copy_from_slice(&sum.ones_complement().to_ne_bytes());
    }
    frame[tcp + 4..tcp + 8].copy_from_slice(&at.to_be_bytes());
    for (n, byte) in frame[tcp + 20..].iter_mut().enumerate() {
        *byte = (at as usize + n) as u8;
    }
    let end = frame.len();
    grantway_ports::finish::finish_checksum(&mut frame[..end]).unwrap();
    frame
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
fn a_stream_becomes_one_frame() {
    for v6 in [false, true] {
        let frames: Vec<_> = (0..40u16)
            .map(|n| (0, segment(0, v6, u32::from(n) * 1400, n, 1400, 0x10), DONE))
            .collect();
        let given = bench(Takes::ALL).run(&frames, 256, 0);
        assert_eq!(given.len(), 1);
        let (to, _, bytes, offload) = &given[0];
        assert_eq!((*to, offload.checksum), (PortId(1), Checksum::Partial));
        assert_eq!(offload.gso.unwrap().size, 1400);
        assert_eq!(bytes.len(), frames[0].1.len() + 39 * 1400);
        let given = bench(Takes::default()).run(&frames, 256, 0);
        assert_eq!(given.len(), 40, "a guest that cannot take large frames");
    }
}

#[test]
fn merged_packets_have_at_most_65535_bytes() {
    let frames: Vec<_> = (0..100u16)
        .map(|n| (0, segment(0, false, u32::from(n) * 1448, n, 1448, 0x10), DONE))
        .collect();
    let given = bench(Takes::ALL).run(&frames, 256, 0);
    assert_eq!(given.len(), 3);
    assert!(given.iter().all(|(_, _, bytes, _)| bytes.len() <= 14 + 65_535));
}

#[test]
fn segments_with_unknown_checksums_are_checked_before_they_are_merged() {
    let unknown = Offload::default();
    let mut frames: Vec<_> = (0..4u16)
        .map(|n| (0, segment(0, false, u32::from(n) * 100, n, 100, 0x10), unknown))
        .collect();
    assert_eq!(bench(Takes::ALL).run(&frames, 256, 0).len(), 1, "checked");
    *frames[1].1.last_mut().unwrap() ^= 1;
    let mut bench = bench(Takes::ALL);
    assert_eq!(bench.run(&frames, 256, 0).len(), 2, "one is dropped, and is a gap");
    assert_eq!(bench.graph.drops().of(grantway_vector::Reason::TcpChecksum), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// For segments of several flows, some with flags, gaps or other sizes: the merged frames,
    /// cut again, are the frames that came, for each flow.
    #[test]
    fn segments_merged_by_the_graph_and_cut_again_are_unchanged(
        steps in proptest::collection::vec(
            (
                0u16..3,
                proptest::sample::select(vec![0x10u8, 0x10, 0x10, 0x18, 0x11, 0x30]),
                proptest::sample::select(vec![0usize, 64, 100, 100, 100, 100]),
                0u32..20,
            ),
            1..200,
        ),
        v6 in any::<bool>(),
    ) {
        let mut next = [(0u32, 0u16); 3];
        let mut frames = Vec::new();
        for (flow, flags, length, gap) in steps {
            let (at, id) = &mut next[usize::from(flow)];
            if gap == 0 {
                *at += 1000;
            }
            frames.push((0, segment(flow, v6, *at, *id, length, flags), DONE));
            *at += length as u32;
            *id += 1;
        }
        let mut merging = bench(Takes::ALL);
        let given = merging.run(&frames, 256, 0);
        prop_assert!(given.len() <= frames.len());
        // Another graph has a receiver that takes nothing unfinished.
        let frames_out: Vec<_> =
            given.into_iter().map(|(_, _, bytes, offload)| (0, bytes, offload)).collect();
        let cut = bench(Takes::default()).run(&frames_out, 256, 0);
        let tcp = if v6 { 54 } else { 34 };
        for flow in 0..3u16 {
            let port = (1000 + flow).to_be_bytes();
            let of = |bytes: &Vec<u8>| bytes[tcp..tcp + 2] == port;
            let came: Vec<_> = frames.iter().map(|f| &f.1).filter(|b| of(b)).collect();
            let went: Vec<_> = cut.iter().map(|f| &f.2).filter(|b| of(b)).collect();
            prop_assert_eq!(came, went);
        }
    }
}

#[test]
fn a_burst_for_a_port_becomes_one_large_frame_for_each_flow() {
    for checksum in [Checksum::Unknown, Checksum::Partial, Checksum::Complete] {
        let offload = Offload { checksum, gso: None };
        let frames: Vec<_> = (0..64u16)
            .map(|n| {
                (segment(n % 2, n % 2 == 1, u32::from(n / 2) * 1448, n / 2, 1448, 0x10), offload)
            })
            .collect();
        let bytes = frames.iter().map(|(frame, _)| frame.len()).sum();
        let (given, sent) = merged(&frames, false);
        assert_eq!(sent, SentBurst { taken: 64, bytes, merged: 64, ..SentBurst::default() });
        assert_eq!(given.len(), 2, "{checksum:?}: one a flow");
        for (flow, frame) in given.iter().enumerate() {
            let came = frames.iter().skip(flow).step_by(2).map(|(frame, _)| frame.clone());
            assert_eq!(on_the_wire(frame), came.collect::<Vec<_>>(), "{checksum:?}");
        }
    }
}

#[test]
fn frames_that_cannot_be_merged_are_sent_unchanged() {
    let udp = |v6| {
        let kind = Kind::Udp { ports: [1, 2] };
        let (stations, hosts) = ([1, 2], [1, 2]);
        Packet { from: 0, stations, vlan: None, v6, hosts, kind, payload: 1000 }.bytes()
    };
    let acknowledgement = || segment(0, false, 0, 0, 0, 0x10);
    let cut_short = segment(0, false, 0, 0, 400, 0x10)[..200].to_vec();
    for frame in [udp(false), udp(true), acknowledgement(), cut_short, vec![0xff; 300]] {
        let frames = vec![(frame, Offload::default()); 5];
        let (given, sent) = merged(&frames, false);
        assert_eq!((given, sent.merged), (frames, 0));
    }
    // Nothing goes past what cannot be read, as it may be of any flow.
    let next = |at: u32| segment(0, false, at, (at / 500) as u16, 500, 0x10);
    let broken = next(500)[..200].to_vec();
    let frames = [next(0), broken.clone(), next(500), next(1000)].map(|frame| (frame, DONE));
    let (given, sent) = merged(&frames, false);
    assert_eq!((given.len(), sent.merged), (3, 2));
    assert_eq!(given[1].0, broken);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// For any frames of a guest: the merged frames, cut again, are the frames that came, for
    /// each flow.
    #[test]
    fn segments_merged_for_a_port_and_cut_again_are_unchanged(
        steps in proptest::collection::vec(
            (
                0u16..3,
                proptest::sample::select(vec![0x10u8, 0x10, 0x10, 0x10, 0x18, 0x11, 0x90, 0x02]),
                proptest::sample::select(vec![0usize, 64, 300, 300, 300, 300]),
                0u32..30,
                proptest::sample::select(vec![
                    Checksum::Unknown, Checksum::Partial, Checksum::Partial, Checksum::Complete,
                ]),
            ),
            1..64,
        ),
        v6 in any::<bool>(),
    ) {
        let mut next = [(u32::MAX - 2000, 0xfff0u16); 3];
        let mut frames = Vec::new();
        for (flow, flags, length, fault, checksum) in steps {
            let (at, id) = &mut next[usize::from(flow)];
            if fault == 0 {
                *at = at.wrapping_add(1000);
            }
            let mut frame = segment(flow, v6, *at, *id, length, flags);
            let mut offload = Offload { checksum, gso: None };
            if fault == 1 {
                // It was damaged on its way, and nobody looked.
                *frame.last_mut().unwrap() ^= 1;
                offload.checksum = Checksum::Unknown;
            }
            frames.push((frame, offload));
            *at = at.wrapping_add(length as u32);
            *id = id.wrapping_add(1);
        }
        let (given, sent) = merged(&frames, false);
        prop_assert!(given.len() <= frames.len());
        prop_assert_eq!(sent.taken, frames.len());
        let cut: Vec<_> = given.iter().flat_map(on_the_wire).collect();
        let tcp = if v6 { 54 } else { 34 };
        for flow in 0..3u16 {
            let port = (1000 + flow).to_be_bytes();
            let of = |bytes: &&Vec<u8>| bytes[tcp..tcp + 2] == port;
            let came: Vec<_> = frames.iter().map(|(frame, _)| frame).filter(of).collect();
            let went: Vec<_> = cut.iter().filter(of).collect();
            prop_assert_eq!(came, went);
        }
    }
}
