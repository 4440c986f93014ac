//! Where the transport header of a frame is.
//!
//! The frame may come from a hostile guest: every read is bounded by the
//! slice, every chain by a constant, and what does not fit is a
//! [`DropReason`], never a panic.

use grantway_netif::headers::{Payload, payload};

use crate::port::{DropReason, ETHERNET_HEADER};

/// Most IPv6 extension headers that [`locate`] walks over.
pub const MAX_EXTENSIONS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// IP version of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Transport protocols whose checksum can be left unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP: checksum 16 bytes into the header.
    Tcp,
    /// UDP: checksum 6 bytes into the header.
    Udp,
}

impl Protocol {
    /// Bytes from the start of the header to its checksum.
    #[must_use]
    pub const fn checksum_offset(self) -> usize {
        match self {
            Protocol::Tcp => 16,
            Protocol::Udp => 6,
        }
    }
}

/// Where a frame's transport header is; offsets in bytes from the frame's
/// first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// The IP version.
    pub family: Family,
    /// The transport protocol.
    pub protocol: Protocol,
    /// Start of the IP header.
    pub ip: usize,
    /// Start of the transport header.
    pub start: usize,
    /// End of the transport header, options included.
    pub header_end: usize,
    /// End of the IP packet: the frame's end, or earlier where the frame is
    /// padded.
    pub end: usize,
    /// Whether TCP's CWR flag is set, which a segment repeats only once.
    pub cwr: bool,
    /// Whether the destination in the IP header need not be the last one, whose
    /// address is what a checksum covers: there is an IPv6 routing header that
    /// goes on, or an IPv4 option, which may be a source route.
    pub routed: bool,
}

impl Transport {
    /// Start of the checksum field, which lies wholly within the frame.
    #[must_use]
    pub const fn checksum_at(&self) -> usize {
        self.start + self.protocol.checksum_offset()
    }
}

/// Finds the transport header behind Ethernet, up to two VLAN tags, and IPv4
/// or IPv6 with up to [`MAX_EXTENSIONS`] extension headers.
///
/// # Errors
/// The reason why there is no checksum to finish in this frame.
pub fn locate(frame: &[u8]) -> Result<Transport, DropReason> {
    locate_in(frame, frame.len())
}

/// The same for a frame of `len` bytes of which only the first are here: no
/// others are looked at, and headers that do not end among them are
/// [`DropReason::Truncated`].
///
/// # Errors
/// As [`locate`].
pub fn locate_in(head: &[u8], len: usize) -> Result<Transport, DropReason> {
    if len < ETHERNET_HEADER {
        return Err(DropReason::TooShort);
    }
    match payload(head) {
        Payload::Ipv4(at) => locate_v4(head, len, at),
        Payload::Ipv6(at) => locate_v6(head, len, at),
        Payload::Other => Err(DropReason::NotIp),
        Payload::Truncated => Err(DropReason::Truncated),
    }
}

fn locate_v4(head: &[u8], len: usize, ip: usize) -> Result<Transport, DropReason> {
    let header = head.get(ip..ip + 20).ok_or(DropReason::Truncated)?;
    let words = usize::from(header[0] & 0x0f);
    if header[0] >> 4 != 4 || words < 5 {
        return Err(DropReason::BadHeader);
    }
    // More fragments, or an offset: the checksum spans several frames.
    if u16_at(header, 6)? & 0x3fff != 0 {
        return Err(DropReason::Fragment);
    }
    let start = ip + words * 4;
    let claimed = usize::from(u16_at(header, 2)?);
    if claimed != 0 && claimed < words * 4 {
        return Err(DropReason::BadHeader);
    }
    let end = packet_end(len, ip, claimed)?;
    let found = transport(head, end, Family::V4, header[9], ip, start)?;
    Ok(Transport { routed: words > 5, ..found })
}

fn locate_v6(head: &[u8], len: usize, ip: usize) -> Result<Transport, DropReason> {
    let header = head.get(ip..ip + 40).ok_or(DropReason::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(DropReason::BadHeader);
    }
    let payload = usize::from(u16_at(header, 4)?);
    let claimed = if payload == 0 { 0 } else { payload + 40 };
    let end = packet_end(len, ip, claimed)?;
    let mut next = header[6];
    let mut at = ip + 40;
    let mut routed = false;
    for _ in 0..=MAX_EXTENSIONS {
        if next == ROUTING {
            routed |= byte_at(head, at + 3)? != 0;
        }
        let length = match next {
            HOP_BY_HOP | ROUTING | DESTINATION => 8 + 8 * usize::from(byte_at(head, at + 1)?),
            AUTHENTICATION => 8 + 4 * usize::from(byte_at(head, at + 1)?),
            FRAGMENT => {
                // An atomic fragment (offset 0, no more) is a whole packet.
                if u16_at(head, at + 2)? & 0xfff9 != 0 {
                    return Err(DropReason::Fragment);
                }
                8
            }
            _ => {
                let found = transport(head, end, Family::V6, next, ip, at)?;
                return Ok(Transport { routed, ..found });
            }
        };
        next = byte_at(head, at)?;
        at += length;
    }
    Err(DropReason::ExtensionChain)
}

/// End of the IP packet. A claimed length of 0 is what some stacks leave for
/// the segmenting side to fill in: then the frame's end counts.
fn packet_end(len: usize, ip: usize, claimed: usize) -> Result<usize, DropReason> {
    match claimed {
        0 => Ok(len),
        n if ip + n <= len => Ok(ip + n),
        _ => Err(DropReason::Truncated),
    }
}

/// Reads the transport header of what ends where the IP packet does, at `end`.
fn transport(
    head: &[u8],
    end: usize,
    family: Family,
    protocol: u8,
    ip: usize,
    start: usize,
) -> Result<Transport, DropReason> {
    let packet = &head[..end.min(head.len())];
    let (protocol, header, cwr) = match protocol {
        TCP => {
            let header = 4 * usize::from(byte_at(packet, start + 12)? >> 4);
            if header < 20 {
                return Err(DropReason::BadHeader);
            }
            (Protocol::Tcp, header, byte_at(packet, start + 13)? & 0x80 != 0)
        }
        UDP => (Protocol::Udp, 8, false),
        _ => return Err(DropReason::OtherTransport),
    };
    let header_end = start + header;
    if header_end > packet.len() {
        return Err(DropReason::Truncated);
    }
    Ok(Transport { family, protocol, ip, start, header_end, end, cwr, routed: false })
}

fn byte_at(bytes: &[u8], at: usize) -> Result<u8, DropReason> {
    bytes.get(at).copied().ok_or(DropReason::Truncated)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, DropReason> {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(DropReason::Truncated),
    }
}

#[cfg(test)]
mod tests;
