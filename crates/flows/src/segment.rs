//! TCP segments: the fields that an analysis needs.

use grantway_netif::headers::{self, Family, Protocol, Why, tcp_flags};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address of the end.
    pub address: IpAddr,
    /// Port of the end.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", SocketAddr::new(self.address, self.port))
    }
}

/// Flags of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The segment is the last of its sender.
    pub const FIN: Self = Self(tcp_flags::FIN);
    /// The segment is the first of its sender.
    pub const SYN: Self = Self(tcp_flags::SYN);
    /// The connection is aborted.
    pub const RST: Self = Self(tcp_flags::RST);
    /// The header has the sequence number that is expected next.
    pub const ACK: Self = Self(tcp_flags::ACK);

    /// Returns true if all of these flags are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// End that sent the segment.
    pub from: Endpoint,
    /// End that the segment is for.
    pub to: Endpoint,
    /// The outer VLAN's number; 0 without a tag.
    pub vlan: u16,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Sequence number that the sender expects next; `None` without the flag.
    pub ack: Option<u32>,
    /// Flags of the segment.
    pub flags: Flags,
    /// Window as the header has it, without scale.
    pub window: u16,
    /// Bytes of payload.
    pub payload: u32,
    /// Number of segments that this one was merged of; 1 if it was not merged.
    pub segments: u32,
    /// Bytes of payload of each merged segment; the last one may have fewer.
    pub size: u32,
    /// Timestamp option: the sender's own value, and the other end's value that it answers.
    pub timestamps: Option<(u32, u32)>,
    /// Window scale option, at most 14.
    pub scale: Option<u8>,
    /// Option with the largest segment that the sender accepts.
    pub largest: Option<u16>,
    /// True if the segment names blocks that arrived out of order.
    pub selective: bool,
}

impl Segment {
    /// Reads a frame of `length` bytes, of which `head` has the first ones.
    ///
    /// # Errors
    /// Returns [`Why`] if the frame is no TCP segment, or cannot be read.
    pub fn read(head: &[u8], length: usize) -> Result<Self, Why> {
        let found = headers::read(head, length)?;
        if found.protocol != Protocol::Tcp {
            return Err(Why::OtherTransport);
        }
        let short = Why::Truncated;
        // Addresses stand at the offsets of the family.
        let (source, target) = match found.family {
            Family::V4 => {
                let at = |at| array::<4>(head, found.ip + at).map(Ipv4Addr::from).map(IpAddr::V4);
                (at(12), at(16))
            }
            Family::V6 => {
                let at = |at| array::<16>(head, found.ip + at).map(Ipv6Addr::from).map(IpAddr::V6);
                (at(8), at(24))
            }
        };
        // The rest is read from TCP's header.
        let header = head.get(found.start..found.header_end).ok_or(short)?;
        let half = |at| array::<2>(header, at).map(u16::from_be_bytes).ok_or(short);
        let word = |at| array::<4>(header, at).map(u32::from_be_bytes).ok_or(short);
        let flags = Flags(*header.get(13).ok_or(short)?);
        let payload = u32::try_from(found.end.saturating_sub(found.header_end)).unwrap_or(u32::MAX);
        let mut segment = Self {
            from: Endpoint { address: source.ok_or(short)?, port: half(0)? },
            to: Endpoint { address: target.ok_or(short)?, port: half(2)? },
            vlan: found.vlan,
            seq: word(4)?,
            ack: if flags.has(Flags::ACK) { Some(word(8)?) } else { None },
            flags,
            window: half(14)?,
            payload,
            segments: 1,
            size: payload,
            timestamps: None,
            scale: None,
            largest: None,
            selective: false,
        };
        segment.options(header.get(20..).unwrap_or_default());
        Ok(segment)
    }

    /// Returns the segments that this one was merged of.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Self> + use<> {
        let (whole, size) = (*self, self.size);
        (0..self.segments).map(move |number| {
            let before = number.saturating_mul(size);
            let payload = whole.payload.saturating_sub(before).min(size);
            let seq = whole.seq.wrapping_add(before);
            Self { seq, payload, segments: 1, size: payload, ..whole }
        })
    }

    /// Returns the bytes of the last segment that this one was merged of.
    pub(crate) fn last(&self) -> u32 {
        self.payload.saturating_sub((self.segments - 1).saturating_mul(self.size))
    }

    /// Returns the number of sequence numbers that the segment takes.
    #[must_use]
    pub fn span(&self) -> u64 {
        let one = |flag| u64::from(self.flags.has(flag));
        u64::from(self.payload) + one(Flags::SYN) + one(Flags::FIN)
    }

    /// Reads the options, up to one that is damaged.
    fn options(&mut self, mut rest: &[u8]) {
        while let Some((&kind, behind)) = rest.split_first() {
            if kind == 0 {
                return;
            }
            if kind == 1 {
                rest = behind;
                continue;
            }
            let Some(length) = behind.first().map(|&length| usize::from(length)) else { return };
            // The length includes the two bytes of kind and length.
            let Some(value) = rest.get(2..length) else { return };
            match (kind, value) {
                (2, &[high, low]) => self.largest = Some(u16::from_be_bytes([high, low])),
                (3, &[scale]) => self.scale = Some(scale.min(14)),
                (5, _) => self.selective = true,
                (8, &[a, b, c, d, e, f, g, h]) => {
                    let own = u32::from_be_bytes([a, b, c, d]);
                    self.timestamps = Some((own, u32::from_be_bytes([e, f, g, h])));
                }
                _ => {}
            }
            rest = &rest[length..];
        }
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
