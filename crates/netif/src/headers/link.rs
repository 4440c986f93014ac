//! Ethernet headers, VLAN tags, and the type of what they carry.

use super::{Why, chunk, ethertype};

/// Most VLAN tags that are skipped.
pub const MAX_VLAN_TAGS: usize = 2;

/// Start of the type field, in bytes from the start of the frame.
const TYPE_AT: usize = 12;
/// Bytes of a VLAN tag.
const TAG_BYTES: usize = 4;

/// The Ethernet header, and the VLAN tags behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The type behind the tags, often one of [`ethertype`]. It is that of a tag if
    /// there are more than [`MAX_VLAN_TAGS`].
    pub ethertype: u16,
    /// Number of the outermost VLAN, below 4096; 0 without a tag.
    pub vlan: u16,
    /// Start of the payload, in bytes from the start of the frame.
    pub at: usize,
}

impl Link {
    /// Reads the type field, behind up to [`MAX_VLAN_TAGS`] tags.
    ///
    /// # Errors
    /// Returns [`Why::Truncated`]: the frame ends before its type.
    #[inline]
    pub fn read(frame: &[u8]) -> Result<Self, Why> {
        let mut link = Self { ethertype: kind(frame, TYPE_AT)?, vlan: 0, at: TYPE_AT + 2 };
        for tag in 0..MAX_VLAN_TAGS {
            if !matches!(link.ethertype, ethertype::VLAN | ethertype::QINQ) {
                break;
            }
            link.ethertype = kind(frame, link.at + 2)?;
            if tag == 0 {
                link.vlan = kind(frame, link.at)? & 0x0fff;
            }
            link.at += TAG_BYTES;
        }
        Ok(link)
    }
}

/// Payload of a frame, by its type field. The headers of the payload are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// An IPv4 packet, from this byte of the frame on.
    Ipv4(usize),
    /// An IPv6 packet, from this byte of the frame on.
    Ipv6(usize),
    /// Something else, or more tags than [`MAX_VLAN_TAGS`].
    Other,
    /// The frame ends before its type.
    Truncated,
}

/// Returns the payload of a frame, behind up to [`MAX_VLAN_TAGS`] tags.
#[must_use]
pub fn payload(frame: &[u8]) -> Payload {
    match Link::read(frame) {
        Ok(Link { ethertype: ethertype::IPV4, at, .. }) => Payload::Ipv4(at),
        Ok(Link { ethertype: ethertype::IPV6, at, .. }) => Payload::Ipv6(at),
        Ok(_) => Payload::Other,
        Err(_) => Payload::Truncated,
    }
}

#[inline]
fn kind(frame: &[u8], at: usize) -> Result<u16, Why> {
    chunk(frame, at).copied().map(u16::from_be_bytes)
}
