//! The IPv4 header (RFC 791, 3.1).

use super::{Part, Why, chunk, half};

/// An IPv4 header, without its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4<'a>(&'a [u8; Ipv4::BYTES]);

impl<'a> Ipv4<'a> {
    /// Bytes of a header without options.
    pub const BYTES: usize = 20;

    /// Reads the header at byte `at` of the frame. The frame may end within its options.
    ///
    /// # Errors
    /// Returns [`Why::Truncated`], [`Why::Version`] or [`Why::HeaderLength`], judged in this
    /// order.
    #[inline]
    pub fn read(frame: &'a [u8], at: usize) -> Result<Self, Why> {
        let header = Self(chunk(frame, at)?);
        if header.0[0] >> 4 != 4 {
            return Err(Why::Version);
        }
        if header.header_len() < Self::BYTES {
            return Err(Why::HeaderLength);
        }
        Ok(header)
    }

    /// Returns the bytes of the header, options included: 20 to 60.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        4 * (self.0[0] & 0x0f) as usize
    }

    /// Returns the bytes that the packet claims to have, this header included.
    #[inline]
    #[must_use]
    pub fn total_len(&self) -> usize {
        half(self.0, 2).into()
    }

    /// Returns the identification, which all fragments of one packet share.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u16 {
        half(self.0, 4)
    }

    /// Returns the part of the IP packet that this frame carries.
    #[inline]
    #[must_use]
    pub fn part(&self) -> Part {
        let field = half(self.0, 6);
        // The offset counts units of 8 bytes.
        Part { at: field << 3, more: field & 0x2000 != 0 }
    }

    /// Returns the protocol number, often one of [`protocol`](super::protocol).
    #[inline]
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.0[9]
    }

    /// Returns the source, then the destination, as on the wire.
    #[inline]
    #[must_use]
    pub fn addresses(&self) -> &'a [u8; 8] {
        self.0.last_chunk().unwrap_or(&[0; 8])
    }
}
