//! The frames that [`Generator`](crate::Generator) makes and [`Checker`](crate::Checker) checks.
//!
//! A tag of 16 bytes names each frame: magic (4), length of the frame (2), flow (2), sequence
//! within the flow (8), all big-endian. Its place depends on the length of the frame:
//!
//! - From 58 bytes on, the tag is the payload of Ethernet/IPv4/UDP.
//! - From 30 bytes on, the tag follows an Ethernet header of the local experimental type 0x88b5.
//! - Shorter frames have no tag.
//!
//! The bytes behind the tag count up: byte n of the frame is n. A frame with the other magic
//! (`MAGIC_TIMED`) carries a time in the first six of them.

use grantway_netif::headers::ethertype;

/// First four bytes of the tag.
pub const MAGIC: u32 = 0x4757_4159;
/// First four bytes of the tag of a frame that carries a time behind its tag.
pub(crate) const MAGIC_TIMED: u32 = 0x4757_4154;
/// Length of the tag in bytes.
pub const TAG_LEN: usize = 16;
/// Length of the Ethernet, IPv4 and UDP headers in bytes.
pub const UDP_HEADERS: usize = 14 + 20 + 8;

/// Length of the time in a frame, in bytes: big-endian nanoseconds modulo 2^48, which is 78 hours.
pub(crate) const TIME_LEN: usize = 6;

pub(crate) const SEQUENCE_IN_TAG: usize = 8;
pub(crate) const EXPERIMENTAL: u16 = 0x88b5;

/// Place of the tag in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaggedAt {
    /// In a UDP datagram, at byte 42.
    Udp,
    /// Behind the Ethernet header, at byte 14.
    Ethernet,
}

impl TaggedAt {
    /// Returns the place of the tag in a generated frame of `size` bytes. Returns `None` if the
    /// frame is too short for a tag.
    #[must_use]
    pub const fn of_size(size: usize) -> Option<TaggedAt> {
        if size >= UDP_HEADERS + TAG_LEN {
            Some(TaggedAt::Udp)
        } else if size >= 14 + TAG_LEN {
            Some(TaggedAt::Ethernet)
        } else {
            None
        }
    }

    /// Returns the type in the Ethernet header of a frame with the tag at this place.
    pub(crate) const fn ethertype(self) -> [u8; 2] {
        match self {
            TaggedAt::Udp => ethertype::IPV4.to_be_bytes(),
            TaggedAt::Ethernet => EXPERIMENTAL.to_be_bytes(),
        }
    }

    /// Returns the offset of the tag's first byte.
    #[must_use]
    pub const fn offset(self) -> usize {
        match self {
            TaggedAt::Udp => UDP_HEADERS,
            TaggedAt::Ethernet => 14,
        }
    }
}

/// A tag that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) length: u16,
    pub(crate) flow: u16,
    pub(crate) sequence: u64,
    /// True if a time follows the tag.
    pub(crate) timed: bool,
}

impl Tag {
    pub(crate) fn encode(self) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        let magic = if self.timed { MAGIC_TIMED } else { MAGIC };
        tag[..4].copy_from_slice(&magic.to_be_bytes());
        tag[4..6].copy_from_slice(&self.length.to_be_bytes());
        tag[6..8].copy_from_slice(&self.flow.to_be_bytes());
        tag[8..].copy_from_slice(&self.sequence.to_be_bytes());
        tag
    }

    /// Reads the tag of a frame. The frame's type says where the tag is.
    #[inline]
    pub(crate) fn find(frame: &[u8]) -> Option<(TaggedAt, Tag)> {
        let at = match frame.get(12..14)? {
            kind if kind == TaggedAt::Udp.ethertype() => TaggedAt::Udp,
            kind if kind == TaggedAt::Ethernet.ethertype() => TaggedAt::Ethernet,
            _ => return None,
        };
        let tag: &[u8; TAG_LEN] = frame.get(at.offset()..)?.first_chunk()?;
        let [m0, m1, m2, m3, l0, l1, f0, f1, sequence @ ..] = *tag;
        let timed = match u32::from_be_bytes([m0, m1, m2, m3]) {
            MAGIC => false,
            MAGIC_TIMED => true,
            _ => return None,
        };
        let (length, flow) = (u16::from_be_bytes([l0, l1]), u16::from_be_bytes([f0, f1]));
        Some((at, Tag { length, flow, sequence: u64::from_be_bytes(sequence), timed }))
    }
}
