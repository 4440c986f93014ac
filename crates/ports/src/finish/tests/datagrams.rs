//! Datagrams of a large frame against rules that are written down once more, plainly.

use grantway_netif::{Gso, GsoKind};
use proptest::prelude::*;

use super::frames::{Shape, plain_sum, shapes};
use super::segments::cut;
use crate::finish::{MAX_PACKET, MAX_SEGMENTS, SegmentChecksum, Segments};
use crate::port::DropReason;

fn gso(size: u16) -> Gso {
    Gso { kind: GsoKind::Udp, size }
}

fn number(frame: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]))
}

fn check(shape: &Shape, payload: &[u8], size: u16, checksum: SegmentChecksum) {
    let mut frame = shape.frame(payload);
    // Padding belongs to the wire that the frame came from.
    frame.extend_from_slice(&[0xdd; 5]);
    let datagrams = cut(&frame, gso(size), checksum);
    let (ip, udp) = (shape.ip(), shape.transport());
    let parts: Vec<_> = payload.chunks(size.into()).collect();
    assert_eq!(datagrams.len(), parts.len().max(1));
    for (n, datagram) in datagrams.iter().enumerate() {
        let part = parts.get(n).copied().unwrap_or_default();
        // It is the frame that its sender would have sent by itself.
        let id = shape.id.wrapping_add(n as u16);
        let mut alone = Shape { id, ..shape.clone() }.frame(part);
        if checksum == SegmentChecksum::Whole {
            shape.check_sum(datagram);
            alone[udp + 6..udp + 8].copy_from_slice(&datagram[udp + 6..udp + 8]);
        }
        assert!(alone == *datagram, "datagram {n} of {shape:?}");
        assert_eq!(number(datagram, udp + 4), 8 + part.len());
        if !shape.v6 {
            assert_eq!(plain_sum(&datagram[ip..udp]), 0xffff, "the header's checksum");
        }
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
}

const BOTH: [SegmentChecksum; 2] = [SegmentChecksum::Whole, SegmentChecksum::Partial];

#[test]
fn sizes_around_every_edge() {
    for v6 in [false, true] {
        let shape = Shape { v6, tcp: false, id: 0xfffe, ..Shape::default() };
        let longest = MAX_PACKET - (shape.payload() - shape.ip());
        for (length, size) in
            [(0, 1), (1, 1), (64, 1), (999, 1000), (1000, 1000), (1001, 1000), (longest, 1472)]
        {
            for checksum in BOTH {
                check(&shape, &bytes(length), size, checksum);
            }
        }
    }
}

#[test]
fn each_refusal_has_its_reason() {
    let refused = |shape: &Shape, length, gso| {
        let frame = shape.frame(&bytes(length));
        Segments::new(&frame, gso, SegmentChecksum::Whole).unwrap_err()
    };
    for v6 in [false, true] {
        let udp = Shape { v6, tcp: false, ..Shape::default() };
        let tcp = Shape { v6, ..Shape::default() };
        assert_eq!(refused(&tcp, 3000, gso(1000)), DropReason::GsoNotUdp);
        assert_eq!(refused(&udp, 3000, gso(0)), DropReason::GsoZeroSize);
        assert_eq!(refused(&udp, MAX_SEGMENTS + 1, gso(1)), DropReason::GsoTooMany);
    }
}

proptest! {
    #[test]
    fn datagrams_make_up_the_whole(
        shape in shapes(),
        length in 0usize..6000,
        size in 1u16..3000,
        checksum in prop_oneof![Just(BOTH[0]), Just(BOTH[1])],
    ) {
        check(&Shape { tcp: false, ..shape }, &bytes(length), size, checksum);
    }
}
