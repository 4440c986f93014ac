//! One slot of the receive ring (backend to guest).

use bitflags::bitflags;

/// Bytes of a receive slot. Requests and responses have this size. The value is that of the
/// compiled `netif.h`; a printed layout of 16 bytes exists and is wrong.
pub const RX_SLOT_BYTES: usize = 8;

/// Slots of the one-page receive ring.
pub const RX_RING_ENTRIES: usize = 256;

const _: () = assert!(RX_SLOT_BYTES == size_of::<[u32; 2]>());

bitflags! {
    /// Flags of a receive response (`NETRXF_*`).
    ///
    /// Bits 0 and 1 are swapped against [`TxFlags`](crate::tx::TxFlags).
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct RxFlags: u16 {
        /// The data is valid.
        const DATA_VALIDATED = 1;
        /// The checksum field holds the sum of the pseudo-header only.
        const CSUM_BLANK = 2;
        /// Another response of the same packet follows.
        const MORE_DATA = 4;
        /// An extra follows in the next slot.
        const EXTRA_INFO = 8;
        /// The slot has a segment size in place of data. Deprecated: it is never written, and a
        /// frame with it is refused.
        const GSO_PREFIX = 16;
    }
}

/// Receive request: an empty page for the backend.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RxRequest {
    /// Number that the frontend chose. The response repeats it.
    pub id: u16,
    /// Grant of the page.
    pub gref: u32,
}

impl RxRequest {
    /// Reads a request from the private copy of a slot. Ignores the two bytes of padding.
    #[inline]
    pub const fn from_words(words: [u32; 2]) -> Self {
        Self { id: words[0] as u16, gref: words[1] }
    }

    /// Returns the words of the slot. The padding is zero.
    #[inline]
    pub const fn to_words(self) -> [u32; 2] {
        [self.id as u32, self.gref]
    }
}

/// Receive response: one piece of a packet, or an error. It has the ring index of the request that
/// it consumes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RxResponse {
    /// The request's id.
    pub id: u16,
    /// Offset of the first byte in the page. It may be greater than 0 (QEMU writes at 2).
    pub offset: u16,
    /// Flags of the packet. [`RxFlags::MORE_DATA`] and [`RxFlags::EXTRA_INFO`] announce further
    /// slots. Undefined bits are kept, and have no meaning.
    pub flags: RxFlags,
    /// Bytes of this piece, 0 to 4096, or one of the negative values of
    /// [`status`](crate::tx::status).
    pub status: i16,
}

impl RxResponse {
    /// Reads a response from the private copy of a slot.
    #[inline]
    pub const fn from_words(words: [u32; 2]) -> Self {
        Self {
            id: words[0] as u16,
            offset: (words[0] >> 16) as u16,
            flags: RxFlags::from_bits_retain(words[1] as u16),
            status: (words[1] >> 16) as i16,
        }
    }

    /// Returns the words of the slot.
    #[inline]
    pub const fn to_words(self) -> [u32; 2] {
        [
            self.id as u32 | (self.offset as u32) << 16,
            self.flags.bits() as u32 | (self.status as u16 as u32) << 16,
        ]
    }
}
