//! Receive: frames to responses (backend), responses to frames (frontend).

use crate::extra::{Extra, ExtraError, Hash, has_more};
use crate::offload::{Checksum, NotTcp, Offload};
use crate::rx::{RX_RING_ENTRIES, RxFlags, RxResponse};
use crate::{ETH_HEADER_BYTES, PAGE_BYTES, in_page};
use arrayvec::ArrayVec;
use thiserror::Error;

/// Data slots of a frame that a backend may write: stock netfront takes 18,
/// and one more only where the first is short. Extras are not counted, here
/// and below.
pub const SLOTS_WRITTEN: usize = 18;

/// Data slots of a frame that a frontend accepts.
pub const SLOTS_ACCEPTED: usize = 19;

/// Headroom of Linux's XDP (`XDP_PACKET_HEADROOM`): stock netfront runs a program on the bytes from
/// here on, wherever the response says that they begin.
pub const XDP_HEADROOM: u16 = 256;

/// Largest headroom that a backend leaves free: the rest of the page takes an Ethernet frame of
/// 1500 bytes.
pub const XDP_HEADROOM_MAX: u16 = 2048;

const _: () = assert!(PAGE_BYTES - XDP_HEADROOM_MAX as usize >= 1522);

/// Data slots for `len` bytes where the first page takes `room`; at least one.
const fn data_slots(len: usize, room: usize) -> usize {
    1 + len.saturating_sub(room).div_ceil(PAGE_BYTES)
}

/// Posted requests that a frame of `len` bytes consumes. `room` is how many
/// bytes go into the first page, 4096 less the offset (brought into 1 to 4096);
/// `hash` says that the frame's hash goes with it.
pub const fn rx_slots_needed(len: usize, room: usize, offload: Offload, hash: bool) -> usize {
    let room = match room {
        0 => 1,
        1..=PAGE_BYTES => room,
        _ => PAGE_BYTES,
    };
    data_slots(len, room) + offload.gso.is_some() as usize + hash as usize
}

/// Reason why a frame cannot be written.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RxWriteError {
    /// Shorter than an Ethernet header.
    #[error("frame of {found} bytes, expected at least {ETH_HEADER_BYTES}")]
    TooShort {
        /// Bytes of the frame.
        found: usize,
    },
    /// The offset leaves no room in a page.
    #[error("offset {found}, expected less than {PAGE_BYTES}")]
    OffsetOutOfPage {
        /// The offset given.
        found: u16,
    },
    /// The offset leaves no room for an Ethernet header in the first page: stock
    /// netfront crashes its guest on such a frame (XSA-522).
    #[error("offset {offset} leaves {room} bytes of the page, expected {ETH_HEADER_BYTES}")]
    FirstTooShort {
        /// The offset given.
        offset: u16,
        /// Bytes of the page behind it.
        room: u16,
    },
    /// More pages than a frontend takes.
    #[error("frame of {len} bytes takes {slots} slots, expected at most {SLOTS_WRITTEN}")]
    TooManySlots {
        /// Bytes of the frame.
        len: usize,
        /// Data slots that they take.
        slots: usize,
    },
    /// Segmentation into segments of no bytes: stock netfront drops the frame.
    #[error("segment size 0, expected at least 1")]
    ZeroGsoSize,
    /// Segmentation that netif does not have.
    #[error(transparent)]
    NotTcp(#[from] NotTcp),
}

/// Returns the data slots of a frame of `len` bytes at `offset` in its first page.
#[inline]
fn first_and_rest(len: usize, offset: u16) -> Result<usize, RxWriteError> {
    let room = match PAGE_BYTES.checked_sub(usize::from(offset)) {
        None | Some(0) => return Err(RxWriteError::OffsetOutOfPage { found: offset }),
        Some(room) if room < usize::from(ETH_HEADER_BYTES) => {
            // Below a header.
            return Err(RxWriteError::FirstTooShort { offset, room: room as u16 });
        }
        Some(room) => room,
    };
    match data_slots(len, room) {
        slots if slots > SLOTS_WRITTEN => Err(RxWriteError::TooManySlots { len, slots }),
        slots => Ok(slots),
    }
}

/// Content of one of the requests that a frame consumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RxSlot {
    /// A part of the frame.
    Data {
        /// Start in its page, in bytes.
        offset: u16,
        /// First byte, counted from the frame's start.
        start: usize,
        /// Bytes; 1 to 4096.
        len: u16,
        /// The response's flags.
        flags: RxFlags,
    },
    /// An extra; the request's page stays untouched and goes back with it.
    Extra([u32; 2]),
}

/// Layout of a frame over posted requests: the first part, the extras, the other parts. Each takes
/// one request, and its response goes to the ring index of that very request: stock netfront finds
/// the page by the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RxLayout {
    len: usize,
    offset: u16,
    data: usize,
    flags: RxFlags,
    extras: ArrayVec<[u32; 2], 2>,
}

impl RxLayout {
    /// Lays out a frame of `len` bytes, at `offset` in its first page, whose slot
    /// holds an Ethernet header at least (XSA-522). Segmentation is written with
    /// [`Checksum::Partial`], whatever `offload` says.
    ///
    /// # Errors
    ///
    /// A frame that a stock netfront would drop, or crash on.
    #[inline]
    pub fn new(
        len: usize,
        offset: u16,
        offload: Offload,
        hash: Option<Hash>,
    ) -> Result<Self, RxWriteError> {
        if len < usize::from(ETH_HEADER_BYTES) {
            return Err(RxWriteError::TooShort { found: len });
        }
        let data = first_and_rest(len, offset)?;
        if offload.gso.is_some_and(|gso| gso.size == 0) {
            return Err(RxWriteError::ZeroGsoSize);
        }
        let mut extras = ArrayVec::new();
        if let Some(gso) = offload.gso {
            extras.push(Extra::Gso(gso.try_into()?, 0).to_rx_words(hash.is_some()));
        }
        if let Some(hash) = hash {
            extras.push(Extra::Hash(hash).to_rx_words(false));
        }
        let mut flags = match offload.checksum {
            _ if offload.gso.is_some() => RxFlags::CSUM_BLANK | RxFlags::DATA_VALIDATED,
            Checksum::Partial => RxFlags::CSUM_BLANK | RxFlags::DATA_VALIDATED,
            Checksum::Complete => RxFlags::DATA_VALIDATED,
            Checksum::Unknown => RxFlags::empty(),
        };
        flags.set(RxFlags::EXTRA_INFO, !extras.is_empty());
        Ok(Self { len, offset, data, flags, extras })
    }

    /// Returns the layout of the same frame at another offset in its first page.
    ///
    /// # Errors
    ///
    /// The errors of [`RxLayout::new`] about the offset and the slots.
    pub fn at_offset(&self, offset: u16) -> Result<Self, RxWriteError> {
        let Self { len, offset: _, data: _, flags, ref extras } = *self;
        let data = first_and_rest(len, offset)?;
        Ok(Self { len, offset, data, flags, extras: extras.clone() })
    }

    /// Requests that the frame consumes.
    #[inline]
    pub fn slots(&self) -> usize {
        self.data + self.extras.len()
    }

    /// Returns the content of the request consumed as number `slot`, from 0; None past the last.
    #[inline]
    pub fn slot(&self, slot: usize) -> Option<RxSlot> {
        let part = match slot.checked_sub(1) {
            None => 0,
            Some(behind) => match self.extras.get(behind) {
                Some(&words) => return Some(RxSlot::Extra(words)),
                None => slot - self.extras.len(),
            },
        };
        if part >= self.data {
            return None;
        }
        let first = usize::from(self.offset);
        let (start, offset, mut flags) = match part {
            0 => (0, self.offset, self.flags),
            _ => (part * PAGE_BYTES - first, 0, RxFlags::empty()),
        };
        flags.set(RxFlags::MORE_DATA, part + 1 < self.data);
        // At most a page.
        let len = (self.len - start).min(PAGE_BYTES - usize::from(offset)) as u16;
        Some(RxSlot::Data { offset, start, len, flags })
    }

    /// The response's words for the request consumed as number `slot`, whose
    /// id is `id` (an extra has no room for it); None past the last.
    #[inline]
    pub fn words(&self, slot: usize, id: u16) -> Option<[u32; 2]> {
        Some(match self.slot(slot)? {
            RxSlot::Extra(words) => words,
            RxSlot::Data { offset, len, flags, .. } => RxResponse {
                id,
                offset,
                flags,
                // At most 4096.
                status: len as i16,
            }
            .to_words(),
        })
    }
}

/// A part of a received frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RxFragment {
    /// The id that the backend wrote. It may lie: the page is found by `slot`
    /// and the frontend's own record of that ring index (XSA-376).
    pub id: u16,
    /// First byte inside the page.
    pub offset: u16,
    /// Bytes; `offset + len` is at most 4096. 0 is legal.
    pub len: u16,
    /// Number of the slot among those given to [`parse_rx`].
    pub slot: usize,
}

/// A received frame, over the private copies of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxPacket<'a> {
    /// Its slots, in the order of the ring; judged.
    slots: &'a [[u32; 2]],
    /// Bytes of the whole frame: 14 to 77824.
    pub len: usize,
    /// Slots taken by extras; their pages are untouched, and are posted again.
    pub extras: u8,
    /// Checksum and segmentation. Segmentation implies [`Checksum::Partial`]
    /// even where the backend forgot to say so, so the checksum field must not
    /// be relied on when it is filled in.
    pub offload: Offload,
    /// The hash that the backend sent along.
    pub hash: Option<Hash>,
}

impl<'a> RxPacket<'a> {
    /// The parts in order; at least one and at most [`SLOTS_ACCEPTED`].
    #[inline]
    pub fn fragments(&self) -> RxFragments<'a> {
        RxFragments { slots: self.slots, extras: self.extras.into(), next: 0 }
    }
}

/// The parts of a received frame, in order.
#[derive(Debug, Clone)]
pub struct RxFragments<'a> {
    slots: &'a [[u32; 2]],
    extras: usize,
    next: usize,
}

impl Iterator for RxFragments<'_> {
    type Item = RxFragment;

    #[inline]
    fn next(&mut self) -> Option<RxFragment> {
        let slot = self.next;
        let &words = self.slots.get(slot)?;
        self.next += if slot == 0 { 1 + self.extras } else { 1 };
        let RxResponse { id, offset, status, .. } = RxResponse::from_words(words);
        // Judged to be a length.
        Some(RxFragment { id, offset, len: status as u16, slot })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self.next {
            0 => self.slots.len() - self.extras,
            next => self.slots.len().saturating_sub(next),
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for RxFragments<'_> {}

/// Reason why a frame is dropped, while the vif goes on. All its pages are posted again. Slots are
/// counted from 0, the frame's first.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RxRefusal {
    /// The backend answered with an error.
    #[error("slot {slot}: error status {status}, expected a length")]
    Status {
        /// Number of the slot in the frame.
        slot: usize,
        /// The status, below 0.
        status: i16,
    },
    /// A part that does not end in the page in which it begins.
    #[error(
        "slot {slot}: bytes {offset} to {offset} + {len}, expected an end at or below {PAGE_BYTES}"
    )]
    CrossesPage {
        /// Number of the slot in the frame.
        slot: usize,
        /// First byte inside the page.
        offset: u16,
        /// Bytes of the part.
        len: u16,
    },
    /// An extra that no rule explains.
    #[error("slot {slot}: {reason}")]
    BadExtra {
        /// Number of the slot in the frame.
        slot: usize,
        /// Fault of the extra.
        reason: ExtraError,
    },
    /// The deprecated prefix, which no frontend of ours asks for.
    #[error("slot {slot}: segmentation prefix, expected a segmentation extra")]
    GsoPrefix {
        /// Number of the slot in the frame.
        slot: usize,
    },
    /// More data slots than the protocol lets a backend use.
    #[error("frame of {found} slots, expected at most {SLOTS_ACCEPTED}")]
    TooManySlots {
        /// Data slots of the frame.
        found: usize,
    },
    /// Shorter than an Ethernet header.
    #[error("frame of {found} bytes, expected at least {ETH_HEADER_BYTES}")]
    TooShort {
        /// Bytes of the frame.
        found: usize,
    },
}

/// Error that keeps a frontend from reading on.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RxFatal {
    /// The frame goes on past what was published. Stock backends publish whole
    /// frames and stock netfront drops such a one, but it is harmless to look
    /// again after the next event: nothing was consumed, and the ring's end
    /// bounds the wait.
    #[error("frame goes on past the {published} published slots, expected its end")]
    Incomplete {
        /// Slots published from the frame's first on.
        published: usize,
    },
    /// The frame goes on though it has taken the whole ring, so its end can
    /// never come: the vif is disabled.
    #[error("frame of {found} slots has no end, expected one within {RX_RING_ENTRIES}")]
    Endless {
        /// Slots of the frame so far.
        found: usize,
    },
}

/// Result for a chain of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxOutcome<'a> {
    /// A frame.
    Packet(RxPacket<'a>),
    /// Dropped; the vif goes on.
    Refused(RxRefusal),
}

/// The first frame of a run of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxParsed<'a> {
    /// Slots consumed, extras included. Each gave a page back.
    pub slots: usize,
    /// Result for these responses.
    pub outcome: RxOutcome<'a>,
}

/// Reads the first frame of `slots`, the private copies of consecutive
/// responses from the frontend's consumer index up to what was published. None
/// where there are no slots. At most 256 slots are looked at.
///
/// A frame with something wrong is read to its end all the same, so that each
/// of its pages is accounted for; the first thing found is the reason.
///
/// # Errors
///
/// A frame without an end; see [`RxFatal`] for which of the two is hostile.
#[inline]
pub fn parse_rx(slots: &[[u32; 2]]) -> Result<Option<RxParsed<'_>>, RxFatal> {
    let Some(&words) = slots.first() else {
        return Ok(None);
    };
    let Some((RxResponse { status, .. }, checksum)) = parse_one(words) else {
        return parse_chain(slots).map(Some);
    };
    let packet = RxPacket {
        slots: &slots[..1],
        // At most a page, and not negative.
        len: status as usize,
        extras: 0,
        offload: Offload { checksum, gso: None },
        hash: None,
    };
    Ok(Some(RxParsed { slots: 1, outcome: RxOutcome::Packet(packet) }))
}

/// All that a frame of one slot says where it is sound and says nothing but the
/// state of its checksum: most are so, and `status` is the length then, 14 to 4096.
/// None for any other slot: [`parse_rx`] judges it together with those behind.
#[inline]
pub fn parse_one(words: [u32; 2]) -> Option<(RxResponse, Checksum)> {
    let response = RxResponse::from_words(words);
    let not_alone = RxFlags::EXTRA_INFO | RxFlags::MORE_DATA | RxFlags::GSO_PREFIX;
    let len = u16::try_from(response.status).ok()?;
    let sound = !response.flags.intersects(not_alone)
        & (len >= ETH_HEADER_BYTES)
        & in_page(response.offset, len);
    sound.then(|| (response, checksum(response.flags)))
}

/// Parses responses that are not one plain frame of one slot.
fn parse_chain(slots: &[[u32; 2]]) -> Result<RxParsed<'_>, RxFatal> {
    let mut reader =
        Reader { slots: slots.get(..RX_RING_ENTRIES).unwrap_or(slots), next: 0, refusal: None };
    let mut packet =
        RxPacket { slots: &[], len: 0, extras: 0, offload: Offload::default(), hash: None };
    let mut count = 0;
    loop {
        let slot = reader.next;
        let response = RxResponse::from_words(reader.take()?);
        count += 1;
        packet.len += usize::from(reader.part(slot, response));
        if count == 1 {
            // Only the first response describes the frame and has extras.
            packet.offload.checksum = checksum(response.flags);
            if response.flags.contains(RxFlags::EXTRA_INFO) {
                reader.extras(&mut packet)?;
            }
        }
        if !response.flags.contains(RxFlags::MORE_DATA) {
            break;
        }
    }
    if packet.offload.gso.is_some() {
        packet.offload.checksum = Checksum::Partial;
    }
    if count > SLOTS_ACCEPTED {
        reader.refuse(RxRefusal::TooManySlots { found: count });
    }
    if packet.len < usize::from(ETH_HEADER_BYTES) {
        reader.refuse(RxRefusal::TooShort { found: packet.len });
    }
    packet.slots = slots.get(..reader.next).unwrap_or(slots);
    Ok(RxParsed {
        slots: reader.next,
        outcome: match reader.refusal {
            Some(reason) => RxOutcome::Refused(reason),
            None => RxOutcome::Packet(packet),
        },
    })
}

fn checksum(flags: RxFlags) -> Checksum {
    if flags.contains(RxFlags::CSUM_BLANK) {
        Checksum::Partial
    } else if flags.contains(RxFlags::DATA_VALIDATED) {
        Checksum::Complete
    } else {
        Checksum::Unknown
    }
}

/// Walks a chain of responses and remembers the first thing wrong with it.
struct Reader<'a> {
    slots: &'a [[u32; 2]],
    next: usize,
    refusal: Option<RxRefusal>,
}

impl Reader<'_> {
    fn take(&mut self) -> Result<[u32; 2], RxFatal> {
        let found = self.slots.len();
        let words = self.slots.get(self.next).copied();
        self.next += 1;
        words.ok_or(if found < RX_RING_ENTRIES {
            RxFatal::Incomplete { published: found }
        } else {
            RxFatal::Endless { found }
        })
    }

    fn refuse(&mut self, reason: RxRefusal) {
        self.refusal.get_or_insert(reason);
    }

    /// The bytes of a part; none where there is something wrong with it.
    fn part(&mut self, slot: usize, response: RxResponse) -> u16 {
        let RxResponse { offset, flags, status, .. } = response;
        let Ok(len) = u16::try_from(status) else {
            self.refuse(RxRefusal::Status { slot, status });
            return 0;
        };
        if flags.contains(RxFlags::GSO_PREFIX) {
            self.refuse(RxRefusal::GsoPrefix { slot });
            return 0;
        }
        if !in_page(offset, len) {
            self.refuse(RxRefusal::CrossesPage { slot, offset, len });
            return 0;
        }
        len
    }

    fn extras(&mut self, packet: &mut RxPacket<'_>) -> Result<(), RxFatal> {
        loop {
            let slot = self.next;
            let words = self.take()?;
            // The ring's end bounds the count below 256.
            packet.extras = packet.extras.saturating_add(1);
            match Extra::from_words(words) {
                Ok((Extra::Gso(gso, _), _)) => packet.offload.gso = Some(gso.into()),
                Ok((Extra::Hash(hash), _)) => packet.hash = Some(hash),
                // Stock netfront passes filters over, too. Linux's netback tells
                // of headroom whoever asked for it, as no frontend of ours does.
                Ok((Extra::McastAdd(_) | Extra::McastDel(_) | Extra::Xdp { .. }, _)) => {}
                Err(reason) => self.refuse(RxRefusal::BadExtra { slot, reason }),
            }
            if !has_more(words) {
                return Ok(());
            }
        }
    }
}
