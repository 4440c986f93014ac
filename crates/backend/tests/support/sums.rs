//! A receiver that checks every sum, and UDP frames whose checksum is left blank.

use super::tcp::sum;

/// Bytes of an IPv4 header without options, and of an IPv6 header.
const IPV4: usize = 20;
const IPV6: usize = 40;

/// A UDP frame over IPv4 or IPv6 whose checksum holds the pseudo-header's sum only.
pub fn udp(v6: bool, to: [u8; 6], from: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut frame = [to, from].concat();
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend([[0xfd; 16], [0xfe; 16]].concat());
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((IPV4 as u16 + length).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let header = !sum(&frame[14..]);
        frame[24..26].copy_from_slice(&header.to_be_bytes());
    }
    frame.extend([4000u16, 5000, length].map(u16::to_be_bytes).concat());
    let blank = sum(&pseudo_header(&frame, length.into()));
    frame.extend(blank.to_be_bytes());
    frame.extend(payload);
    frame
}

fn is_v6(frame: &[u8]) -> bool {
    match &frame[12..14] {
        [8, 0] => false,
        [0x86, 0xdd] => true,
        other => panic!("type {other:x?}"),
    }
}

fn pseudo_header(frame: &[u8], length: usize) -> Vec<u8> {
    let (addresses, protocol) = match is_v6(frame) {
        true => (&frame[22..54], frame[20]),
        false => (&frame[26..34], frame[23]),
    };
    let length = (length as u32).to_be_bytes();
    [addresses, &length, &[0, 0, 0, protocol]].concat()
}

/// Returns true if the checksum of a TCP or UDP frame is complete, and so is IPv4's.
pub fn is_whole(frame: &[u8]) -> bool {
    let start = 14 + if is_v6(frame) { IPV6 } else { IPV4 };
    let header = is_v6(frame) || sum(&frame[14..start]) == 0xffff;
    let pseudo = pseudo_header(frame, frame.len() - start);
    header && sum(&[&pseudo, &frame[start..]].concat()) == 0xffff
}

#[test]
fn a_blank_checksum_is_not_whole() {
    for v6 in [false, true] {
        let mut frame = udp(v6, [2; 6], [4; 6], b"some bytes");
        assert!(!is_whole(&frame));
        let start = frame.len() - 18;
        let pseudo = pseudo_header(&frame, 18);
        frame[start + 6..start + 8].fill(0);
        let whole = !sum(&[&pseudo, &frame[start..]].concat());
        frame[start + 6..start + 8].copy_from_slice(&whole.to_be_bytes());
        assert!(is_whole(&frame));
    }
}
