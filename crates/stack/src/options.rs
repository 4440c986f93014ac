//! Options of segments that smoltcp made: times, and what an acknowledgement names.

use crate::blocks::{NAMED_MAX, Named, Range};
use grantway_netif::headers::{Family, Headers};
use smoltcp::time::Instant;
use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpPacket};

const END: u8 = 0;
const NOTHING: u8 = 1;
const SELECTIVE_PERMITTED: u8 = 4;
const SELECTIVE: u8 = 5;
const TIMES: u8 = 8;

/// Bytes of the option of times, with two that align it.
pub(crate) const TIMES_LEN: usize = 12;
/// Bytes of the option that names ranges, with two that align it and no range.
const SELECTIVE_LEN: usize = 4;
/// Most bytes of a frame by which [`name`] makes it longer.
pub(crate) const LONGER: usize = SELECTIVE_LEN + 8 * NAMED_MAX;
/// Length of a TCP header without options.
const HEADER: usize = 20;

/// Finds an option of a header of TCP. Returns the offset of its bytes behind kind and length, and their
/// number.
fn find(options: &[u8], kind: u8) -> Option<(usize, usize)> {
    let mut at = 0;
    loop {
        match (*options.get(at)?, options.get(at + 1)) {
            (END, _) => return None,
            (NOTHING, _) => at += 1,
            (found, Some(&len)) if len >= 2 && at + usize::from(len) <= options.len() => {
                if found == kind {
                    return Some((at + 2, usize::from(len) - 2));
                }
                at += usize::from(len);
            }
            _ => return None,
        }
    }
}

/// Returns true if the options of a SYN say that its sender understands ranges.
pub(crate) fn permits_ranges(options: &[u8]) -> bool {
    find(options, SELECTIVE_PERMITTED).is_some()
}

/// Returns the time as segments say it: in milliseconds (RFC 7323).
fn stamp(now: Instant) -> [u8; 4] {
    (now.total_millis() as u32).to_be_bytes()
}

/// Writes the time of a segment, if smoltcp left room for it. The option is aligned as Linux does, which
/// reads only that form without a search.
pub(crate) fn stamp_time(frame: &mut [u8], found: &Headers, now: Instant) {
    let Some(options) = frame.get_mut(found.start + HEADER..found.header_end) else { return };
    if let [TIMES, 10, .., END, END] = options
        && options.len() == TIMES_LEN
    {
        options.copy_within(..10, 2);
        options[..2].fill(NOTHING);
    }
    if let Some((at, 8)) = find(options, TIMES) {
        options[at..at + 4].copy_from_slice(&stamp(now));
    }
}

/// Has an acknowledgement without payload name these ranges, as many as there is room for. `frame` has
/// [`LONGER`] bytes of room behind the frame. Returns the length of the frame.
pub(crate) fn name(frame: &mut [u8], found: &Headers, named: &Named) -> usize {
    let mut options = [NOTHING; 40];
    let mut len = 0;
    let own = &frame[found.start + HEADER..found.header_end];
    if let Some((at, 8)) = find(own, TIMES) {
        options[2..4].copy_from_slice(&[TIMES, 10]);
        options[4..TIMES_LEN].copy_from_slice(&own[at..at + 8]);
        len = TIMES_LEN;
    }
    let most = (options.len() - len - SELECTIVE_LEN) / 8;
    let ranges = named.ranges();
    let ranges = &ranges[..ranges.len().min(most)];
    if !ranges.is_empty() {
        options[len + 2..len + 4].copy_from_slice(&[SELECTIVE, 2 + 8 * ranges.len() as u8]);
        len += SELECTIVE_LEN;
        for &(left, right) in ranges {
            options[len..len + 4].copy_from_slice(&left.to_be_bytes());
            options[len + 4..len + 8].copy_from_slice(&right.to_be_bytes());
            len += 8;
        }
    }
    let end = found.start + HEADER + len;
    frame[found.start + HEADER..end].copy_from_slice(&options[..len]);
    TcpPacket::new_unchecked(&mut frame[found.start..end]).set_header_len((HEADER + len) as u8);
    // At most 80 bytes behind the IP header.
    let packet = &mut frame[found.ip..end];
    match found.family {
        Family::V4 => {
            let len = packet.len() as u16;
            let mut packet = Ipv4Packet::new_unchecked(packet);
            packet.set_total_len(len);
            packet.fill_checksum();
        }
        Family::V6 => {
            let payload = (packet.len() - 40) as u16;
            Ipv6Packet::new_unchecked(packet).set_payload_len(payload);
        }
    }
    end
}

/// Returns the first range that an acknowledgement of smoltcp's names.
pub(crate) fn first_range(options: &[u8]) -> Option<Range> {
    let (at, _) = find(options, SELECTIVE).filter(|(_, len)| *len >= 8)?;
    let number = |at: usize| Some(u32::from_be_bytes(*options.get(at..)?.first_chunk()?));
    Some((number(at)?, number(at + 4)?))
}
