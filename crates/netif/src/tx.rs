//! One slot of the transmit ring (guest to backend).

use bitflags::bitflags;

/// Bytes of a transmit slot: the larger of request (12) and response (4).
/// Seed 004 prints 16; the compiled header says 12.
pub const TX_SLOT_BYTES: usize = 12;

/// Slots of the one-page transmit ring.
pub const TX_RING_ENTRIES: usize = 256;

const _: () = assert!(TX_SLOT_BYTES == size_of::<[u32; 3]>());

/// Status of a response (`NETIF_RSP_*`). The receive ring uses the negative ones.
pub mod status {
    /// The request was served.
    pub const OKAY: i16 = 0;
    /// The request was refused, or serving it failed.
    pub const ERROR: i16 = -1;
    /// The packet was dropped on purpose.
    pub const DROPPED: i16 = -2;
    /// No answer: fills the slot of an extra, which carries no id.
    pub const NULL: i16 = 1;
}

bitflags! {
    /// Flags of a transmit request (`NETTXF_*`).
    ///
    /// Bits 0 and 1 are swapped against [`RxFlags`](crate::rx::RxFlags).
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct TxFlags: u16 {
        /// The checksum field holds only the pseudo-header sum.
        const CSUM_BLANK = 1;
        /// The data is known to be good.
        const DATA_VALIDATED = 2;
        /// Another request of the same packet follows.
        const MORE_DATA = 4;
        /// An extra follows in the next slot.
        const EXTRA_INFO = 8;
    }
}

/// A transmit request: where one piece of a packet lies.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TxRequest {
    /// Grant of the page that holds the bytes.
    pub gref: u32,
    /// First byte inside the page.
    pub offset: u16,
    /// Flags of the packet, one of which says that slots follow. Bits without a name are kept as
    /// found and mean nothing, as in stock drivers.
    pub flags: TxFlags,
    /// Chosen by the frontend, given back in the response.
    pub id: u16,
    /// Bytes: of the whole packet in the first slot, of this piece in the rest.
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

    /// The slot's words.
    #[inline]
    pub const fn to_words(self) -> [u32; 3] {
        [
            self.gref,
            self.offset as u32 | (self.flags.bits() as u32) << 16,
            self.id as u32 | (self.size as u32) << 16,
        ]
    }
}

/// The answer to one transmit slot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TxResponse {
    /// The request's id; 0 and without meaning where `status` is
    /// [`status::NULL`].
    pub id: u16,
    /// One of [`status`].
    pub status: i16,
}

impl TxResponse {
    /// The answer to the slot of an extra.
    pub const NULL: Self = Self { id: 0, status: status::NULL };

    /// Reads a response from the private copy of a slot; the rest of the slot
    /// is not looked at.
    #[inline]
    pub const fn from_words(words: [u32; 3]) -> Self {
        Self { id: words[0] as u16, status: (words[0] >> 16) as i16 }
    }

    /// The slot's words. A response is shorter than its slot; the rest is
    /// zero, so that nothing of ours leaks to the peer (XSA-216).
    #[inline]
    pub const fn to_words(self) -> [u32; 3] {
        [self.id as u32 | (self.status as u16 as u32) << 16, 0, 0]
    }
}
