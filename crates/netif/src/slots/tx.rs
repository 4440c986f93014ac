//! Transmit ring: requests to packets (backend), packets to requests (frontend), and the responses
//! to all slots.

mod write;

pub use write::{TxWriteError, write_again, write_one, write_tx};

use crate::extra::{Extra, ExtraError, Hash};
use crate::offload::{Checksum, Offload};
#[cfg(doc)]
use crate::tx::status;
use crate::tx::{TX_RING_ENTRIES, TxFlags, TxRequest, TxResponse};
use crate::{ETH_HEADER_BYTES, PAGE_BYTES, in_page};
use thiserror::Error;

/// Most data slots of a packet that a frontend sends (`XEN_NETIF_NR_SLOTS_MIN`). Extras do not
/// count.
pub const SLOTS_SENT: usize = 18;

/// Most data slots of a packet that a backend accepts: the first and 18 more, as in stock netback.
/// Extras do not count.
pub const SLOTS_ACCEPTED: usize = 19;

/// Number of data slots from which on the vif is disabled, since no honest frontend sends so many.
/// With fewer slots, but more than [`SLOTS_ACCEPTED`], only the packet is dropped.
pub const SLOTS_FATAL: usize = 22;

/// Capacity for the slots that [`write_tx`] appends. It is at least [`SLOTS_SENT`] and one extra of
/// each kind.
pub const SLOTS_WRITTEN: usize = 24;

const _: () = assert!(SLOTS_SENT + 3 <= SLOTS_WRITTEN);

/// Piece of a packet, within one page.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TxFragment {
    /// Grant of the page.
    pub gref: u32,
    /// Offset of the first byte in the page.
    pub offset: u16,
    /// Bytes of this piece. `offset + size` is at most 4096. 0 is valid: then there is nothing to
    /// copy or map (see [`TxFragment::is_empty`]).
    pub size: u16,
    /// The request's id.
    pub id: u16,
}

impl TxFragment {
    /// Returns true if the fragment has no bytes. The backend must not make a grant operation for
    /// it (XSA-448), and answers it like the others.
    pub const fn is_empty(&self) -> bool {
        self.size == 0
    }
}

/// A change of the multicast filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Multicast {
    /// Passes packets to this address.
    Add([u8; 6]),
    /// Stops passing packets to this address.
    Remove([u8; 6]),
}

/// Packet from a guest, or a change of its multicast filter. It borrows the private copies of its
/// slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxPacket<'a> {
    /// Its slots, in the order of the ring; judged.
    slots: &'a [[u32; 3]],
    /// Bytes of the first fragment, worked out.
    first_size: u16,
    /// Bytes of the whole packet: 14 to 65535, or 0 if `multicast` is set.
    pub len: u16,
    /// Number of ring slots with extras. They follow the slot of the first fragment.
    pub extras: u8,
    /// Checksum and segmentation. With segmentation the checksum is [`Checksum::Partial`], even if
    /// the frontend did not set the flag. So code that completes the checksum must not rely on the
    /// content of its field.
    pub offload: Offload,
    /// Hash that the frontend sent with the packet.
    pub hash: Option<Hash>,
    /// Change of the multicast filter. If it is set, this is no packet: it has a single empty
    /// fragment for its id. The response is [`status::OKAY`], or [`status::ERROR`] if the filter is
    /// full.
    pub multicast: Option<Multicast>,
}

impl<'a> TxPacket<'a> {
    /// Returns the number of ring slots of the packet, extras included.
    #[inline]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the pieces in order: at least one, at most [`SLOTS_ACCEPTED`]. The sum of their
    /// sizes is `len`.
    #[inline]
    pub fn fragments(&self) -> TxFragments<'a> {
        let (&first, later) = match self.slots {
            [first, later @ ..] => (first, later),
            // No packet is made without a slot.
            [] => return TxFragments { first: None, later: &[] },
        };
        let TxRequest { gref, offset, id, .. } = TxRequest::from_words(first);
        let first = Some(TxFragment { gref, offset, size: self.first_size, id });
        TxFragments { first, later: later.get(usize::from(self.extras)..).unwrap_or(&[]) }
    }

    /// Returns the responses to all slots of the packet, in the order of the ring.
    #[inline]
    pub fn responses(&self, status: i16) -> TxResponses<'a> {
        TxResponses { slots: self.slots, first: true, extras: self.extras, status }
    }
}

/// The pieces of a packet, in order.
#[derive(Debug, Clone)]
pub struct TxFragments<'a> {
    first: Option<TxFragment>,
    later: &'a [[u32; 3]],
}

impl Iterator for TxFragments<'_> {
    type Item = TxFragment;

    #[inline]
    fn next(&mut self) -> Option<TxFragment> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let (&words, later) = self.later.split_first()?;
        self.later = later;
        let TxRequest { gref, offset, id, size, .. } = TxRequest::from_words(words);
        Some(TxFragment { gref, offset, size, id })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.first.is_some()) + self.later.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for TxFragments<'_> {}

/// Refused packet. The vif continues. The slots are consumed and answered, usually with
/// [`status::ERROR`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Its slots, in the order of the ring; at least one.
    slots: &'a [[u32; 3]],
    /// Number of ring slots with extras. They follow the first data slot.
    pub extras: u8,
    /// Reason of the refusal.
    pub reason: TxRefusal,
}

impl<'a> Refused<'a> {
    /// Returns the responses to all slots of the packet, in the order of the ring.
    pub fn responses(&self, status: i16) -> TxResponses<'a> {
        TxResponses { slots: self.slots, first: true, extras: self.extras, status }
    }
}

/// Reason why a packet is refused: a fault that occurs in buggy frontends.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxRefusal {
    /// The packet has more data slots than the protocol allows.
    #[error("packet of {found} slots, expected at most {SLOTS_ACCEPTED}")]
    TooManySlots {
        /// Data slots of the packet.
        found: usize,
    },
    /// The fragments after the first are longer than the packet. A frame of 64 KiB or more gives
    /// this error, since its size overflows the field.
    #[error("packet of {total} bytes whose fragments past the first have {fragments}")]
    FragmentsExceedPacket {
        /// Bytes of the packet, from its first slot.
        total: u16,
        /// Bytes of the fragments past the first.
        fragments: u32,
    },
    /// The packet is shorter than an Ethernet header.
    #[error("packet of {found} bytes, expected at least {ETH_HEADER_BYTES}")]
    TooShort {
        /// Bytes of the packet.
        found: u16,
    },
}

/// Fault for which the vif is disabled, since no working frontend makes it. Slots are numbered from
/// 0 within the packet.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxFatal {
    /// The packet continues past the published slots. Frontends must publish whole packets.
    #[error("packet goes on past the {published} published slots, expected its end")]
    Truncated {
        /// Slots published from the packet's first on.
        published: usize,
    },
    /// The packet has [`SLOTS_FATAL`] data slots or more.
    #[error("packet of {found} slots or more, expected fewer than {SLOTS_FATAL}")]
    TooManySlots {
        /// Data slots seen.
        found: usize,
    },
    /// The packet has more extras than the ring has slots beside the first.
    #[error("packet of {found} extras or more, expected fewer than {TX_RING_ENTRIES}")]
    TooManyExtras {
        /// Extras seen.
        found: usize,
    },
    /// A fragment does not end in the page in which it begins.
    #[error(
        "slot {slot}: bytes {offset} to {offset} + {size}, expected an end at or below {PAGE_BYTES}"
    )]
    CrossesPage {
        /// Number of the slot in the packet.
        slot: usize,
        /// First byte inside the page.
        offset: u16,
        /// Bytes of the fragment.
        size: u16,
    },
    /// An extra is invalid.
    #[error("slot {slot}: {reason}")]
    BadExtra {
        /// Number of the slot in the packet.
        slot: usize,
        /// Fault of the extra.
        reason: ExtraError,
    },
}

/// Result for a chain of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// A packet, or a change of the multicast filter.
    Packet(TxPacket<'a>),
    /// A refused packet. The vif continues.
    Refused(Refused<'a>),
}

/// Result for the first packet of consecutive slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// Number of ring slots consumed, extras included. Each needs one response.
    pub slots: usize,
    /// The packet, or the reason of its refusal.
    pub outcome: Outcome<'a>,
}

impl<'a> Parsed<'a> {
    /// Returns the responses to all consumed slots, in the order of the ring: `status` for data
    /// slots, [`status::NULL`] for extras.
    #[inline]
    pub fn responses(&self, status: i16) -> TxResponses<'a> {
        match &self.outcome {
            Outcome::Packet(packet) => packet.responses(status),
            Outcome::Refused(refused) => refused.responses(status),
        }
    }
}

/// Responses to the slots of one packet, in the order of the ring: the first id, a [`status::NULL`]
/// for each extra, the other ids.
#[derive(Debug, Clone)]
pub struct TxResponses<'a> {
    /// The slots that are still to be answered.
    slots: &'a [[u32; 3]],
    first: bool,
    extras: u8,
    status: i16,
}

impl Iterator for TxResponses<'_> {
    type Item = TxResponse;

    #[inline]
    fn next(&mut self) -> Option<TxResponse> {
        let (&words, later) = self.slots.split_first()?;
        self.slots = later;
        if !self.first && self.extras > 0 {
            self.extras -= 1;
            return Some(TxResponse::NULL);
        }
        self.first = false;
        Some(TxResponse { id: TxRequest::from_words(words).id, status: self.status })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.slots.len(), Some(self.slots.len()))
    }
}

impl ExactSizeIterator for TxResponses<'_> {}

/// Values of a packet's extras. Of two extras of a kind the later one counts, as in stock netback.
#[derive(Default)]
struct Extras {
    count: u8,
    offload: Offload,
    hash: Option<Hash>,
    add: Option<[u8; 6]>,
    remove: Option<[u8; 6]>,
}

impl Extras {
    /// Reads the chain of extras that begins at slot 1.
    fn read(slots: &[[u32; 3]]) -> Result<Self, TxFatal> {
        let mut extras = Self::default();
        let mut slot = 1;
        loop {
            let words = *slots.get(slot).ok_or(TxFatal::Truncated { published: slots.len() })?;
            extras.count =
                extras.count.checked_add(1).ok_or(TxFatal::TooManyExtras { found: slot })?;
            let (extra, more) =
                Extra::from_tx_words(words).map_err(|reason| TxFatal::BadExtra { slot, reason })?;
            match extra {
                Extra::Gso(gso, _) => extras.offload.gso = Some(gso.into()),
                Extra::McastAdd(address) => extras.add = Some(address),
                Extra::McastDel(address) => extras.remove = Some(address),
                Extra::Hash(hash) => extras.hash = Some(hash),
                // Speaks of receive pages only.
                Extra::Xdp { .. } => {}
            }
            slot += 1;
            if !more {
                return Ok(extras);
            }
        }
    }

    /// Returns the change of the multicast filter. If a packet both adds and removes, the addition
    /// counts, as in stock netback.
    fn multicast(&self) -> Option<Multicast> {
        self.add.map(Multicast::Add).or(self.remove.map(Multicast::Remove))
    }
}

fn checksum(flags: TxFlags, segmented: bool) -> Checksum {
    if segmented || flags.contains(TxFlags::CSUM_BLANK) {
        Checksum::Partial
    } else if flags.contains(TxFlags::DATA_VALIDATED) {
        Checksum::Complete
    } else {
        Checksum::Unknown
    }
}

/// Reads the first packet of `slots`. These are private copies of the requests from the backend's
/// consumer index up to the published index. Returns `None` if there are no slots.
///
/// It reads at most 22 data slots and 255 extras, even if the slice is longer. As in stock netback,
/// a request with a multicast extra ends with its extras: its size and [`TxFlags::MORE_DATA`] are
/// ignored. Stock netback requires 14 bytes in the first *fragment*. This function requires them in
/// the whole packet only.
///
/// The result borrows the copies, so they cannot change after their validation:
///
/// ```compile_fail
/// # use grantway_netif::slots::parse_tx;
/// let mut copies = [[0; 3]];
/// let parsed = parse_tx(&copies);
/// copies[0] = [1; 3];
/// drop(parsed);
/// ```
///
/// # Errors
///
/// Returns [`TxFatal`] for a fault that disables the vif. No slot is consumed or answered then.
#[inline]
pub fn parse_tx(slots: &[[u32; 3]]) -> Result<Option<Parsed<'_>>, TxFatal> {
    let Some(&words) = slots.first() else {
        return Ok(None);
    };
    let Some((TxFragment { size, .. }, checksum)) = parse_one(words) else {
        return parse_chain(slots, TxRequest::from_words(words)).map(Some);
    };
    let packet = TxPacket {
        slots: &slots[..1],
        first_size: size,
        len: size,
        extras: 0,
        offload: Offload { checksum, gso: None },
        hash: None,
        multicast: None,
    };
    Ok(Some(Parsed { slots: 1, outcome: Outcome::Packet(packet) }))
}

/// Reads a valid packet of one slot without extras. Most packets are of this kind. Returns `None`
/// for any other slot: [`parse_tx`] reads it together with the slots that follow.
#[inline]
pub fn parse_one(words: [u32; 3]) -> Option<(TxFragment, Checksum)> {
    let TxRequest { gref, offset, flags, id, size } = TxRequest::from_words(words);
    // Where they lie in the slot, which takes fewer steps than to take them out.
    const NOT_ALONE: u32 = (TxFlags::EXTRA_INFO.bits() | TxFlags::MORE_DATA.bits()) as u32;
    let alone = words[1] & NOT_ALONE << 16 == 0;
    let sound = alone && size >= ETH_HEADER_BYTES && in_page(offset, size);
    sound.then(|| (TxFragment { gref, offset, size, id }, checksum(flags, false)))
}

/// Parses slots that are not one plain packet of one slot.
fn parse_chain(slots: &[[u32; 3]], first: TxRequest) -> Result<Parsed<'_>, TxFatal> {
    let extras = if first.flags.contains(TxFlags::EXTRA_INFO) {
        Extras::read(slots)?
    } else {
        Extras::default()
    };
    let offload = Offload {
        checksum: checksum(first.flags, extras.offload.gso.is_some()),
        gso: extras.offload.gso,
    };
    let mut next = 1 + usize::from(extras.count);
    let packet = |next, first_size, len| TxPacket {
        slots: slots.get(..next).unwrap_or(slots),
        first_size,
        len,
        extras: extras.count,
        offload,
        hash: extras.hash,
        multicast: extras.multicast(),
    };
    if extras.multicast().is_some() {
        return Ok(Parsed { slots: next, outcome: Outcome::Packet(packet(next, 0, 0)) });
    }

    let mut count = 1;
    let mut later = 0u32;
    let mut more = first.flags.contains(TxFlags::MORE_DATA);
    while more {
        let words = *slots.get(next).ok_or(TxFatal::Truncated { published: slots.len() })?;
        count += 1;
        if count >= SLOTS_FATAL {
            return Err(TxFatal::TooManySlots { found: count });
        }
        let TxRequest { offset, flags, size, .. } = TxRequest::from_words(words);
        if !in_page(offset, size) {
            return Err(TxFatal::CrossesPage { slot: next, offset, size });
        }
        later += u32::from(size);
        more = flags.contains(TxFlags::MORE_DATA);
        next += 1;
    }

    let first_size = u16::try_from(later).ok().and_then(|later| first.size.checked_sub(later));
    let reason = match first_size {
        _ if count > SLOTS_ACCEPTED => TxRefusal::TooManySlots { found: count },
        None => TxRefusal::FragmentsExceedPacket { total: first.size, fragments: later },
        Some(_) if first.size < ETH_HEADER_BYTES => TxRefusal::TooShort { found: first.size },
        Some(size) => {
            if !in_page(first.offset, size) {
                return Err(TxFatal::CrossesPage { slot: 0, offset: first.offset, size });
            }
            let outcome = Outcome::Packet(packet(next, size, first.size));
            return Ok(Parsed { slots: next, outcome });
        }
    };
    let slots = slots.get(..next).unwrap_or(slots);
    let refused = Refused { slots, extras: extras.count, reason };
    Ok(Parsed { slots: next, outcome: Outcome::Refused(refused) })
}
