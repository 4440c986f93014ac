//! Receive ring: frames to responses (backend), and responses to frames (frontend).

use crate::extra::{Extra, ExtraError, Hash, has_more};
use crate::offload::{Checksum, NotTcp, Offload};
use crate::rx::{RX_RING_ENTRIES, RxFlags, RxResponse};
use crate::{ETH_HEADER_BYTES, PAGE_BYTES, in_page};
use arrayvec::ArrayVec;
use thiserror::Error;

/// Most data slots of a frame that a backend writes. Stock netfront accepts 18, and one more only
/// if the first is short. Extras do not count.
pub const SLOTS_WRITTEN: usize = 18;

/// Most data slots of a frame that a frontend accepts. Extras do not count.
pub const SLOTS_ACCEPTED: usize = 19;

/// Headroom of Linux's XDP (`XDP_PACKET_HEADROOM`), in bytes. Stock netfront runs an XDP program on
/// the bytes from this offset on, and ignores the offset of the response.
pub const XDP_HEADROOM: u16 = 256;

/// Largest headroom that a backend leaves free, in bytes. The rest of the page has room for an
/// Ethernet frame with an MTU of 1500 bytes.
pub const XDP_HEADROOM_MAX: u16 = 2048;

const _: () = assert!(PAGE_BYTES - XDP_HEADROOM_MAX as usize >= 1522);

/// Data slots for `len` bytes where the first page takes `room`; at least one.
const fn data_slots(len: usize, room: usize) -> usize {
    1 + len.saturating_sub(room).div_ceil(PAGE_BYTES)
}

/// Returns the number of posted requests that a frame of `len` bytes consumes, extras included.
/// `room` is the space in the first page: 4096 minus the offset, limited to 1 to 4096. `hash` is
/// true if the frame's hash is sent.
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
    /// The frame is shorter than an Ethernet header.
    #[error("frame of {found} bytes, expected at least {ETH_HEADER_BYTES}")]
    TooShort {
        /// Bytes of the frame.
        found: usize,
    },
    /// The offset is beyond the page.
    #[error("offset {found}, expected less than {PAGE_BYTES}")]
    OffsetOutOfPage {
        /// The offset given.
        found: u16,
    },
    /// The offset leaves no room for an Ethernet header in the first page. Stock netfront crashes
    /// its guest on a frame of this kind (XSA-522).
    #[error("offset {offset} leaves {room} bytes of the page, expected {ETH_HEADER_BYTES}")]
    FirstTooShort {
        /// The offset given.
        offset: u16,
        /// Bytes of the page behind it.
        room: u16,
    },
    /// The frame needs more pages than a frontend accepts.
    #[error("frame of {len} bytes takes {slots} slots, expected at most {SLOTS_WRITTEN}")]
    TooManySlots {
        /// Bytes of the frame.
        len: usize,
        /// Data slots that the frame needs.
        slots: usize,
    },
    /// The segment size is 0. Stock netfront drops such a frame.
    #[error("segment size 0, expected at least 1")]
    ZeroGsoSize,
    /// netif cannot express the segmentation.
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
        /// Offset of the first byte in the frame.
        start: usize,
        /// Number of bytes, 1 to 4096.
        len: u16,
        /// Flags of the response.
        flags: RxFlags,
    },
    /// An extra. The page of the request is returned unchanged.
    Extra([u32; 2]),
}

/// Layout of a frame over posted requests, in this order: the first part, the extras, the other
/// parts. Each takes one request. The response must have the ring index of its request, since stock
/// netfront finds the page by the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RxLayout {
    len: usize,
    offset: u16,
    data: usize,
    flags: RxFlags,
    extras: ArrayVec<[u32; 2], 2>,
}

impl RxLayout {
    /// Lays out a frame of `len` bytes that begins at `offset` in its first page. The first slot
    /// must have room for an Ethernet header (XSA-522). With segmentation, [`Checksum::Partial`] is
    /// written, whatever `offload` has.
    ///
    /// # Errors
    ///
    /// Returns [`RxWriteError`] for a frame that stock netfront would drop or crash on.
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

    /// Returns the layout of this frame at another offset in its first page.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`RxLayout::new`] about the offset and the slots.
    pub fn at_offset(&self, offset: u16) -> Result<Self, RxWriteError> {
        let Self { len, offset: _, data: _, flags, ref extras } = *self;
        let data = first_and_rest(len, offset)?;
        Ok(Self { len, offset, data, flags, extras: extras.clone() })
    }

    /// Returns the number of requests that the frame consumes.
    #[inline]
    pub fn slots(&self) -> usize {
        self.data + self.extras.len()
    }

    /// Returns the content of the request that is consumed as number `slot`, from 0. Returns `None`
    /// past the last request.
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

    /// Returns the words of the response to the request that is consumed as number `slot`, from 0.
    /// `id` is the id of the request. An extra has no field for it. Returns `None` past the last
    /// request.
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

/// Part of a received frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RxFragment {
    /// The id that the backend wrote. Do not trust it: the frontend finds the page by `slot` and
    /// its own record of the ring index (XSA-376).
    pub id: u16,
    /// Offset of the first byte in the page.
    pub offset: u16,
    /// Number of bytes. `offset + len` is at most 4096. 0 is valid.
    pub len: u16,
    /// Index of the slot in the argument of [`parse_rx`].
    pub slot: usize,
}

/// Received frame. It borrows the private copies of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxPacket<'a> {
    /// Its slots, in the order of the ring; judged.
    slots: &'a [[u32; 2]],
    /// Bytes of the whole frame, 14 to 77824.
    pub len: usize,
    /// Number of slots with extras. Their pages are unchanged, and can be posted again.
    pub extras: u8,
    /// Checksum and segmentation. With segmentation the checksum is [`Checksum::Partial`], even if
    /// the backend did not set the flag. So code that completes the checksum must not rely on the
    /// content of its field.
    pub offload: Offload,
    /// Hash that the backend sent with the frame.
    pub hash: Option<Hash>,
}

impl<'a> RxPacket<'a> {
    /// Returns the parts in order: at least one, at most [`SLOTS_ACCEPTED`].
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

/// Reason why a frame is dropped. The vif continues, and all pages of the frame can be posted
/// again. Slots are numbered from 0 within the frame.
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
    /// A part does not end in the page in which it begins.
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
    /// An extra is invalid.
    #[error("slot {slot}: {reason}")]
    BadExtra {
        /// Number of the slot in the frame.
        slot: usize,
        /// Fault of the extra.
        reason: ExtraError,
    },
    /// A response has the deprecated flag [`RxFlags::GSO_PREFIX`], which this frontend never
    /// requests.
    #[error("slot {slot}: segmentation prefix, expected a segmentation extra")]
    GsoPrefix {
        /// Number of the slot in the frame.
        slot: usize,
    },
    /// The frame has more data slots than the protocol allows.
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

/// Error after which a frontend cannot read the next frame.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RxFatal {
    /// The frame continues past the published slots. Stock backends publish whole frames, and stock
    /// netfront drops the frame. A frontend may also try again after the next event: no slot was
    /// consumed, and the size of the ring bounds the wait.
    #[error("frame goes on past the {published} published slots, expected its end")]
    Incomplete {
        /// Slots published from the frame's first on.
        published: usize,
    },
    /// The frame has taken the whole ring and still continues. Its end can never come, so the vif
    /// must be disabled.
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
    /// A refused frame. The vif continues.
    Refused(RxRefusal),
}

/// Result for the first frame of consecutive responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxParsed<'a> {
    /// Number of slots consumed, extras included. Each returned a page.
    pub slots: usize,
    /// The frame, or the reason of its refusal.
    pub outcome: RxOutcome<'a>,
}

/// Reads the first frame of `slots`. These are private copies of the responses from the frontend's
/// consumer index up to the published index. Returns `None` if there are no slots. Reads at most
/// 256 slots.
///
/// A faulty frame is read to its end, so that the frontend gets all its pages back. The reason of
/// the refusal is the first fault.
///
/// # Errors
///
/// Returns [`RxFatal`] for a frame without an end. Its variants distinguish an incomplete frame
/// from a hostile one.
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

/// Reads a valid frame of one slot without extras. Most frames are of this kind. `status` is then
/// the length in bytes, 14 to 4096. Returns `None` for any other slot: [`parse_rx`] reads it
/// together with the slots that follow.
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
