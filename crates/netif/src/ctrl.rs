//! Control ring: the frontend configures hashing, and registers static grants.
//!
//! Each request gets one response. Responses may come in another order. The ring works once the
//! backend is Connected.

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

/// Most entries of a list of static grants. The list is one page.
pub const GREF_LIST_ENTRIES: usize = PAGE_BYTES / GREF_ENTRY_BYTES;

/// Most entries of a mapping table, or of a part of it, in one grant.
pub const HASH_MAPPING_ENTRIES: usize = PAGE_BYTES / size_of::<u32>();

const _: () = assert!(CTRL_SLOT_BYTES == size_of::<[u32; 4]>());
const _: () = assert!(GREF_ENTRY_BYTES == size_of::<[u32; 2]>());
const _: () = assert!(GREF_LIST_ENTRIES == 512);

/// Numbers of the messages (`XEN_NETIF_CTRL_TYPE_*`).
pub mod kind {
    /// No valid message has this number.
    pub const INVALID: u16 = 0;
    /// Asks for the hash types that the backend can calculate.
    pub const GET_HASH_FLAGS: u16 = 1;
    /// Sets the hash types that the backend is to calculate.
    pub const SET_HASH_FLAGS: u16 = 2;
    /// Sets the key of the hash.
    pub const SET_HASH_KEY: u16 = 3;
    /// Asks for the size of the largest table from hash to queue.
    pub const GET_HASH_MAPPING_SIZE: u16 = 4;
    /// Sets the size of the table from hash to queue.
    pub const SET_HASH_MAPPING_SIZE: u16 = 5;
    /// Sets a part of the table from hash to queue.
    pub const SET_HASH_MAPPING: u16 = 6;
    /// Sets the algorithm of the hash.
    pub const SET_HASH_ALGORITHM: u16 = 7;
    /// Asks for the number of static grants that a queue can hold.
    pub const GET_GREF_MAPPING_SIZE: u16 = 8;
    /// Maps a list of grants and keeps them mapped.
    pub const ADD_GREF_MAPPING: u16 = 9;
    /// Unmaps a list of static grants.
    pub const DEL_GREF_MAPPING: u16 = 10;
}

/// Numbers of the hash algorithms (`XEN_NETIF_CTRL_HASH_ALGORITHM_*`).
pub mod algorithm {
    /// No hashing: the backend chooses the queues.
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
    /// The request was carried out.
    Success = 0,
    /// The backend does not support the request.
    NotSupported = 1,
    /// A value of the request is out of its bounds.
    InvalidParameter = 2,
    /// The request exceeds the space of the backend.
    BufferOverflow = 3,
}

impl Status {
    /// Returns the status with this number, or `None` for an unknown number.
    pub const fn from_u32(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Success,
            1 => Self::NotSupported,
            2 => Self::InvalidParameter,
            3 => Self::BufferOverflow,
            _ => return None,
        })
    }

    /// Returns the number of the status for a response.
    pub const fn to_u32(self) -> u32 {
        self as u32
    }

    /// Returns the number of the status for an entry of a list.
    pub const fn to_u16(self) -> u16 {
        self as u16
    }
}

/// Control request, in the fields of its slot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CtrlRequest {
    /// Number that the frontend chose. The response repeats it.
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

    /// Returns the words of the slot.
    pub const fn to_words(self) -> [u32; 4] {
        let [first, second, third] = self.data;
        [self.id as u32 | (self.kind as u32) << 16, first, second, third]
    }

    /// Returns the response to this request, with `status` and `data`.
    pub const fn answer(self, status: Status, data: u32) -> CtrlResponse {
        CtrlResponse { id: self.id, kind: self.kind, status: status.to_u32(), data }
    }

    /// Returns the message of the request. Ignores words of `data` that the message does not use,
    /// as stock netback does.
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

/// Error for a message type that the header does not define. The answer is
/// [`Status::NotSupported`].
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
#[error("control request of unknown type {found}, expected 1 to 10")]
pub struct UnknownMessage {
    /// The type that was found.
    pub found: u16,
}

/// Response to a control request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CtrlResponse {
    /// The request's id.
    pub id: u16,
    /// The request's type, one of [`kind`].
    pub kind: u16,
    /// Number of a [`Status`]. A faulty peer may write any other number.
    pub status: u32,
    /// The requested value; 0 if the message requests none.
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

    /// Returns the words of the slot. A response has three words; the fourth is zero, so that no
    /// private data leaks (XSA-216).
    pub const fn to_words(self) -> [u32; 4] {
        [self.id as u32 | (self.kind as u32) << 16, self.status, self.data, 0]
    }

    /// Returns the status, or `None` if its number is unknown.
    pub const fn status(self) -> Option<Status> {
        Status::from_u32(self.status)
    }
}

/// Message of a control request. All numbers come from the peer and are not validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// Asks for the supported [`HashTypes`].
    GetHashFlags,
    /// Sets the types to calculate. The empty set disables hashing.
    SetHashFlags {
        /// The types. Unknown bits are kept, so that the backend can refuse them.
        types: HashTypes,
    },
    /// Replaces the key. Missing bytes are zero.
    SetHashKey {
        /// Grant of the page that begins with the key. It may be read-only.
        gref: u32,
        /// Length of the key in bytes. 0 clears the key.
        bytes: u32,
    },
    /// Asks for the size of the largest table, in entries.
    GetHashMappingSize,
    /// Makes a table filled with zeroes.
    SetHashMappingSize {
        /// Number of entries. With 0, the queue is the remainder of the hash.
        entries: u32,
    },
    /// Sets a part of the table. Validate it by [`mapping_range`] first.
    SetHashMapping {
        /// Grant of the page that begins with the part. It may be read-only.
        gref: u32,
        /// Number of entries of the part. Each is the index of a queue, a `u32`.
        entries: u32,
        /// Index of the part's first entry in the table.
        offset: u32,
    },
    /// Sets the algorithm.
    SetHashAlgorithm {
        /// One of [`algorithm`].
        algorithm: u32,
    },
    /// Asks for the number of static grants that the queue can hold.
    GetGrefMappingSize {
        /// Queue index.
        queue: u32,
    },
    /// Maps a list of grants: all of them or none. Validate it by [`gref_list_entries`] first.
    AddGrefMapping {
        /// Queue index.
        queue: u32,
        /// Grant of the page that begins with the list.
        list: u32,
        /// Entries of the list.
        entries: u32,
    },
    /// Unmaps a list of static grants, and sets a status for each. The answer is the number of
    /// unmapped grants.
    DelGrefMapping {
        /// Queue index.
        queue: u32,
        /// Grant of the page that begins with the list. It must be writable.
        list: u32,
        /// Entries of the list.
        entries: u32,
    },
}

impl Message {
    /// Returns the request with this message. Unused words are zero.
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

/// Entry of a list of static grants (`struct xen_netif_gref`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GrefEntry {
    /// Reference of the grant. The backend reads it.
    pub gref: u32,
    /// Flags. The backend reads them. Unknown bits are kept, so that the backend can refuse them.
    pub flags: GrefFlags,
    /// Number of a [`Status`]. The backend writes it on DEL. The frontend does not set it.
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

    /// Returns the words of the entry.
    pub const fn to_words(self) -> [u32; 2] {
        [self.gref, self.flags.bits() as u32 | (self.status as u32) << 16]
    }
}

/// Returns the entries of the table that a [`Message::SetHashMapping`] replaces. Call it before the
/// part is copied. It adds in 64 bits: XSA-270 was an overflow of a sum of two 32-bit numbers of
/// the guest.
///
/// # Errors
///
/// Returns [`Status::InvalidParameter`] if the part is empty or not inside a table of `table`
/// entries, and [`Status::BufferOverflow`] if it is larger than a page ([`HASH_MAPPING_ENTRIES`]).
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

/// Returns the length of the list of an ADD or DEL, in entries: 1 to [`GREF_LIST_ENTRIES`].
///
/// # Errors
///
/// Returns [`Status::InvalidParameter`] if the length is out of bounds, or if `queue` is not below
/// `queues`.
pub fn gref_list_entries(queue: u32, queues: u32, entries: u32) -> Result<usize, Status> {
    if queue < queues && (1..=GREF_LIST_ENTRIES as u32).contains(&entries) {
        Ok(entries as usize)
    } else {
        Err(Status::InvalidParameter)
    }
}

/// Fault of a list of grants to be added.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BadList {
    /// The list is empty, or longer than a page.
    #[error("a list of {found} entries, expected 1 to {GREF_LIST_ENTRIES}")]
    Length {
        /// Number of entries of the list.
        found: usize,
    },
    /// An entry has a flag that the protocol does not define.
    #[error("entry {entry}: flags {found:#x}, expected 1 (readonly) or none")]
    Flags {
        /// Number of the entry in the list, from 0.
        entry: usize,
        /// The flags.
        found: u16,
    },
    /// An entry has a reference that is reserved for the toolstack.
    #[error("entry {entry}: reference {gref}, expected {first_free} or more")]
    Reserved {
        /// Number of the entry in the list, from 0.
        entry: usize,
        /// The reference.
        gref: u32,
        /// The first reference that is not reserved.
        first_free: u32,
    },
    /// Two entries have the same reference.
    #[error("entry {entry}: reference {gref} is in the list twice, expected once")]
    Twice {
        /// Number of the second or a later entry with this reference, from 0.
        entry: usize,
        /// The reference.
        gref: u32,
    },
}

/// Validates a list of grants to be added. The list must have 1 to [`GREF_LIST_ENTRIES`] entries,
/// only defined flags, no reference below `first_free` (these are reserved), and no reference
/// twice. The grants themselves are not checked.
///
/// # Errors
///
/// Returns the first [`BadList`] that was found.
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
