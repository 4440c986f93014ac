//! The IPv6 header, and the extension headers behind it (RFC 8200).

use super::{Part, Why, chunk, half, protocol};

/// Most IPv6 extension headers that are skipped.
pub const MAX_EXTENSIONS: usize = 8;

/// An IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6<'a>(&'a [u8; Ipv6::BYTES]);

impl<'a> Ipv6<'a> {
    /// Bytes of the header.
    pub const BYTES: usize = 40;

    /// Reads the header at `at`.
    ///
    /// # Errors
    /// Returns [`Why::Truncated`] or [`Why::Version`], judged in this order.
    #[inline]
    pub fn read(frame: &'a [u8], at: usize) -> Result<Self, Why> {
        let header = Self(chunk(frame, at)?);
        if header.0[0] >> 4 == 6 { Ok(header) } else { Err(Why::Version) }
    }

    /// Returns the bytes that the packet claims to have behind this header.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> usize {
        half(self.0, 4).into()
    }

    /// Returns the source, then the destination, as on the wire.
    #[inline]
    #[must_use]
    pub fn addresses(&self) -> &'a [u8; 32] {
        self.0.last_chunk().unwrap_or(&[0; 32])
    }

    /// Begins a walk over the extension headers of this header, which stands at `at`.
    #[inline]
    #[must_use]
    pub fn extensions(&self, at: usize) -> Extensions {
        Extensions { next: self.0[6], at: at + Self::BYTES, left: MAX_EXTENSIONS }
    }
}

/// A walk over IPv6 extension headers: hop-by-hop options, routing, fragment,
/// authentication and destination options. Any other header ends it.
///
/// The walk judges neither their order nor how often each may stand.
#[derive(Debug, Clone)]
pub struct Extensions {
    next: u8,
    at: usize,
    left: usize,
}

impl Extensions {
    /// Returns the number of the header at [`at`](Self::at): the next extension header
    /// or, at the end of the walk, what the packet carries.
    #[inline]
    #[must_use]
    pub const fn next_header(&self) -> u8 {
        self.next
    }

    /// Returns where the next header starts, in bytes from the start of the frame.
    /// That may be past the end of the frame.
    #[inline]
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Skips one extension header, and returns it. Returns `None` if there is no further one. The
    /// packet may end within it: see [`Extension::bytes`].
    ///
    /// # Errors
    /// Returns [`Why::Truncated`] if `packet` ends before the length of the extension header,
    /// [`Why::Extensions`] behind [`MAX_EXTENSIONS`] of them. The walk is over then.
    #[inline]
    pub fn step(&mut self, packet: &[u8]) -> Result<Option<Extension>, Why> {
        let kind = self.next;
        let unit = match kind {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION => 8,
            // It counts words (RFC 4302, 2.2), as many as leave the first two out.
            protocol::AUTHENTICATION => 4,
            // Its second byte is reserved.
            protocol::FRAGMENT => 0,
            _ => return Ok(None),
        };
        self.left = self.left.checked_sub(1).ok_or(Why::Extensions)?;
        let &[next, length] = chunk(packet, self.at)?;
        let found = Extension { kind, at: self.at, len: 8 + unit * usize::from(length) };
        self.next = next;
        self.at += found.len;
        Ok(Some(found))
    }
}

/// An IPv6 extension header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    /// Number of the header, one of [`protocol`].
    pub kind: u8,
    /// Start of the header, in bytes from the start of the frame.
    pub at: usize,
    /// Length of the header in bytes, 8 to 2048.
    pub len: usize,
}

impl Extension {
    /// Returns the whole extension header.
    ///
    /// # Errors
    /// Returns [`Why::Truncated`]: `packet` ends within it.
    #[inline]
    pub fn bytes<'a>(&self, packet: &'a [u8]) -> Result<&'a [u8], Why> {
        packet.get(self.at..self.at + self.len).ok_or(Why::Truncated)
    }

    /// Returns the number of addresses of a routing header that are still to be visited.
    ///
    /// # Errors
    /// Returns [`Why::Truncated`]: `packet` ends before that number.
    #[inline]
    pub fn segments_left(&self, packet: &[u8]) -> Result<u8, Why> {
        chunk(packet, self.at).map(|&[_, _, _, left]| left)
    }

    /// Returns the part of the IP packet that a fragment header announces.
    ///
    /// # Errors
    /// Returns [`Why::Truncated`]: `packet` ends before that field.
    #[inline]
    pub fn part(&self, packet: &[u8]) -> Result<Part, Why> {
        let field = chunk(packet, self.at + 2).copied().map(u16::from_be_bytes)?;
        Ok(Part { at: field & 0xfff8, more: field & 1 != 0 })
    }

    /// Returns the identification, which all fragments of one packet share.
    ///
    /// # Errors
    /// Returns [`Why::Truncated`]: `packet` ends before the end of that number.
    #[inline]
    pub fn fragment_id(&self, packet: &[u8]) -> Result<u32, Why> {
        chunk(packet, self.at + 4).copied().map(u32::from_be_bytes)
    }
}
