//! The headers of TCP (RFC 9293, 3.1) and UDP (RFC 768).

use super::{Why, chunk, half, protocol};

/// A TCP header, without its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp<'a>(&'a [u8; Tcp::BYTES]);

impl<'a> Tcp<'a> {
    /// Bytes of a header without options.
    pub const BYTES: usize = 20;

    /// Reads the header at byte `at`. The packet must have all its options.
    ///
    /// # Errors
    /// Returns [`Why::HeaderLength`], or [`Why::Truncated`] if `packet` ends within the header.
    #[inline]
    pub fn read(packet: &'a [u8], at: usize) -> Result<Self, Why> {
        let header = Self(chunk(packet, at)?);
        let len = header.header_len();
        if len < Self::BYTES {
            return Err(Why::HeaderLength);
        }
        if packet.len() < at + len {
            return Err(Why::Truncated);
        }
        Ok(header)
    }

    /// Returns the ports, source first, as on the wire.
    #[inline]
    #[must_use]
    pub const fn ports(&self) -> [u8; 4] {
        let &[a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }

    /// Returns the bytes of the header, options included: 20 to 60.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        4 * (self.0[12] >> 4) as usize
    }

    /// Returns the flags, bits of [`tcp_flags`](super::tcp_flags).
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.0[13]
    }
}

/// A UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Udp<'a>(&'a [u8; Udp::BYTES]);

impl<'a> Udp<'a> {
    /// Bytes of the header.
    pub const BYTES: usize = 8;

    /// Reads the header at byte `at`. Does not validate its length field.
    ///
    /// # Errors
    /// Returns [`Why::Truncated`]: `packet` ends within the header.
    #[inline]
    pub fn read(packet: &'a [u8], at: usize) -> Result<Self, Why> {
        chunk(packet, at).map(Self)
    }

    /// Returns the ports, source first, as on the wire.
    #[inline]
    #[must_use]
    pub const fn ports(&self) -> [u8; 4] {
        let &[a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }

    /// Returns the bytes that the datagram claims to have, this header included.
    #[inline]
    #[must_use]
    pub fn datagram_len(&self) -> usize {
        half(self.0, 4).into()
    }
}

/// Returns the ports of TCP or UDP, source first, as on the wire. The packet may end behind the
/// ports. Returns `None` if `number` is another protocol, or if `packet` ends within the ports.
#[inline]
#[must_use]
pub fn ports(packet: &[u8], number: u8, at: usize) -> Option<[u8; 4]> {
    match number {
        protocol::TCP | protocol::UDP => chunk(packet, at).ok().copied(),
        _ => None,
    }
}
