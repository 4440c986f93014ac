//! Transport checksums that a sender left unfinished.

use etherparse::checksum::Sum16BitWords;

use crate::frame::DropReason;
use grantway_netif::headers::{self, Family, Headers};

/// Sum over a pseudo-header, without its length.
///
/// The sum is calculated anew, since a frontend that asks for segmentation may have left anything
/// in the checksum field. The field is believed only if the IP header need not hold the last
/// destination.
#[derive(Debug, Clone)]
pub(super) struct PseudoHeader(Sum16BitWords);

impl PseudoHeader {
    /// Returns the sum for a frame whose headers were found.
    pub(super) fn of(frame: &[u8], found: &Headers) -> Self {
        if found.routed {
            let at = found.checksum_at();
            // In one's complement arithmetic the complement is the negative.
            let length = (found.end - found.start) as u32;
            let mut field = Sum16BitWords::new().add_slice(&frame[at..at + 2]);
            return Self(field.add_4bytes((!length).to_be_bytes()));
        }
        let addresses = match found.family {
            Family::V4 => found.ip + 12..found.ip + 20,
            Family::V6 => found.ip + 8..found.ip + 40,
        };
        let number = found.protocol.number();
        Self(Sum16BitWords::new().add_slice(&frame[addresses]).add_2bytes([0, number]))
    }

    /// Returns the value of an unfinished checksum field, for `length` bytes of transport header
    /// and payload.
    pub(super) fn unfinished(&self, length: usize) -> [u8; 2] {
        let sum = self.0.clone().add_4bytes((length as u32).to_be_bytes());
        // etherparse sums native words, so its result is in memory order.
        (!sum.ones_complement()).to_ne_bytes()
    }
}

/// Finishes the checksum of TCP or UDP in place, over IPv4 or IPv6, behind all headers that
/// [`headers::read`] knows. Padding behind the IP packet is not summed.
///
/// # Errors
/// The headers were not found. The frame is unchanged.
pub fn finish_checksum(frame: &mut [u8]) -> Result<(), DropReason> {
    let found = begin_checksum(frame)?;
    finish_at(&mut frame[..found.end], found.start, found.protocol.checksum_offset())
}

/// Writes the value of an unfinished checksum of TCP or UDP: the pseudo-header's sum. The checksum
/// can be finished later. Returns the headers that were found.
///
/// # Errors
/// The errors of [`finish_checksum`].
pub fn begin_checksum(frame: &mut [u8]) -> Result<Headers, DropReason> {
    let found = headers::read(frame, frame.len())?;
    begin_checksum_at(frame, &found);
    Ok(found)
}

/// Writes the value of an unfinished checksum, as [`begin_checksum`] does, of a frame whose headers were
/// found.
///
/// # Panics
/// The headers are not those of the frame, and lie beyond its end.
pub fn begin_checksum_at(frame: &mut [u8], found: &Headers) {
    let unfinished = PseudoHeader::of(frame, found).unfinished(found.end - found.start);
    let at = found.checksum_at();
    frame[at..at + 2].copy_from_slice(&unfinished);
}

/// Sums `packet` from `start` to its end, and writes the complement `offset` bytes after `start`. A
/// sum of 0 is written as 0xffff, as the kernel's `skb_checksum_help` does; this makes a difference
/// only for UDP.
///
/// # Errors
/// The field does not lie within the packet.
pub(crate) fn finish_at(packet: &mut [u8], start: usize, offset: usize) -> Result<(), DropReason> {
    let field = start + offset;
    if field + 2 > packet.len() {
        return Err(DropReason::Truncated);
    }
    let sum = Sum16BitWords::new().add_slice(&packet[start..]);
    let value = sum.to_ones_complement_with_no_zero().to_ne_bytes();
    packet[field..field + 2].copy_from_slice(&value);
    Ok(())
}
