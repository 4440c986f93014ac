//! Extras: slots with information about a packet. An extra takes the place of a transmit request or
//! of a receive response.

use crate::headers::Family;
use crate::offload::TcpGso;
use thiserror::Error;

/// Bytes of an extra. The third word of a transmit slot is padding.
pub const EXTRA_BYTES: usize = 8;

/// Numbers of the kinds of extras (`XEN_NETIF_EXTRA_TYPE_*`).
pub mod kind {
    /// Segmentation.
    pub const GSO: u8 = 1;
    /// Adds an address to the multicast filter.
    pub const MCAST_ADD: u8 = 2;
    /// Removes an address from the multicast filter.
    pub const MCAST_DEL: u8 = 3;
    /// The packet's hash.
    pub const HASH: u8 = 4;
    /// Space in front of the data. Linux has it; Xen's header 4.17 does not.
    pub const XDP: u8 = 5;
}

/// Bit of the flags byte: another extra follows (`XEN_NETIF_EXTRA_FLAG_MORE`).
pub const FLAG_MORE: u8 = 1;

/// `XEN_NETIF_GSO_TYPE_TCPV4`.
pub const GSO_TCPV4: u8 = 1;
/// `XEN_NETIF_GSO_TYPE_TCPV6`.
pub const GSO_TCPV6: u8 = 2;

/// Hash of a packet, sent with the packet.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash {
    /// The hashed fields, as the number of a bit of [`HashTypes`](crate::ctrl::HashTypes): 0 IPv4,
    /// 1 IPv4 TCP, 2 IPv6, 3 IPv6 TCP. Not checked here: another number means an unknown type.
    pub kind: u8,
    /// Algorithm of the hash, as in [`algorithm`](crate::ctrl::algorithm); not checked here.
    pub algorithm: u8,
    /// The hash; its least significant byte comes first on the wire.
    pub value: u32,
}

/// Extra of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extra {
    /// Segmentation, and the `features` word. The header defines no bits of this word. Stock
    /// drivers write 0.
    Gso(TcpGso, u16),
    /// Passes packets to this address through the multicast filter.
    McastAdd([u8; 6]),
    /// Stops passing packets to this address.
    McastDel([u8; 6]),
    /// The packet's hash.
    Hash(Hash),
    /// Space in front of the data.
    Xdp {
        /// Bytes between the page's start and the data.
        headroom: u16,
    },
}

/// Error for an invalid extra. Stock netback disables the vif for it. Stock netfront drops the
/// packet.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExtraError {
    /// The type of the extra is unknown.
    #[error("extra of unknown type {found}, expected 1 to 5")]
    UnknownType {
        /// The type byte.
        found: u8,
    },
    /// The segment size is 0.
    #[error("segmentation extra with segment size 0, expected at least 1")]
    ZeroGsoSize,
    /// The segmentation type is unknown.
    #[error("segmentation extra of unknown type {found}, expected 1 (TCPv4) or 2 (TCPv6)")]
    UnknownGsoKind {
        /// The segmentation type byte.
        found: u8,
    },
}

/// Returns true if another extra follows, even if this extra is invalid. Ignores undefined bits of
/// the flags byte.
#[inline]
pub const fn has_more(words: [u32; 2]) -> bool {
    (words[0] >> 8) as u8 & FLAG_MORE != 0
}

impl Extra {
    /// Reads an extra from the first two words of a slot's private copy. The second value is true
    /// if another extra follows.
    ///
    /// # Errors
    ///
    /// Returns [`ExtraError`] for an invalid extra.
    pub fn from_words(words: [u32; 2]) -> Result<(Self, bool), ExtraError> {
        let [a, b, c, d] = words[1].to_le_bytes();
        let [found, _, x, y] = words[0].to_le_bytes();
        let half = u16::from_le_bytes([x, y]);
        let extra = match found {
            kind::GSO => {
                // Size before type, as stock netback checks them.
                if half == 0 {
                    return Err(ExtraError::ZeroGsoSize);
                }
                let family = match a {
                    GSO_TCPV4 => Family::V4,
                    GSO_TCPV6 => Family::V6,
                    found => return Err(ExtraError::UnknownGsoKind { found }),
                };
                let gso = TcpGso { family, size: half };
                Self::Gso(gso, u16::from_le_bytes([c, d]))
            }
            kind::MCAST_ADD => Self::McastAdd([x, y, a, b, c, d]),
            kind::MCAST_DEL => Self::McastDel([x, y, a, b, c, d]),
            kind::HASH => Self::Hash(Hash { kind: x, algorithm: y, value: words[1] }),
            kind::XDP => Self::Xdp { headroom: half },
            found => return Err(ExtraError::UnknownType { found }),
        };
        Ok((extra, has_more(words)))
    }

    /// Reads an extra from a transmit slot, as [`Extra::from_words`] does. Ignores the third word,
    /// which is padding.
    ///
    /// # Errors
    ///
    /// Returns [`ExtraError`] for an invalid extra.
    pub fn from_tx_words(words: [u32; 3]) -> Result<(Self, bool), ExtraError> {
        Self::from_words([words[0], words[1]])
    }

    /// Returns the words of a receive slot. `more` is true if another extra follows.
    pub const fn to_rx_words(self, more: bool) -> [u32; 2] {
        let flags = if more { FLAG_MORE } else { 0 };
        let (found, head, tail) = match self {
            Self::Gso(gso, features) => {
                let protocol = match gso.family {
                    Family::V4 => GSO_TCPV4,
                    Family::V6 => GSO_TCPV6,
                };
                let word = protocol as u32 | (features as u32) << 16;
                (kind::GSO, gso.size.to_le_bytes(), word)
            }
            Self::McastAdd(addr) => (kind::MCAST_ADD, [addr[0], addr[1]], address_tail(addr)),
            Self::McastDel(addr) => (kind::MCAST_DEL, [addr[0], addr[1]], address_tail(addr)),
            Self::Hash(hash) => (kind::HASH, [hash.kind, hash.algorithm], hash.value),
            Self::Xdp { headroom } => (kind::XDP, headroom.to_le_bytes(), 0),
        };
        [u32::from_le_bytes([found, flags, head[0], head[1]]), tail]
    }

    /// Returns the words of a transmit slot. The padding is zero (XSA-216).
    pub const fn to_tx_words(self, more: bool) -> [u32; 3] {
        let [first, second] = self.to_rx_words(more);
        [first, second, 0]
    }
}

/// The last four bytes of an address, as a word.
const fn address_tail(addr: [u8; 6]) -> u32 {
    u32::from_le_bytes([addr[2], addr[3], addr[4], addr[5]])
}
