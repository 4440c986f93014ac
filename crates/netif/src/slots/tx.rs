//! Transmit: requests to packets (backend), packets to requests (frontend),
//! and the answers to every slot.

use crate::extra::{Extra, ExtraError, Hash};
use crate::offload::{Checksum, Offload};
#[cfg(doc)]
use crate::tx::status;
use crate::tx::{TX_RING_ENTRIES, TxFlags, TxRequest, TxResponse};
use crate::{ETH_HEADER_BYTES, PAGE_BYTES, in_page};
use arrayvec::ArrayVec;
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

/// Most data slots of a packet that is refused and not fatal.
const SLOTS_REFUSED: usize = SLOTS_FATAL - 1;

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
    /// Whether there is nothing to fetch: no grant operation may be made for
    /// such a fragment (XSA-448). It is answered with the others.
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

/// A packet from a guest, or a change of its multicast filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxPacket {
    /// The pieces in order, the first one's size worked out; at least one.
    /// Their sizes sum up to `len`.
    pub fragments: ArrayVec<TxFragment, SLOTS_ACCEPTED>,
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

impl TxPacket {
    /// Ring slots that the packet took.
    pub fn slots(&self) -> usize {
        self.fragments.len() + usize::from(self.extras)
    }

    /// The answers to each of its slots, in the order of the ring.
    pub fn responses(&self, status: i16) -> TxResponses<'_> {
        TxResponses::new(Ids::Fragments(&self.fragments), self.extras, status)
    }
}

/// A packet that is not taken, while the vif goes on. Its slots are consumed
/// and answered, usually with [`status::ERROR`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The ids of its data slots in order; at least one.
    pub ids: ArrayVec<u16, SLOTS_REFUSED>,
    /// Ring slots taken by extras; they come after the first id's.
    pub extras: u8,
    /// Why.
    pub reason: TxRefusal,
}

impl Refused {
    /// The answers to each of its slots, in the order of the ring.
    pub fn responses(&self, status: i16) -> TxResponses<'_> {
        TxResponses::new(Ids::Plain(&self.ids), self.extras, status)
    }
}

/// Why a packet is refused. Odd, but buggy frontends do it.
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

/// What disables the vif: no working frontend does it. Slots are counted from
/// 0, the packet's first.
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
        /// Which slot of the packet.
        slot: usize,
        /// First byte inside the page.
        offset: u16,
        /// Bytes of the fragment.
        size: u16,
    },
    /// An extra that no rule explains.
    #[error("slot {slot}: {reason}")]
    BadExtra {
        /// Which slot of the packet.
        slot: usize,
        /// What is wrong with it.
        reason: ExtraError,
    },
}

/// What became of a chain of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A packet, or a change of the multicast filter.
    Packet(TxPacket),
    /// Not taken; the vif goes on.
    Refused(Refused),
}

/// The first packet of a run of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Ring slots consumed, extras included; each wants one answer.
    pub slots: usize,
    /// What they were.
    pub outcome: Outcome,
}

impl Parsed {
    /// The answers to each consumed slot, in the order of the ring: `status`
    /// for data slots, [`status::NULL`] for extras.
    pub fn responses(&self, status: i16) -> TxResponses<'_> {
        match &self.outcome {
            Outcome::Packet(packet) => packet.responses(status),
            Outcome::Refused(refused) => refused.responses(status),
        }
    }
}

/// Where the answers find their ids.
#[derive(Debug, Clone)]
enum Ids<'a> {
    Fragments(&'a [TxFragment]),
    Plain(&'a [u16]),
}

impl Ids<'_> {
    fn get(&self, index: usize) -> Option<u16> {
        match self {
            Self::Fragments(fragments) => fragments.get(index).map(|fragment| fragment.id),
            Self::Plain(ids) => ids.get(index).copied(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Fragments(fragments) => fragments.len(),
            Self::Plain(ids) => ids.len(),
        }
    }
}

/// The answers to the slots of one packet, one each, in the order of the ring:
/// the first id, a [`status::NULL`] for each extra, the other ids.
#[derive(Debug, Clone)]
pub struct TxResponses<'a> {
    ids: Ids<'a>,
    next: usize,
    extras: u8,
    status: i16,
}

impl<'a> TxResponses<'a> {
    fn new(ids: Ids<'a>, extras: u8, status: i16) -> Self {
        Self { ids, next: 0, extras, status }
    }
}

impl Iterator for TxResponses<'_> {
    type Item = TxResponse;

    fn next(&mut self) -> Option<TxResponse> {
        if self.next > 0 && self.extras > 0 {
            self.extras -= 1;
            return Some(TxResponse::NULL);
        }
        let id = self.ids.get(self.next)?;
        self.next += 1;
        Some(TxResponse { id, status: self.status })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.ids.len().saturating_sub(self.next) + usize::from(self.extras);
        (left, Some(left))
    }
}

impl ExactSizeIterator for TxResponses<'_> {}

/// What the extras of a packet say. Of two of a kind the later one counts, as
/// in stock netback.
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
                Extra::Gso(gso, _) => extras.offload.gso = Some(gso),
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

    /// Where both are there, stock netback takes the address to add.
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
/// # Errors
///
/// What disables the vif; nothing is consumed then, and no slot is answered.
pub fn parse_tx(slots: &[[u32; 3]]) -> Result<Option<Parsed>, TxFatal> {
    let Some(&words) = slots.first() else {
        return Ok(None);
    };
    let first = TxRequest::from_words(words);
    let extras = if first.flags.contains(TxFlags::EXTRA_INFO) {
        Extras::read(slots)?
    } else {
        Extras::default()
    };
    let offload = Offload {
        checksum: checksum(first.flags, extras.offload.gso.is_some()),
        gso: extras.offload.gso,
    };
    let mut packet = TxPacket {
        fragments: ArrayVec::new(),
        len: first.size,
        extras: extras.count,
        offload,
        hash: extras.hash,
        multicast: extras.multicast(),
    };
    packet.fragments.push(TxFragment {
        gref: first.gref,
        offset: first.offset,
        size: 0,
        id: first.id,
    });
    let mut next = 1 + usize::from(extras.count);
    if packet.multicast.is_some() {
        packet.len = 0;
        return Ok(Some(Parsed { slots: next, outcome: Outcome::Packet(packet) }));
    }

    // Ids past what a packet can hold; only a refused packet has them.
    let mut surplus: ArrayVec<u16, { SLOTS_REFUSED - SLOTS_ACCEPTED }> = ArrayVec::new();
    let mut count = 1;
    let mut later = 0u32;
    let mut more = first.flags.contains(TxFlags::MORE_DATA);
    while more {
        let words = *slots.get(next).ok_or(TxFatal::Truncated { published: slots.len() })?;
        count += 1;
        if count >= SLOTS_FATAL {
            return Err(TxFatal::TooManySlots { found: count });
        }
        let TxRequest { gref, offset, flags, id, size } = TxRequest::from_words(words);
        if !in_page(offset, size) {
            return Err(TxFatal::CrossesPage { slot: next, offset, size });
        }
        let fragment = TxFragment { gref, offset, size, id };
        if packet.fragments.try_push(fragment).is_err() {
            // `count` bounds what can come here to the room there is.
            let _ = surplus.try_push(id);
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
            if let Some(fragment) = packet.fragments.first_mut() {
                fragment.size = size;
            }
            return Ok(Some(Parsed { slots: next, outcome: Outcome::Packet(packet) }));
        }
    };
    let ids = packet.fragments.iter().map(|fragment| fragment.id);
    Ok(Some(Parsed {
        slots: next,
        outcome: Outcome::Refused(Refused {
            ids: ids.chain(surplus).take(SLOTS_REFUSED).collect(),
            extras: packet.extras,
            reason,
        }),
    }))
}

/// Why a packet cannot be written.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxWriteError {
    /// Not between 1 and [`SLOTS_SENT`] fragments.
    #[error("packet of {found} fragments, expected 1 to {SLOTS_SENT}")]
    FragmentCount {
        /// Fragments given.
        found: usize,
    },
    /// The fragments are not the packet.
    #[error("packet of {len} bytes whose fragments have {sum}")]
    LengthMismatch {
        /// Bytes of the packet, as given.
        len: u16,
        /// Bytes of its fragments.
        sum: u32,
    },
    /// A fragment that does not end in the page in which it begins.
    #[error(
        "fragment {fragment}: bytes {offset} to {offset} + {size}, expected an end at or below {PAGE_BYTES}"
    )]
    CrossesPage {
        /// Which fragment.
        fragment: usize,
        /// First byte inside the page.
        offset: u16,
        /// Bytes of the fragment.
        size: u16,
    },
    /// A fragment of no bytes. Legal, but a netback without the cure of
    /// XSA-448 crashes on it.
    #[error("fragment {fragment} is empty, expected at least 1 byte")]
    EmptyFragment {
        /// Which fragment.
        fragment: usize,
    },
    /// The first fragment is shorter than an Ethernet header: stock netback
    /// refuses such a packet.
    #[error("first fragment of {found} bytes, expected at least {ETH_HEADER_BYTES}")]
    ShortFirstFragment {
        /// Bytes of the first fragment.
        found: u16,
    },
    /// Segmentation into segments of no bytes: stock netback disables the vif.
    #[error("segment size 0, expected at least 1")]
    ZeroGsoSize,
    /// A change of the multicast filter goes with one empty fragment.
    #[error("multicast change with {fragments} fragments and {len} bytes, expected 1 and 0")]
    MulticastWithData {
        /// Fragments given.
        fragments: usize,
        /// Bytes of the packet, as given.
        len: u16,
    },
    /// The list has no room for the packet's slots.
    #[error("packet of {needed} slots, room for {room}")]
    NoRoom {
        /// Slots of the packet.
        needed: usize,
        /// Slots that the list can still take.
        room: usize,
    },
}

/// Appends the requests of one packet to `out`, in the order of the ring: the
/// inverse of [`parse_tx`]. `out` is untouched on error.
///
/// `len` is the packet's bytes. Segmentation is written with
/// [`Checksum::Partial`], whatever `offload` says. A change of the multicast
/// filter takes one empty fragment (its gref is not looked at) and `len` 0.
///
/// # Errors
///
/// A packet that a stock netback would drop or disable the vif for, and no
/// room.
pub fn write_tx(
    fragments: &[TxFragment],
    len: u16,
    offload: Offload,
    hash: Option<Hash>,
    multicast: Option<Multicast>,
    out: &mut ArrayVec<[u32; 3], SLOTS_WRITTEN>,
) -> Result<(), TxWriteError> {
    check_fragments(fragments, len, multicast.is_some())?;
    if offload.gso.is_some_and(|gso| gso.size == 0) {
        return Err(TxWriteError::ZeroGsoSize);
    }
    let mut extras: ArrayVec<Extra, 3> = ArrayVec::new();
    let multicast = multicast.map(|change| match change {
        Multicast::Add(address) => Extra::McastAdd(address),
        Multicast::Remove(address) => Extra::McastDel(address),
    });
    let gso = offload.gso.map(|gso| Extra::Gso(gso, 0));
    extras.extend([gso, multicast, hash.map(Extra::Hash)].into_iter().flatten());
    let needed = fragments.len() + extras.len();
    if needed > out.remaining_capacity() {
        return Err(TxWriteError::NoRoom { needed, room: out.remaining_capacity() });
    }

    let segmented = offload.gso.is_some();
    let mut described = match offload.checksum {
        _ if segmented => TxFlags::CSUM_BLANK | TxFlags::DATA_VALIDATED,
        Checksum::Partial => TxFlags::CSUM_BLANK | TxFlags::DATA_VALIDATED,
        Checksum::Complete => TxFlags::DATA_VALIDATED,
        Checksum::Unknown => TxFlags::empty(),
    };
    described.set(TxFlags::EXTRA_INFO, !extras.is_empty());
    for (index, fragment) in fragments.iter().enumerate() {
        let mut request = TxRequest {
            gref: fragment.gref,
            offset: fragment.offset,
            flags: TxFlags::empty(),
            id: fragment.id,
            size: fragment.size,
        };
        if index == 0 {
            request.flags = described;
            request.size = len;
        }
        request.flags.set(TxFlags::MORE_DATA, index + 1 < fragments.len());
        out.push(request.to_words());
        if index == 0 {
            for (index, extra) in extras.iter().enumerate() {
                out.push(extra.to_tx_words(index + 1 < extras.len()));
            }
        }
    }
    Ok(())
}

fn check_fragments(
    fragments: &[TxFragment],
    len: u16,
    multicast: bool,
) -> Result<(), TxWriteError> {
    if multicast {
        return match fragments {
            [one] if one.is_empty() && len == 0 => Ok(()),
            _ => Err(TxWriteError::MulticastWithData { fragments: fragments.len(), len }),
        };
    }
    let first = match fragments {
        [first, ..] if fragments.len() <= SLOTS_SENT => first,
        _ => {
            return Err(TxWriteError::FragmentCount { found: fragments.len() });
        }
    };
    let mut sum = 0u32;
    for (fragment, piece) in fragments.iter().enumerate() {
        if piece.is_empty() {
            return Err(TxWriteError::EmptyFragment { fragment });
        }
        if !in_page(piece.offset, piece.size) {
            return Err(TxWriteError::CrossesPage {
                fragment,
                offset: piece.offset,
                size: piece.size,
            });
        }
        sum += u32::from(piece.size);
    }
    if sum != u32::from(len) {
        return Err(TxWriteError::LengthMismatch { len, sum });
    }
    if first.size < ETH_HEADER_BYTES {
        return Err(TxWriteError::ShortFirstFragment { found: first.size });
    }
    Ok(())
}
