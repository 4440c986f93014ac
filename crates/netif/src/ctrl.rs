//! The control ring: hashing and static grants, asked for by the frontend.
//!
//! One request, one response; responses may come in another order. The ring
//! works only once the backend is Connected.

use crate::PAGE_BYTES;
use arrayvec::ArrayVec;
use bitflags::bitflags;
use core::ops::Range;
use thiserror::Error;

/// Bytes of a control slot: the larger of request (16) and response (12).
pub const CTRL_SLOT_BYTES: usize = 16;

/// Slots of the one-page control ring.
pub const CTRL_RING_ENTRIES: usize = 128;

/// Bytes of an entry of a list of static grants (`struct xen_netif_gref`).
pub const GREF_ENTRY_BYTES: usize = 8;

/// Entries of a list of static grants: it is one page.
pub const GREF_LIST_ENTRIES: usize = PAGE_BYTES / GREF_ENTRY_BYTES;

/// Entries of a (sub-)table of hash values that one grant can carry.
pub const HASH_MAPPING_ENTRIES: usize = PAGE_BYTES / size_of::<u32>();

const _: () = assert!(CTRL_SLOT_BYTES == size_of::<[u32; 4]>());
const _: () = assert!(GREF_ENTRY_BYTES == size_of::<[u32; 2]>());
const _: () = assert!(GREF_LIST_ENTRIES == 512);

/// The number that names each message (`XEN_NETIF_CTRL_TYPE_*`).
pub mod kind {
    /// Never a message.
    pub const INVALID: u16 = 0;
    /// Asks for the hash types that the backend can calculate.
    pub const GET_HASH_FLAGS: u16 = 1;
    /// Sets the hash types that the backend is to calculate.
    pub const SET_HASH_FLAGS: u16 = 2;
    /// The key of the hash.
    pub const SET_HASH_KEY: u16 = 3;
    /// The largest table from hash to queue.
    pub const GET_HASH_MAPPING_SIZE: u16 = 4;
    /// The size of the table from hash to queue.
    pub const SET_HASH_MAPPING_SIZE: u16 = 5;
    /// A part of the table from hash to queue.
    pub const SET_HASH_MAPPING: u16 = 6;
    /// The algorithm of the hash.
    pub const SET_HASH_ALGORITHM: u16 = 7;
    /// Asks for the number of static grants that a queue can hold.
    pub const GET_GREF_MAPPING_SIZE: u16 = 8;
    /// Map a list of grants and keep them mapped.
    pub const ADD_GREF_MAPPING: u16 = 9;
    /// Unmap a list of static grants.
    pub const DEL_GREF_MAPPING: u16 = 10;
}

/// The numbers of the hash algorithms (`XEN_NETIF_CTRL_HASH_ALGORITHM_*`).
pub mod algorithm {
    /// No hashing: the backend steers as it likes.
    pub const NONE: u8 = 0;
    /// Toeplitz, with a key.
    pub const TOEPLITZ: u8 = 1;
}

bitflags! {
    /// Hash types (`XEN_NETIF_CTRL_HASH_TYPE_*`). The most specific type that is enabled and fits
    /// the packet wins.
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct HashTypes: u32 {
        /// IPv4 source and destination address: 8 bytes.
        const IPV4 = 1;
        /// IPv4 addresses and TCP ports: 12 bytes.
        const IPV4_TCP = 2;
        /// IPv6 source and destination address: 32 bytes.
        const IPV6 = 4;
        /// IPv6 addresses and TCP ports: 36 bytes.
        const IPV6_TCP = 8;
    }
}

bitflags! {
    /// Flags of a static grant (`XEN_NETIF_CTRLF_GREF_*`).
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct GrefFlags: u16 {
        /// The backend may only read the page: it serves transmission only.
        const READONLY = 1;
    }
}

/// Result of a control request (`XEN_NETIF_CTRL_STATUS_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Success = 0,
    /// The backend does not have this.
    NotSupported = 1,
    /// A value of the request is out of its bounds.
    InvalidParameter = 2,
    /// More was given than the backend can hold.
    BufferOverflow = 3,
}

impl Status {
    /// The status with this number.
    pub const fn from_u32(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Success,
            1 => Self::NotSupported,
            2 => Self::InvalidParameter,
            3 => Self::BufferOverflow,
            _ => return None,
        })
    }

    /// The number of this status, as a response carries it.
    pub const fn to_u32(self) -> u32 {
        self as u32
    }

    /// The number of this status, as an entry of a list carries it.
    pub const fn to_u16(self) -> u16 {
        self as u16
    }
}

/// A control request as it stands in its slot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CtrlRequest {
    /// Chosen by the frontend, given back in the response.
    pub id: u16,
    /// One of [`kind`].
    pub kind: u16,
    /// Arguments of the message; see [`Message`].
    pub data: [u32; 3],
}

impl CtrlRequest {
    /// Reads a request from the private copy of a slot.
    pub const fn from_words(words: [u32; 4]) -> Self {
        Self {
            id: words[0] as u16,
            kind: (words[0] >> 16) as u16,
            data: [words[1], words[2], words[3]],
        }
    }

    /// The slot's words.
    pub const fn to_words(self) -> [u32; 4] {
        let [first, second, third] = self.data;
        [self.id as u32 | (self.kind as u32) << 16, first, second, third]
    }

    /// The response to this request, with `status` and `data`.
    pub const fn answer(self, status: Status, data: u32) -> CtrlResponse {
        CtrlResponse { id: self.id, kind: self.kind, status: status.to_u32(), data }
    }

    /// Returns the message of the request. Words of `data` that the message does not use are not
    /// looked at, as in stock netback.
    pub const fn message(self) -> Result<Message, UnknownMessage> {
        let [first, second, third] = self.data;
        Ok(match self.kind {
            kind::GET_HASH_FLAGS => Message::GetHashFlags,
            kind::SET_HASH_FLAGS => {
                Message::SetHashFlags { types: HashTypes::from_bits_retain(first) }
            }
            kind::SET_HASH_KEY => Message::SetHashKey { gref: first, bytes: second },
            kind::GET_HASH_MAPPING_SIZE => Message::GetHashMappingSize,
            kind::SET_HASH_MAPPING_SIZE => Message::SetHashMappingSize { entries: first },
            kind::SET_HASH_MAPPING => {
                Message::SetHashMapping { gref: first, entries: second, offset: third }
            }
            kind::SET_HASH_ALGORITHM => Message::SetHashAlgorithm { algorithm: first },
            kind::GET_GREF_MAPPING_SIZE => Message::GetGrefMappingSize { queue: first },
            kind::ADD_GREF_MAPPING => {
                Message::AddGrefMapping { queue: first, list: second, entries: third }
            }
            kind::DEL_GREF_MAPPING => {
                Message::DelGrefMapping { queue: first, list: second, entries: third }
            }
            found => return Err(UnknownMessage { found }),
        })
    }
}

/// A message type without a number in the header; answered
/// [`Status::NotSupported`].
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
#[error("control request of unknown type {found}, expected 1 to 10")]
pub struct UnknownMessage {
    /// The type found.
    pub found: u16,
}

/// The answer to a control request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CtrlResponse {
    /// The request's id.
    pub id: u16,
    /// The request's type, one of [`kind`].
    pub kind: u16,
    /// A [`Status`], unless the peer is broken.
    pub status: u32,
    /// The value that was asked for; 0 if the message asks for none.
    pub data: u32,
}

impl CtrlResponse {
    /// Reads a response from the private copy of a slot.
    pub const fn from_words(words: [u32; 4]) -> Self {
        Self {
            id: words[0] as u16,
            kind: (words[0] >> 16) as u16,
            status: words[1],
            data: words[2],
        }
    }

    /// The slot's words; the fourth, which a response does not reach, is zero
    /// (XSA-216).
    pub const fn to_words(self) -> [u32; 4] {
        [self.id as u32 | (self.kind as u32) << 16, self.status, self.data, 0]
    }

    /// The status, where its number is a known one.
    pub const fn status(self) -> Option<Status> {
        Status::from_u32(self.status)
    }
}

/// Message of a control request. All numbers are the peer's and unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// Answered with the [`HashTypes`] that can be calculated.
    GetHashFlags,
    /// Calculate these types; none disables hashing.
    SetHashFlags {
        /// Unknown bits are kept: they are to be refused.
        types: HashTypes,
    },
    /// Replace the key; missing bytes are zero.
    SetHashKey {
        /// Grant of the page that starts with the key; may be read-only.
        gref: u32,
        /// Bytes of the key; 0 clears it.
        bytes: u32,
    },
    /// Answered with the largest table, in entries.
    GetHashMappingSize,
    /// Make a zero-filled table.
    SetHashMappingSize {
        /// Entries; 0 steers by remainder.
        entries: u32,
    },
    /// Fill a part of the table; check with [`mapping_range`] first.
    SetHashMapping {
        /// Grant of the page that starts with the part; may be read-only.
        gref: u32,
        /// Entries of the part, a `u32` queue index each.
        entries: u32,
        /// Entry of the table where the part begins.
        offset: u32,
    },
    /// Choose the algorithm.
    SetHashAlgorithm {
        /// One of [`algorithm`].
        algorithm: u32,
    },
    /// Answered with how many static grants the queue can hold.
    GetGrefMappingSize {
        /// Queue index.
        queue: u32,
    },
    /// Map a list of grants, all or nothing; check with
    /// [`gref_list_entries`] first.
    AddGrefMapping {
        /// Queue index.
        queue: u32,
        /// Grant of the page with the list, from its first byte on.
        list: u32,
        /// Entries of the list.
        entries: u32,
    },
    /// Unmap a list of static grants, with a status for each; answered with
    /// how many were unmapped.
    DelGrefMapping {
        /// Queue index.
        queue: u32,
        /// Grant of the page with the list, writable.
        list: u32,
        /// Entries of the list.
        entries: u32,
    },
}

impl Message {
    /// The request that asks for this; words without a use are zero.
    pub const fn request(self, id: u16) -> CtrlRequest {
        let (kind, data) = match self {
            Self::GetHashFlags => (kind::GET_HASH_FLAGS, [0; 3]),
            Self::SetHashFlags { types } => (kind::SET_HASH_FLAGS, [types.bits(), 0, 0]),
            Self::SetHashKey { gref, bytes } => (kind::SET_HASH_KEY, [gref, bytes, 0]),
            Self::GetHashMappingSize => (kind::GET_HASH_MAPPING_SIZE, [0; 3]),
            Self::SetHashMappingSize { entries } => (kind::SET_HASH_MAPPING_SIZE, [entries, 0, 0]),
            Self::SetHashMapping { gref, entries, offset } => {
                (kind::SET_HASH_MAPPING, [gref, entries, offset])
            }
            Self::SetHashAlgorithm { algorithm } => (kind::SET_HASH_ALGORITHM, [algorithm, 0, 0]),
            Self::GetGrefMappingSize { queue } => (kind::GET_GREF_MAPPING_SIZE, [queue, 0, 0]),
            Self::AddGrefMapping { queue, list, entries } => {
                (kind::ADD_GREF_MAPPING, [queue, list, entries])
            }
            Self::DelGrefMapping { queue, list, entries } => {
                (kind::DEL_GREF_MAPPING, [queue, list, entries])
            }
        };
        CtrlRequest { id, kind, data }
    }
}

/// An entry of a list of static grants (`struct xen_netif_gref`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GrefEntry {
    /// The grant; read by the backend.
    pub gref: u32,
    /// Read by the backend; unknown bits are kept: they are to be refused.
    pub flags: GrefFlags,
    /// A [`Status`], written by the backend on DEL; not set by the frontend.
    pub status: u16,
}

impl GrefEntry {
    /// Reads an entry from a private copy.
    pub const fn from_words(words: [u32; 2]) -> Self {
        Self {
            gref: words[0],
            flags: GrefFlags::from_bits_retain(words[1] as u16),
            status: (words[1] >> 16) as u16,
        }
    }

    /// The entry's words.
    pub const fn to_words(self) -> [u32; 2] {
        [self.gref, self.flags.bits() as u32 | (self.status as u32) << 16]
    }
}

/// The entries of the table that a [`Message::SetHashMapping`] replaces.
///
/// Calculated in 64 bits before anything is copied: XSA-270 was a sum of two
/// 32-bit numbers from the guest. [`Status::InvalidParameter`] where the part
/// is empty or does not lie inside a table of `table` entries, and
/// [`Status::BufferOverflow`] where it is more than a page
/// ([`HASH_MAPPING_ENTRIES`]).
pub fn mapping_range(entries: u32, offset: u32, table: u32) -> Result<Range<usize>, Status> {
    let end = u64::from(offset) + u64::from(entries);
    if entries == 0 || end > u64::from(table) {
        return Err(Status::InvalidParameter);
    }
    if entries as usize > HASH_MAPPING_ENTRIES {
        return Err(Status::BufferOverflow);
    }
    Ok(offset as usize..end as usize)
}

/// The length of the list of an ADD or DEL: 1 to [`GREF_LIST_ENTRIES`]
/// entries for a queue below `queues`; otherwise
/// [`Status::InvalidParameter`].
pub fn gref_list_entries(queue: u32, queues: u32, entries: u32) -> Result<usize, Status> {
    if queue < queues && (1..=GREF_LIST_ENTRIES as u32).contains(&entries) {
        Ok(entries as usize)
    } else {
        Err(Status::InvalidParameter)
    }
}

/// Fault of a list that is to be added, as far as the list alone shows.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BadList {
    /// No entry, or more than a page of them.
    #[error("a list of {found} entries, expected 1 to {GREF_LIST_ENTRIES}")]
    Length {
        /// Entries of the list.
        found: usize,
    },
    /// A flag that the protocol does not have.
    #[error("entry {entry}: flags {found:#x}, expected 1 (readonly) or none")]
    Flags {
        /// Its number in the list, from 0.
        entry: usize,
        /// The flags.
        found: u16,
    },
    /// A reference that belongs to the toolstack.
    #[error("entry {entry}: reference {gref}, expected {first_free} or more")]
    Reserved {
        /// Its number in the list, from 0.
        entry: usize,
        /// The reference.
        gref: u32,
        /// The first that is not reserved.
        first_free: u32,
    },
    /// A reference that the list names once more.
    #[error("entry {entry}: reference {gref} is in the list twice, expected once")]
    Twice {
        /// The number of one of them but the first, from 0.
        entry: usize,
        /// The reference.
        gref: u32,
    },
}

/// Judges a list that is to be added as far as the list alone tells: no flag
/// without a name, no reference below `first_free` (those are reserved), none
/// twice, and 1 to [`GREF_LIST_ENTRIES`] of them.
pub fn check_added(entries: &[GrefEntry], first_free: u32) -> Result<(), BadList> {
    let found = entries.len();
    if !(1..=GREF_LIST_ENTRIES).contains(&found) {
        return Err(BadList::Length { found });
    }
    for (entry, &GrefEntry { gref, flags, .. }) in entries.iter().enumerate() {
        if !GrefFlags::all().contains(flags) {
            return Err(BadList::Flags { entry, found: flags.bits() });
        }
        if gref < first_free {
            return Err(BadList::Reserved { entry, gref, first_free });
        }
    }
    let numbered = entries.iter().enumerate().map(|(entry, listed)| (listed.gref, entry));
    let mut grefs: ArrayVec<(u32, usize), GREF_LIST_ENTRIES> = numbered.collect();
    grefs.sort_unstable();
    let mut pairs = grefs.iter().zip(grefs.iter().skip(1));
    match pairs.find(|(one, other)| one.0 == other.0) {
        Some((_, &(gref, entry))) => Err(BadList::Twice { entry, gref }),
        None => Ok(()),
    }
}
