//! Transmit: requests to packets (backend), packets to requests (frontend),
//! and the answers to every slot.

mod write;

pub use write::{TxWriteError, write_again, write_one, write_tx};

use crate::extra::{Extra, ExtraError, Hash};
use crate::offload::{Checksum, Offload};
#[cfg(doc)]
use crate::tx::status;
use crate::tx::{TX_RING_ENTRIES, TxFlags, TxRequest, TxResponse};
use crate::{ETH_HEADER_BYTES, PAGE_BYTES, in_page};
use thiserror::Error;

/// Data slots of a packet that a frontend may send
/// (`XEN_NETIF_NR_SLOTS_MIN`). Extras are not counted, here and below.
pub const SLOTS_SENT: usize = 18;

/// Data slots of a packet that a backend accepts: stock netback takes 18
/// beside the first.
pub const SLOTS_ACCEPTED: usize = 19;

/// Data slots that no honest frontend sends: from here on the vif is disabled;
/// from [`SLOTS_ACCEPTED`] up to here the packet is dropped.
pub const SLOTS_FATAL: usize = 22;

/// Room for the slots that [`write_tx`] appends: [`SLOTS_SENT`] and one of
/// each extra, with some to spare.
pub const SLOTS_WRITTEN: usize = 24;

const _: () = assert!(SLOTS_SENT + 3 <= SLOTS_WRITTEN);

/// One piece of a packet, inside one page.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TxFragment {
    /// Grant of the page.
    pub gref: u32,
    /// First byte inside the page.
    pub offset: u16,
    /// Bytes of this piece; `offset + size` is at most 4096. 0 is legal, and
    /// then there is nothing to copy or map (see [`TxFragment::is_empty`]).
    pub size: u16,
    /// The request's id.
    pub id: u16,
}

impl TxFragment {
    /// Returns true if there is nothing to fetch: no grant operation may be made for an empty
    /// fragment (XSA-448). It is answered with the others.
    pub const fn is_empty(&self) -> bool {
        self.size == 0
    }
}

/// A change of the multicast filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Multicast {
    /// Let packets to this address through.
    Add([u8; 6]),
    /// No longer let packets to this address through.
    Remove([u8; 6]),
}

/// A packet from a guest, or a change of its multicast filter, over the private
/// copies of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxPacket<'a> {
    /// Its slots, in the order of the ring; judged.
    slots: &'a [[u32; 3]],
    /// Bytes of the first fragment, worked out.
    first_size: u16,
    /// Bytes of the whole packet: 14 to 65535, or 0 where `multicast` is set.
    pub len: u16,
    /// Ring slots taken by extras; they come after the first fragment's.
    pub extras: u8,
    /// Checksum and segmentation. Segmentation implies
    /// [`Checksum::Partial`] even where the frontend forgot to say so, so the
    /// checksum field must not be relied on when it is filled in.
    pub offload: Offload,
    /// The hash that the frontend sent along.
    pub hash: Option<Hash>,
    /// Set: this is no packet. It has a single empty fragment, for its id, and
    /// is answered [`status::OKAY`], or [`status::ERROR`] where the filter is
    /// full.
    pub multicast: Option<Multicast>,
}

impl<'a> TxPacket<'a> {
    /// Ring slots that the packet took.
    #[inline]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The pieces in order, at least one and at most [`SLOTS_ACCEPTED`]. Their
    /// sizes sum up to `len`.
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

    /// The answers to each of its slots, in the order of the ring.
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

/// A packet that is not taken, while the vif goes on. Its slots are consumed
/// and answered, usually with [`status::ERROR`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Its slots, in the order of the ring; at least one.
    slots: &'a [[u32; 3]],
    /// Ring slots taken by extras; they come after the first data slot's.
    pub extras: u8,
    /// Reason of the refusal.
    pub reason: TxRefusal,
}

impl<'a> Refused<'a> {
    /// The answers to each of its slots, in the order of the ring.
    pub fn responses(&self, status: i16) -> TxResponses<'a> {
        TxResponses { slots: self.slots, first: true, extras: self.extras, status }
    }
}

/// Reason why a packet is refused. Odd, but buggy frontends do it.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxRefusal {
    /// More slots than the protocol lets a frontend use.
    #[error("packet of {found} slots, expected at most {SLOTS_ACCEPTED}")]
    TooManySlots {
        /// Data slots of the packet.
        found: usize,
    },
    /// The later fragments are longer than the packet. A frame of 64 KiB or
    /// more, whose size has run over, looks like this.
    #[error("packet of {total} bytes whose fragments past the first have {fragments}")]
    FragmentsExceedPacket {
        /// Bytes of the packet, from its first slot.
        total: u16,
        /// Bytes of the fragments past the first.
        fragments: u32,
    },
    /// Shorter than an Ethernet header.
    #[error("packet of {found} bytes, expected at least {ETH_HEADER_BYTES}")]
    TooShort {
        /// Bytes of the packet.
        found: u16,
    },
}

/// Fault that disables the vif: no working frontend does it. Slots are counted from 0, the packet's
/// first.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxFatal {
    /// The chain goes on past what was published. Frontends publish whole
    /// packets.
    #[error("packet goes on past the {published} published slots, expected its end")]
    Truncated {
        /// Slots published from the packet's first on.
        published: usize,
    },
    /// An absurd number of data slots.
    #[error("packet of {found} slots or more, expected fewer than {SLOTS_FATAL}")]
    TooManySlots {
        /// Data slots seen.
        found: usize,
    },
    /// More extras than the ring has slots beside the first.
    #[error("packet of {found} extras or more, expected fewer than {TX_RING_ENTRIES}")]
    TooManyExtras {
        /// Extras seen.
        found: usize,
    },
    /// A fragment that does not end in the page in which it begins.
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
    /// An extra that no rule explains.
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
    /// Not taken; the vif goes on.
    Refused(Refused<'a>),
}

/// The first packet of a run of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// Ring slots consumed, extras included; each wants one answer.
    pub slots: usize,
    /// Result for these slots.
    pub outcome: Outcome<'a>,
}

impl<'a> Parsed<'a> {
    /// The answers to each consumed slot, in the order of the ring: `status`
    /// for data slots, [`status::NULL`] for extras.
    #[inline]
    pub fn responses(&self, status: i16) -> TxResponses<'a> {
        match &self.outcome {
            Outcome::Packet(packet) => packet.responses(status),
            Outcome::Refused(refused) => refused.responses(status),
        }
    }
}

/// The answers to the slots of one packet, one each, in the order of the ring:
/// the first id, a [`status::NULL`] for each extra, the other ids.
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

/// Reads the first packet of `slots`, the private copies of consecutive
/// requests from the backend's consumer index up to what was published. None
/// where there are no slots.
///
/// At most 22 data slots and 255 extras are looked at, however long the slice.
/// As in stock netback, a request with a multicast extra ends with its extras:
/// its size and [`TxFlags::MORE_DATA`] are not looked at. Unlike stock netback,
/// which wants the first *fragment* to have 14 bytes, a packet needs only have
/// them as a whole.
///
/// What was parsed keeps the copies from being written, so that what was judged
/// does not change:
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
/// What disables the vif; nothing is consumed then, and no slot is answered.
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

/// All that a packet of one slot says where it is sound and says nothing but the
/// state of its checksum: most are so. None for any other slot: [`parse_tx`] judges
/// it together with those behind.
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
