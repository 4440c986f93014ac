//! Options of segments: timestamps, and ranges in acknowledgements.
//!
//! smoltcp (0.14) can send timestamps itself. But then its congestion window counts segments that
//! are longer than those it sends, so that each window ends with a segment of a few bytes. So the
//! device adds the timestamps, and smoltcp is told that the other end accepts shorter segments.

use crate::blocks::{NAMED_MAX, Named, Range};
use grantway_netif::headers::{Family, Headers};
use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpPacket};

const END: u8 = 0;
const NOTHING: u8 = 1;
const SELECTIVE_PERMITTED: u8 = 4;
const SELECTIVE: u8 = 5;
const TIMES: u8 = 8;

/// Bytes of the timestamps option, with two bytes that align it.
pub(crate) const TIMES_LEN: usize = 12;
/// Bytes of the option for ranges without a range, with two bytes that align it.
const SELECTIVE_LEN: usize = 4;
/// Length of a TCP header without options.
const HEADER: usize = 20;
/// Most bytes of options.
pub(crate) const OPTIONS_MAX: usize = 40;

/// Timestamps of a segment (RFC 7323): its own, and the one that it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub own: u32,
    pub answered: u32,
}

/// Options of a segment beyond smoltcp's own.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Additions {
    pub times: Option<Times>,
    /// Ranges, for an acknowledgement without payload.
    pub named: Option<Named>,
}

impl Additions {
    /// Returns true if there is no option to add.
    pub fn is_empty(&self) -> bool {
        self.times.is_none() && self.named.is_none()
    }
}

/// Returns the bytes of an option, without its kind and length.
fn find(options: &[u8], kind: u8) -> Option<&[u8]> {
    let mut rest = options;
    loop {
        rest = match *rest {
            [] | [END, ..] => return None,
            [NOTHING, ..] => &rest[1..],
            [found, len, ..] if len >= 2 => {
                let option = rest.get(..usize::from(len))?;
                if found == kind {
                    return Some(&option[2..]);
                }
                &rest[option.len()..]
            }
            _ => return None,
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns true if the options of a SYN permit ranges in acknowledgements.
pub(crate) fn permits_ranges(options: &[u8]) -> bool {
    find(options, SELECTIVE_PERMITTED).is_some()
}

/// Returns the first range that an acknowledgement names.
pub(crate) fn first_range(options: &[u8]) -> Option<Range> {
    if options.is_empty() {
        return None;
    }
    let ranges = find(options, SELECTIVE)?;
    Some((number(ranges, 0)?, number(ranges, 4)?))
}

/// Returns the timestamps of a segment.
pub(crate) fn times(options: &[u8]) -> Option<Times> {
    let times = match options {
        // Linux writes times that stand alone in this way.
        [NOTHING, NOTHING, TIMES, 10, times @ ..] if times.len() == 8 => times,
        _ => find(options, TIMES).filter(|times| times.len() == 8)?,
    };
    Some(Times { own: number(times, 0)?, answered: number(times, 4)? })
}

/// Adds options to a frame of smoltcp, which begins [`OPTIONS_MAX`] bytes behind the start of
/// `room`. `found` has its headers, and is changed. Returns the new start of the frame.
pub(crate) fn add(room: &mut [u8], found: &mut Headers, additions: &Additions) -> usize {
    let Additions { times, named } = additions;
    let fixed = OPTIONS_MAX + found.start + HEADER;
    let own = OPTIONS_MAX + found.header_end - fixed;
    let mut options = [NOTHING; OPTIONS_MAX];
    let mut len = 0;
    if let Some(Times { own, answered }) = times {
        options[2..4].copy_from_slice(&[TIMES, 10]);
        options[4..8].copy_from_slice(&own.to_be_bytes());
        options[8..TIMES_LEN].copy_from_slice(&answered.to_be_bytes());
        len = TIMES_LEN;
    }
    if let Some(named) = named {
        let most = (OPTIONS_MAX - len - SELECTIVE_LEN) / 8;
        let ranges = &named.ranges()[..named.ranges().len().min(most)];
        options[len + 2..len + 4].copy_from_slice(&[SELECTIVE, 2 + 8 * ranges.len() as u8]);
        len += SELECTIVE_LEN;
        for &(left, right) in ranges {
            options[len..len + 4].copy_from_slice(&left.to_be_bytes());
            options[len + 4..len + 8].copy_from_slice(&right.to_be_bytes());
            len += 8;
        }
    } else if own > 0 {
        // Those of a SYN, of 20 bytes at most.
        let kept = own.min(OPTIONS_MAX - len);
        options[len..len + kept].copy_from_slice(&room[fixed..fixed + kept]);
        len += kept;
    }
    // The header moves, and what is behind it stays where it is.
    let begins = OPTIONS_MAX + own - len;
    room.copy_within(OPTIONS_MAX..fixed, begins);
    let start = begins + found.start;
    let behind = start + HEADER + len;
    room[start + HEADER..behind].copy_from_slice(&options[..len]);
    TcpPacket::new_unchecked(&mut room[start..behind]).set_header_len((HEADER + len) as u8);
    found.header_end = found.start + HEADER + len;
    found.end = found.end + len - own;
    // smoltcp makes no frame that is longer than 65,535 bytes with options.
    let bytes = found.end - found.ip;
    let packet = &mut room[begins + found.ip..behind];
    match found.family {
        Family::V4 => {
            let mut packet = Ipv4Packet::new_unchecked(packet);
            packet.set_total_len(bytes as u16);
            packet.fill_checksum();
        }
        Family::V6 => {
            Ipv6Packet::new_unchecked(packet).set_payload_len((bytes - 40) as u16);
        }
    }
    begins
}

const _: () = assert!(SELECTIVE_LEN + 8 * NAMED_MAX <= OPTIONS_MAX);
