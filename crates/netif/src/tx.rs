//! One slot of the transmit ring (guest to backend).

use bitflags::bitflags;

/// Bytes of a transmit slot: the size of a request. A response has 4 bytes. The value is that of
/// the compiled `netif.h`; a printed layout of 16 bytes exists and is wrong.
pub const TX_SLOT_BYTES: usize = 12;

/// Slots of the one-page transmit ring.
pub const TX_RING_ENTRIES: usize = 256;

const _: () = assert!(TX_SLOT_BYTES == size_of::<[u32; 3]>());

/// Status of a response (`NETIF_RSP_*`). The receive ring uses the negative values.
pub mod status {
    /// The request was carried out.
    pub const OKAY: i16 = 0;
    /// The request was refused, or it failed.
    pub const ERROR: i16 = -1;
    /// The packet was dropped by a decision of the backend.
    pub const DROPPED: i16 = -2;
    /// No answer. It fills the slot of an extra, which has no id.
    pub const NULL: i16 = 1;
}

bitflags! {
    /// Flags of a transmit request (`NETTXF_*`).
    ///
    /// Bits 0 and 1 are swapped against [`RxFlags`](crate::rx::RxFlags).
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct TxFlags: u16 {
        /// The checksum field holds the sum of the pseudo-header only.
        const CSUM_BLANK = 1;
        /// The data is valid.
        const DATA_VALIDATED = 2;
        /// Another request of the same packet follows.
        const MORE_DATA = 4;
        /// An extra follows in the next slot.
        const EXTRA_INFO = 8;
    }
}

/// Transmit request: the place of one piece of a packet.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TxRequest {
    /// Grant of the page that holds the bytes.
    pub gref: u32,
    /// Offset of the first byte in the page.
    pub offset: u16,
    /// Flags of the packet. [`TxFlags::MORE_DATA`] and [`TxFlags::EXTRA_INFO`] announce further
    /// slots. Undefined bits are kept, and have no meaning, as in stock drivers.
    pub flags: TxFlags,
    /// Number that the frontend chose. The response repeats it.
    pub id: u16,
    /// In the first slot, bytes of the whole packet. In further slots, bytes of this piece.
    pub size: u16,
}

impl TxRequest {
    /// Reads a request from the private copy of a slot.
    #[inline]
    pub const fn from_words(words: [u32; 3]) -> Self {
        let [gref, second, third] = words;
        Self {
            gref,
            offset: second as u16,
            flags: TxFlags::from_bits_retain((second >> 16) as u16),
            id: third as u16,
            size: (third >> 16) as u16,
        }
    }

    /// Returns the words of the slot.
    #[inline]
    pub const fn to_words(self) -> [u32; 3] {
        [
            self.gref,
            self.offset as u32 | (self.flags.bits() as u32) << 16,
            self.id as u32 | (self.size as u32) << 16,
        ]
    }
}

/// Response to one transmit slot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TxResponse {
    /// Id of the request. It is 0 and has no meaning if `status` is [`status::NULL`].
    pub id: u16,
    /// One of [`status`].
    pub status: i16,
}

impl TxResponse {
    /// Response to the slot of an extra.
    pub const NULL: Self = Self { id: 0, status: status::NULL };

    /// Reads a response from the private copy of a slot. Ignores the rest of the slot.
    #[inline]
    pub const fn from_words(words: [u32; 3]) -> Self {
        Self { id: words[0] as u16, status: (words[0] >> 16) as i16 }
    }

    /// Returns the words of the slot. A response is shorter than its slot. The rest is zero, so
    /// that no private data leaks to the peer (XSA-216).
    #[inline]
    pub const fn to_words(self) -> [u32; 3] {
        [self.id as u32 | (self.status as u16 as u32) << 16, 0, 0]
    }
}
