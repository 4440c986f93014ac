//! Finding headers: what is there, what is not, and what a guest may invent.

use etherparse::{PacketBuilder, VlanId};
use proptest::prelude::*;

use super::*;

const PAYLOAD: &[u8] = b"sixteen and odd bytes";

#[derive(Debug, Clone, Copy)]
struct Shape {
    tags: usize,
    v6: bool,
    tcp: bool,
}

fn shapes() -> impl Iterator<Item = Shape> {
    (0..12).map(|n| Shape { tags: n % 3, v6: n / 3 % 2 == 1, tcp: n / 6 == 1 })
}

/// A whole frame with a right checksum, and where its transport header starts.
fn build(shape: Shape, payload: &[u8]) -> (Vec<u8>, usize) {
    let eth = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let id = VlanId::try_new(7).unwrap();
    let mut out = Vec::new();
    macro_rules! rest {
        ($step:expr) => {{
            let ip = if shape.v6 {
                $step.ipv6([1; 16], [2; 16], 64)
            } else {
                $step.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            };
            if shape.tcp {
                let tcp = ip.tcp(1000, 2000, 77, 900).cwr();
                tcp.write(&mut out, payload).unwrap();
            } else {
                ip.udp(1000, 2000).write(&mut out, payload).unwrap();
            }
        }};
    }
    match shape.tags {
        0 => rest!(eth),
        1 => rest!(eth.single_vlan(id)),
        _ => rest!(eth.double_vlan(id, id)),
    }
    let start = 14 + 4 * shape.tags + if shape.v6 { 40 } else { 20 };
    (out, start)
}

#[test]
fn finds_tcp_and_udp_behind_tags_of_both_families() {
    for shape in shapes() {
        let (frame, start) = build(shape, PAYLOAD);
        let found = locate(&frame).unwrap();
        assert_eq!(found.start, start, "{shape:?}");
        assert_eq!(found.end, frame.len());
        assert_eq!(found.family == Family::V6, shape.v6);
        assert_eq!(found.protocol == Protocol::Tcp, shape.tcp);
        assert_eq!(found.header_end, start + if shape.tcp { 20 } else { 8 });
        assert_eq!(found.cwr, shape.tcp);
    }
}

#[test]
fn padding_is_not_part_of_the_packet() {
    for shape in shapes() {
        let (mut frame, _) = build(shape, b"x");
        let end = frame.len();
        frame.extend_from_slice(&[0xee; 9]);
        assert_eq!(locate(&frame).unwrap().end, end, "{shape:?}");
    }
}

#[test]
fn a_length_of_zero_means_the_frames_end() {
    for shape in shapes() {
        let (mut frame, _) = build(shape, PAYLOAD);
        let at = 14 + 4 * shape.tags + if shape.v6 { 4 } else { 2 };
        frame[at..at + 2].fill(0);
        assert_eq!(locate(&frame).unwrap().end, frame.len(), "{shape:?}");
    }
}

#[test]
fn truncated_at_every_byte_is_an_error() {
    for shape in shapes() {
        let (frame, _) = build(shape, PAYLOAD);
        for length in 0..frame.len() {
            let reason = locate(&frame[..length]).unwrap_err();
            let expected = if length < 14 { DropReason::TooShort } else { DropReason::Truncated };
            assert_eq!(reason, expected, "{shape:?} {length}");
        }
    }
}

#[test]
fn each_reason_has_its_own_variant() {
    let v4 = |tcp| {
        let shape = Shape { tags: 0, v6: false, tcp };
        build(shape, PAYLOAD).0
    };
    let with = |tcp, at: usize, value: u8| {
        let mut frame = v4(tcp);
        frame[at] = value;
        locate(&frame).unwrap_err()
    };
    assert_eq!(with(true, 13, 6), DropReason::NotIp);
    assert_eq!(with(true, 14, 0x65), DropReason::BadHeader);
    assert_eq!(with(true, 14, 0x44), DropReason::BadHeader);
    assert_eq!(with(true, 20, 0x20), DropReason::Fragment);
    assert_eq!(with(true, 21, 1), DropReason::Fragment);
    assert_eq!(with(true, 23, 1), DropReason::OtherTransport);
    assert_eq!(with(true, 14 + 20 + 12, 0x40), DropReason::BadHeader);
    assert_eq!(with(true, 14 + 20 + 12, 0xf0), DropReason::Truncated);
    assert_eq!(with(true, 16, 0xff), DropReason::Truncated);
    let mut frame = v4(true);
    frame[16..18].copy_from_slice(&[0, 19]);
    assert_eq!(locate(&frame), Err(DropReason::BadHeader));
    let mut frame = v4(false);
    // "Do not fragment" is no fragment.
    frame[20] = 0x40;
    assert!(locate(&frame).is_ok());
}

#[test]
fn a_third_tag_is_not_looked_behind() {
    let (mut frame, _) = build(Shape { tags: 2, v6: false, tcp: true }, PAYLOAD);
    frame.splice(12..12, [0x81, 0, 0, 1]);
    assert_eq!(locate(&frame), Err(DropReason::NotIp));
}

/// An IPv6 UDP frame behind the given extension headers, each (number, bytes).
fn with_extensions(extensions: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let (plain, start) = build(Shape { tags: 0, v6: true, tcp: false }, PAYLOAD);
    let mut frame = plain[..start].to_vec();
    frame[20] = extensions.first().map_or(UDP, |e| e.0);
    for (n, (_, bytes)) in extensions.iter().enumerate() {
        let at = frame.len();
        frame.extend_from_slice(bytes);
        frame[at] = extensions.get(n + 1).map_or(UDP, |e| e.0);
    }
    frame.extend_from_slice(&plain[start..]);
    let payload = (frame.len() - start) as u16;
    frame[18..20].copy_from_slice(&payload.to_be_bytes());
    frame
}

#[test]
fn walks_extension_headers_within_a_bound() {
    let plain = |number| (number, vec![0; 8]);
    let long = (DESTINATION, [vec![0, 2], vec![0; 22]].concat());
    let authentication = (AUTHENTICATION, [vec![0, 4], vec![0; 22]].concat());
    let chain = [plain(HOP_BY_HOP), plain(ROUTING), long, authentication, plain(FRAGMENT)];
    for n in 0..=chain.len() {
        let frame = with_extensions(&chain[..n]);
        let bytes: usize = chain[..n].iter().map(|e| e.1.len()).sum();
        assert_eq!(locate(&frame).unwrap().start, 54 + bytes, "{n}");
        for cut in 0..frame.len() {
            assert!(locate(&frame[..cut]).is_err());
        }
    }
    let eight = vec![plain(DESTINATION); MAX_EXTENSIONS];
    assert!(locate(&with_extensions(&eight)).is_ok());
    let nine = vec![plain(DESTINATION); MAX_EXTENSIONS + 1];
    assert_eq!(locate(&with_extensions(&nine)), Err(DropReason::ExtensionChain));
    for fragment in [[0, 0, 0, 1], [0, 0, 0, 8], [0, 0, 1, 0]] {
        let bytes = [fragment.to_vec(), vec![0; 4]].concat();
        let frame = with_extensions(&[(FRAGMENT, bytes)]);
        assert_eq!(locate(&frame), Err(DropReason::Fragment));
    }
}

#[test]
fn a_destination_that_need_not_be_the_last_is_told() {
    let routing = |left| (ROUTING, vec![0, 0, 0, left, 0, 0, 0, 0]);
    assert!(!locate(&with_extensions(&[])).unwrap().routed);
    assert!(!locate(&with_extensions(&[routing(0)])).unwrap().routed);
    assert!(locate(&with_extensions(&[routing(1)])).unwrap().routed);
    let (mut frame, start) = build(Shape { tags: 0, v6: false, tcp: true }, PAYLOAD);
    assert!(!locate(&frame).unwrap().routed);
    frame.splice(start..start, [1; 4]);
    frame[14] += 1;
    frame[16..18].fill(0);
    assert!(locate(&frame).unwrap().routed);
}

#[test]
fn an_extension_that_runs_past_the_packet_is_truncated() {
    let mut frame = with_extensions(&[(DESTINATION, vec![0; 8])]);
    frame[54 + 1] = 255;
    assert_eq!(locate(&frame), Err(DropReason::Truncated));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = locate(&bytes);
    }

    /// Whole frames with a few bytes changed get further than noise does.
    #[test]
    fn damaged_frames_never_panic_and_stay_within_bounds(
        n in 0usize..12,
        changes in proptest::collection::vec((0usize..120, any::<u8>()), 0..6),
        cut in 0usize..140,
    ) {
        let (mut frame, _) = build(shapes().nth(n).unwrap(), PAYLOAD);
        let length = frame.len();
        for (at, value) in changes {
            frame[at % length] = value;
        }
        frame.truncate(cut);
        if let Ok(found) = locate(&frame) {
            prop_assert!(found.ip < found.start && found.start < found.header_end);
            prop_assert!(found.header_end <= found.end && found.end <= frame.len());
            prop_assert!(found.checksum_at() + 2 <= found.end);
        }
    }
}
