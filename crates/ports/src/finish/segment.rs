//! Segmentation: a large TCP or UDP frame is cut into frames for a wire.

use etherparse::checksum::Sum16BitWords;
use grantway_netif::headers::{self, Family, Headers, Ipv6, Protocol, tcp_flags};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};

use super::checksum::{PseudoHeader, finish_at};
use crate::frame::{DropReason, FrameMeta};

/// Length of the largest IP packet that is cut, in bytes.
pub const MAX_PACKET: usize = 65_535;

/// Most segments of one frame: the largest packet, cut after each 8 bytes. Linux's smallest segment
/// has 48 bytes, of which the most options (40 bytes) leave 8. A guest that asks for shorter
/// segments only wants to cause work.
pub const MAX_SEGMENTS: usize = MAX_PACKET / 8;

/// State of the segments' TCP or UDP checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentChecksum {
    /// The checksums are finished.
    Whole,
    /// The checksums have only the sum of the pseudo-header, for a peer that accepts unfinished
    /// checksums.
    Partial,
}

/// The segments of one frame, each written into the caller's buffer.
///
/// Segments follow Linux's `tcp_gso_segment` and `__udp_gso_segment`:
///
/// - All headers are repeated. Each segment has its own lengths, sequence number and checksums.
/// - IPv4's identification counts up by one per segment, even if the packet must not be fragmented.
/// - A segment of UDP is a datagram of its own.
/// - Of TCP only the last segment has FIN and PSH, and only the first has CWR. All have every other
///   flag.
#[derive(Debug, Clone)]
pub struct Segments<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
    found: Headers,
    pseudo_header: PseudoHeader,
    size: usize,
    checksum: SegmentChecksum,
    count: usize,
    next: usize,
}

impl<'a> Segments<'a> {
    /// Reads the headers of `frame`. Padding behind the IP packet is left out. A frame that fits
    /// into one segment makes one.
    ///
    /// # Errors
    /// The headers were not found, or do not fit `gso`. Or the packet is longer than
    /// [`MAX_PACKET`], or makes more than [`MAX_SEGMENTS`] segments.
    pub fn new(frame: &'a [u8], gso: Gso, checksum: SegmentChecksum) -> Result<Self, DropReason> {
        let found = headers::read(frame, frame.len())?;
        check_gso(gso, &found)?;
        if found.end - found.ip > MAX_PACKET {
            return Err(DropReason::TooLong);
        }
        let (headers, payload) = frame[..found.end].split_at(found.header_end);
        let size = usize::from(gso.size);
        let count = payload.len().div_ceil(size).max(1);
        if count > MAX_SEGMENTS {
            return Err(DropReason::GsoTooMany);
        }
        let pseudo_header = PseudoHeader::of(frame, &found);
        Ok(Self { headers, payload, found, pseudo_header, size, checksum, count, next: 0 })
    }

    /// Returns the number of all segments; at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of segments that are not written yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.count - self.next
    }

    /// Returns the length of the next segment in bytes, with its headers, or `None` after the last
    /// one.
    #[must_use]
    pub fn next_len(&self) -> Option<usize> {
        let left = self.payload.len().saturating_sub(self.next * self.size);
        (self.next < self.count).then(|| self.headers.len() + left.min(self.size))
    }

    /// Returns the length of the longest segment in bytes, with its headers. A buffer must have
    /// this length.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.headers.len() + self.size.min(self.payload.len())
    }

    /// Writes the next segment to the start of `buf`. Returns its length and state, or `None` after
    /// the last one.
    ///
    /// # Errors
    /// [`DropReason::TooLong`]: the segment does not fit into `buf`. It stays the next one, for a
    /// buffer of [`longest`](Self::longest) bytes.
    pub fn next_into(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, DropReason> {
        let number = self.next;
        if number == self.count {
            return Ok(None);
        }
        let first = number * self.size;
        let last = (first + self.size).min(self.payload.len());
        let payload = &self.payload[first..last];
        let len = self.headers.len() + payload.len();
        let out = buf.get_mut(..len).ok_or(DropReason::TooLong)?;
        let (headers, rest) = out.split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        rest.copy_from_slice(payload);
        self.ip(headers, len);
        match self.found.protocol {
            Protocol::Tcp => self.tcp(headers, first as u32, len),
            Protocol::Udp => self.udp(headers, len),
        }
        let checksum = match self.checksum {
            SegmentChecksum::Partial => Checksum::Partial,
            SegmentChecksum::Whole => {
                finish_at(out, self.found.start, self.found.protocol.checksum_offset())?;
                Checksum::Complete
            }
        };
        self.next += 1;
        Ok(Some(FrameMeta { len, offload: Offload { checksum, gso: None } }))
    }

    /// Writes the IP header of the next segment, in a frame of `len` bytes.
    fn ip(&self, headers: &mut [u8], len: usize) {
        let header = &mut headers[self.found.ip..];
        let total = len - self.found.ip;
        match self.found.family {
            Family::V4 => {
                // The total is at most MAX_PACKET, since no segment is longer than the whole.
                header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
                let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(self.next as u16);
                header[4..6].copy_from_slice(&id.to_be_bytes());
                header[10..12].fill(0);
                let words = 4 * usize::from(header[0] & 0x0f);
                let sum = Sum16BitWords::new().add_slice(&header[..words]);
                header[10..12].copy_from_slice(&sum.ones_complement().to_ne_bytes());
            }
            Family::V6 => {
                header[4..6].copy_from_slice(&((total - Ipv6::BYTES) as u16).to_be_bytes())
            }
        }
    }

    /// Writes the TCP header of the next segment, with an unfinished checksum.
    fn tcp(&self, headers: &mut [u8], first: u32, len: usize) {
        let header = &mut headers[self.found.start..];
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        header[4..8].copy_from_slice(&sequence.wrapping_add(first).to_be_bytes());
        if self.next > 0 {
            header[13] &= !tcp_flags::CWR;
        }
        if self.next + 1 < self.count {
            header[13] &= !(tcp_flags::FIN | tcp_flags::PSH);
        }
        let unfinished = self.pseudo_header.unfinished(len - self.found.start);
        header[16..18].copy_from_slice(&unfinished);
    }

    /// Writes the UDP header of the next segment, with an unfinished checksum.
    fn udp(&self, headers: &mut [u8], len: usize) {
        let header = &mut headers[self.found.start..];
        let length = len - self.found.start;
        // At most MAX_PACKET, since no segment is longer than the whole.
        header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        header[6..8].copy_from_slice(&self.pseudo_header.unfinished(length));
    }
}

/// Checks that the headers are those that the segmentation `gso` is for.
///
/// # Errors
/// The frame is of another transport protocol or of the other IP version, or the segment size is 0.
pub(crate) fn check_gso(gso: Gso, found: &Headers) -> Result<(), DropReason> {
    let (protocol, family) = match gso.kind {
        GsoKind::Tcpv4 => (Protocol::Tcp, Family::V4),
        GsoKind::Tcpv6 => (Protocol::Tcp, Family::V6),
        GsoKind::Udp => (Protocol::Udp, found.family),
    };
    if found.protocol != protocol {
        return Err(match protocol {
            Protocol::Tcp => DropReason::GsoNotTcp,
            Protocol::Udp => DropReason::GsoNotUdp,
        });
    }
    if found.family != family {
        return Err(DropReason::GsoWrongFamily);
    }
    if gso.size == 0 {
        return Err(DropReason::GsoZeroSize);
    }
    Ok(())
}
