//! Segments: all that has to stay stays, and all that changes follows the rules.

use grantway_netif::{Checksum, Gso, GsoKind, headers};
use proptest::prelude::*;

use super::frames::{Shape, plain_sum, shapes};
use crate::{
    finish::{MAX_PACKET, MAX_SEGMENTS, SegmentChecksum, Segments},
    frame::DropReason,
};

fn gso(shape: &Shape, size: u16) -> Gso {
    Gso { kind: if shape.v6 { GsoKind::Tcpv6 } else { GsoKind::Tcpv4 }, size }
}

/// Returns all segments, from a buffer that is filled with other bytes before each.
pub(crate) fn cut(frame: &[u8], gso: Gso, checksum: SegmentChecksum) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(frame, gso, checksum).unwrap();
    let expected = match checksum {
        SegmentChecksum::Whole => Checksum::Complete,
        SegmentChecksum::Partial => Checksum::Partial,
    };
    let (mut out, count) = (Vec::new(), segments.count());
    let mut buf = vec![0xee; segments.longest()];
    let mut next = segments.next_len();
    while let Some(meta) = segments.next_into(&mut buf).unwrap() {
        assert_eq!(next, Some(meta.len));
        next = segments.next_len();
        assert_eq!((meta.offload.checksum, meta.offload.gso), (expected, None));
        out.push(buf[..meta.len].to_vec());
        buf.fill(0xee);
    }
    assert_eq!((segments.next_into(&mut buf), next), (Ok(None), None));
    assert_eq!(out.len(), count);
    assert_eq!(out.iter().map(Vec::len).max(), Some(segments.longest()));
    out
}

fn field<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    frame[at..at + N].try_into().unwrap()
}

/// Returns the headers without the fields in which a segment may differ from the whole.
fn blank(shape: &Shape, header: &[u8]) -> Vec<u8> {
    let mut out = header.to_vec();
    let (ip, tcp) = (shape.ip(), shape.transport());
    if shape.v6 {
        out[ip + 4..ip + 6].fill(0);
    } else {
        out[ip + 2..ip + 6].fill(0);
        out[ip + 10..ip + 12].fill(0);
    }
    out[tcp + 4..tcp + 8].fill(0);
    out[tcp + 13] = 0;
    out[tcp + 16..tcp + 18].fill(0);
    out
}

fn check(shape: &Shape, payload: &[u8], size: u16, checksum: SegmentChecksum) {
    let mut frame = shape.frame(payload);
    // Padding belongs to the wire that the frame came from.
    frame.extend_from_slice(&[0xdd; 5]);
    let segments = cut(&frame, gso(shape, size), checksum);
    let (ip, tcp) = (shape.ip(), shape.transport());
    let size = usize::from(size);
    assert_eq!(segments.len(), payload.len().div_ceil(size).max(1));
    let last = segments.len() - 1;
    let mut joined = Vec::new();
    for (n, segment) in segments.iter().enumerate() {
        let (header, part) = segment.split_at(shape.payload());
        assert!(if n < last { part.len() == size } else { part.len() <= size });
        assert_eq!(blank(shape, header), blank(shape, &frame[..shape.payload()]));
        if shape.v6 {
            let length = u16::from_be_bytes(field(segment, ip + 4));
            assert_eq!(usize::from(length), segment.len() - ip - 40);
        } else {
            let length = u16::from_be_bytes(field(segment, ip + 2));
            assert_eq!(usize::from(length), segment.len() - ip);
            let id = u16::from_be_bytes(field(segment, ip + 4));
            assert_eq!(id, shape.id.wrapping_add(n as u16), "one more a segment");
            assert_eq!(plain_sum(&segment[ip..tcp]), 0xffff, "the header's checksum");
        }
        let sequence = u32::from_be_bytes(field(segment, tcp + 4));
        assert_eq!(sequence, shape.sequence.wrapping_add(joined.len() as u32));
        let mut flags = shape.flags;
        if n > 0 {
            flags &= 0x7f;
        }
        if n < last {
            flags &= 0xf6;
        }
        assert_eq!(segment[tcp + 13], flags);
        match checksum {
            SegmentChecksum::Whole => shape.check_sum(segment),
            SegmentChecksum::Partial => {
                let sum = plain_sum(&shape.pseudo_header(segment, segment.len() - tcp));
                assert_eq!(u16::from_be_bytes(field(segment, tcp + 16)), sum);
            }
        }
        joined.extend_from_slice(part);
    }
    assert_eq!(joined, payload);
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
}

const BOTH: [SegmentChecksum; 2] = [SegmentChecksum::Whole, SegmentChecksum::Partial];

#[test]
fn sizes_around_every_edge() {
    for v6 in [false, true] {
        let shape = Shape { v6, flags: 0xff, sequence: u32::MAX - 3000, ..Shape::default() };
        let longest = MAX_PACKET - (shape.payload() - shape.ip());
        for (length, size) in [
            (0, 1),
            (1, 1),
            (1, u16::MAX),
            (999, 1000),
            (1000, 1000),
            (1001, 1000),
            (longest, 1448),
            (longest, u16::MAX),
            (MAX_SEGMENTS, 1),
            (longest, 8),
        ] {
            for checksum in BOTH {
                check(&shape, &bytes(length), size, checksum);
            }
        }
    }
}

#[test]
fn a_last_destination_elsewhere_is_kept_in_every_sum() {
    let routing = (43, [vec![0, 2, 0, 1, 0, 0, 0, 0], vec![9; 16]].concat());
    let last = Some([9; 16]);
    let v6 = Shape { v6: true, extensions: vec![routing], last, ..Shape::default() };
    let v4 = Shape { ip_options: 2, last, ..Shape::default() };
    for shape in [v4, v6] {
        for checksum in BOTH {
            check(&shape, &bytes(5000), 700, checksum);
        }
    }
}

#[test]
fn lengths_left_to_the_segmenting_side_are_filled_in() {
    for v6 in [false, true] {
        let shape = Shape { v6, ..Shape::default() };
        let mut frame = shape.frame(&bytes(4000));
        let expected = cut(&frame, gso(&shape, 1000), SegmentChecksum::Whole);
        let at = shape.ip() + if v6 { 4 } else { 2 };
        frame[at..at + 2].fill(0);
        assert_eq!(cut(&frame, gso(&shape, 1000), SegmentChecksum::Whole), expected);
    }
}

#[test]
fn each_refusal_has_its_reason() {
    let refused = |shape: &Shape, length, gso| {
        let frame = shape.frame(&bytes(length));
        Segments::new(&frame, gso, SegmentChecksum::Whole).unwrap_err()
    };
    let (v4, v6) = (Shape::default(), Shape { v6: true, ..Shape::default() });
    let udp = Shape { tcp: false, ..Shape::default() };
    assert_eq!(refused(&udp, 3000, gso(&udp, 1000)), DropReason::GsoNotTcp);
    assert_eq!(refused(&v4, 3000, gso(&v6, 1000)), DropReason::GsoWrongFamily);
    assert_eq!(refused(&v6, 3000, gso(&v4, 1000)), DropReason::GsoWrongFamily);
    assert_eq!(refused(&v4, 3000, gso(&v4, 0)), DropReason::GsoZeroSize);
    assert_eq!(refused(&v4, MAX_SEGMENTS + 1, gso(&v4, 1)), DropReason::GsoTooMany);
    // The packet claims no length, and is longer than any packet.
    let mut long = v4.frame(&bytes(100));
    long[16..18].fill(0);
    long.resize(14 + MAX_PACKET + 1, 0);
    let cut = Segments::new(&long, gso(&v4, 1000), SegmentChecksum::Whole);
    assert_eq!(cut.unwrap_err(), DropReason::TooLong);
    long.truncate(14 + MAX_PACKET);
    assert!(Segments::new(&long, gso(&v4, 1000), SegmentChecksum::Whole).is_ok());
}

#[test]
fn a_short_buffer_costs_no_segment() {
    let shape = Shape::default();
    let frame = shape.frame(&bytes(3000));
    let mut segments = Segments::new(&frame, gso(&shape, 1000), SegmentChecksum::Whole).unwrap();
    let mut buf = vec![0; segments.longest()];
    for expected in cut(&frame, gso(&shape, 1000), SegmentChecksum::Whole) {
        let short = buf.len() - 1;
        assert_eq!(segments.next_into(&mut buf[..short]), Err(DropReason::TooLong));
        let meta = segments.next_into(&mut buf).unwrap().unwrap();
        assert_eq!(buf[..meta.len], expected);
    }
}

proptest! {
    #[test]
    fn segments_make_up_the_whole(
        shape in shapes(),
        length in prop_oneof![8 => 0usize..6000, 1 => 6000usize..65_000],
        size in 1u16..9000,
        checksum in prop_oneof![Just(BOTH[0]), Just(BOTH[1])],
    ) {
        let longest = MAX_PACKET - (shape.payload() - shape.ip());
        check(&shape, &bytes(length.min(longest)), size.max((length / MAX_SEGMENTS + 1) as u16), checksum);
    }

    /// Frames with some bytes changed give segments of the headers that are now there, or a reason,
    /// and never a panic.
    #[test]
    fn damaged_headers_never_panic(
        shape in shapes(),
        changes in proptest::collection::vec((0usize..160, any::<u8>()), 0..6),
        length in 0usize..600,
        cut in 0usize..800,
        size in 0u16..400,
        v6 in any::<bool>(),
    ) {
        let mut frame = shape.frame(&bytes(length));
        let end = frame.len();
        for (at, value) in changes {
            frame[at % end] = value;
        }
        frame.truncate(cut.max(14));
        let kind = if v6 { GsoKind::Tcpv6 } else { GsoKind::Tcpv4 };
        let Ok(mut segments) = Segments::new(&frame, Gso { kind, size }, SegmentChecksum::Whole)
        else {
            return Ok(());
        };
        let found = headers::read(&frame, frame.len()).unwrap();
        let mut buf = vec![0; segments.longest()];
        let (mut count, mut payload) = (0, 0);
        while let Some(meta) = segments.next_into(&mut buf).unwrap() {
            prop_assert!(meta.len <= buf.len());
            payload += meta.len - found.header_end;
            count += 1;
        }
        prop_assert_eq!(payload, found.end - found.header_end);
        prop_assert_eq!(count, segments.count());
    }
}
