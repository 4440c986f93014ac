//! Target: frames that are finished in software, with headers from a guest.

use super::Bytes;
use grantway_netif::headers::{self, Family, Headers, Protocol};
use grantway_netif::{Checksum, Gso, GsoKind};
use grantway_ports::DropReason;
use grantway_ports::finish::{
    MAX_PACKET, MAX_SEGMENTS, SegmentChecksum, Segments, finish_checksum,
};

pub(super) fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (what, size, behind) = (bytes.u8(), bytes.u16(), usize::from(bytes.u16()));
    // The input has the headers. As many bytes as it says follow them.
    let mut frame = bytes.0.to_vec();
    frame.extend((0..behind).map(|n| n as u8));
    let located = headers::read(&frame, frame.len());
    let mut finished = frame.clone();
    assert_eq!(finish_checksum(&mut finished), located.map(drop).map_err(DropReason::from));
    let Ok(found) = located else {
        return assert_eq!(finished, frame);
    };
    assert!(found.ip >= 14 && found.ip + 20 <= found.start && found.start + 8 <= found.header_end);
    assert!(found.header_end <= found.end && found.end <= frame.len());
    let field = found.checksum_at();
    assert!(field + 2 <= found.header_end);
    match found.routed {
        // The sum that the sender left is believed.
        true => {
            let rest = 0xffff - u32::from(value(&finished, field));
            assert_eq!(plain_sum(&frame[found.start..found.end]) % 0xffff, rest % 0xffff);
        }
        false => assert!(sums_up(&finished[..found.end], &found)),
    }
    finished[field..field + 2].copy_from_slice(&frame[field..field + 2]);
    assert_eq!(finished, frame);

    let kind = match what & 5 {
        0 => GsoKind::Tcpv4,
        1 => GsoKind::Tcpv6,
        _ => GsoKind::Udp,
    };
    let checksum = if what & 2 == 0 { SegmentChecksum::Whole } else { SegmentChecksum::Partial };
    cut(&frame, &found, Gso { kind, size }, checksum);
}

/// Checks every segment of a frame against the frame.
fn cut(frame: &[u8], found: &Headers, gso: Gso, checksum: SegmentChecksum) {
    let Ok(mut segments) = Segments::new(frame, gso, checksum) else { return };
    assert!(found.end - found.ip <= MAX_PACKET);
    assert_eq!(found.protocol == Protocol::Udp, gso.kind == GsoKind::Udp);
    let is_tcp = found.protocol == Protocol::Tcp;
    assert!(!is_tcp || (found.family == Family::V6) == (gso.kind == GsoKind::Tcpv6));
    let count = segments.count();
    assert!((1..=MAX_SEGMENTS).contains(&count));
    let mut buf = vec![0; segments.longest()];
    let mut payload = &frame[found.header_end..found.end];
    let mut number = 0;
    while let Some(meta) = segments.next_into(&mut buf).expect("room for the longest") {
        // The payload is the next part of the whole.
        let segment = &buf[..meta.len];
        let (header, part) = segment.split_at(found.header_end);
        let (expected, rest) = payload.split_at(part.len());
        assert_eq!(part, expected);
        payload = rest;
        number += 1;
        assert!(part.len() == usize::from(gso.size) || number == count);
        // The headers are found at the same places as in the whole.
        let again = headers::read(segment, segment.len()).expect("a segment has headers");
        let cwr = found.cwr && number == 1;
        assert_eq!(again, Headers { end: meta.len, cwr, ..*found });
        if found.family == Family::V4 {
            let words = usize::from(header[found.ip] & 15);
            assert_eq!(plain_sum(&header[found.ip..][..4 * words]), 0xffff);
        }
        // The checksum is finished, or prepared for a driver.
        assert_eq!(meta.offload.gso, None);
        match meta.offload.checksum {
            Checksum::Complete => assert!(found.routed || sums_up(segment, &again)),
            unfinished => {
                assert_eq!(unfinished, Checksum::Partial);
                // A driver leaves a sum without the segment itself.
                let field = u32::from(value(segment, found.checksum_at()));
                assert!(found.routed || field % 0xffff == outer_sum(segment, &again) % 0xffff);
            }
        }
        // Identification, sequence and flags are those of this segment, or the length.
        if found.family == Family::V4 {
            let id = value(frame, found.ip + 4).wrapping_add(number as u16 - 1);
            assert_eq!(value(header, found.ip + 4), id);
        }
        if !is_tcp {
            assert_eq!(usize::from(value(header, found.start + 4)), 8 + part.len());
            continue;
        }
        let sent = frame.len().min(found.end) - found.header_end - payload.len() - part.len();
        let sequence = word(frame, found.start + 4).wrapping_add(sent as u32);
        assert_eq!(word(header, found.start + 4), sequence);
        let last = header[found.start + 13] & 0x09;
        assert_eq!(last, if number == count { frame[found.start + 13] & 0x09 } else { 0 });
    }
    assert!(number == count && payload.is_empty());
}

/// Returns true if a packet's transport checksum is right.
fn sums_up(packet: &[u8], found: &Headers) -> bool {
    folded(u64::from(outer_sum(packet, found) + plain_sum(&packet[found.start..]))) == 0xffff
}

/// Returns the sum over all that a transport checksum covers besides the packet's own bytes.
fn outer_sum(packet: &[u8], found: &Headers) -> u32 {
    let addresses = match found.family {
        Family::V4 => &packet[found.ip + 12..found.ip + 20],
        Family::V6 => &packet[found.ip + 8..found.ip + 40],
    };
    let length = (packet.len() - found.start) as u32;
    let parts = [addresses, &length.to_be_bytes(), &[0, found.protocol.number()]];
    parts.into_iter().map(plain_sum).fold(0, |all, part| folded(u64::from(all + part)))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(value(bytes, at)) << 16 | u32::from(value(bytes, at + 2))
}

fn value(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the one's complement sum of 16-bit words.
fn plain_sum(bytes: &[u8]) -> u32 {
    let word = |two: &[u8]| u64::from(two[0]) << 8 | two.get(1).map_or(0, |&low| u64::from(low));
    folded(bytes.chunks(2).map(word).sum())
}

fn folded(mut sum: u64) -> u32 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u32
}
