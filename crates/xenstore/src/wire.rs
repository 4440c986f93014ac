//! Messages, to and from bytes. A message has a header of four little-endian words, and a payload
//! of at most [`PAYLOAD_MAX`] bytes. Most payloads are strings that end in a NUL.
//!
//! Xen's header has the words in native order. Grantway runs on little-endian machines only, as Xen
//! does.

use alloc::vec::Vec;
use core::fmt;

/// Length of the longest payload, in bytes (`XENSTORE_PAYLOAD_MAX`). After a longer one the stream
/// cannot be read any more, so the connection must be closed.
pub const PAYLOAD_MAX: usize = 4096;

/// Bytes of a header.
pub const HEADER_LEN: usize = 16;

/// Type of a message (`enum xsd_sockmsg_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum MessageType {
    /// A command for the daemon itself. Its former name is `DEBUG`.
    Control = 0,
    /// Reads the names of a node's children.
    Directory = 1,
    /// Reads the value of a node.
    Read = 2,
    /// Reads the permissions of a node.
    GetPerms = 3,
    /// Sets a watch.
    Watch = 4,
    /// Ends a watch.
    Unwatch = 5,
    /// Begins a transaction.
    TransactionStart = 6,
    /// Ends a transaction.
    TransactionEnd = 7,
    /// Makes a domain known to the store.
    Introduce = 8,
    /// Makes the store forget a domain.
    Release = 9,
    /// Asks for the folder of a domain.
    GetDomainPath = 10,
    /// Sets a node's value.
    Write = 11,
    /// Makes a node with an empty value if it does not exist.
    Mkdir = 12,
    /// Removes a node and all nodes below it.
    Rm = 13,
    /// Sets a node's permissions.
    SetPerms = 14,
    /// Event of a watch. Only the store sends it.
    WatchEvent = 15,
    /// Answer to a failed request. The payload is the name of an error.
    Error = 16,
    /// Asks if the store knows a domain.
    IsDomainIntroduced = 17,
    /// Allows another report of a domain's shutdown.
    Resume = 18,
    /// Gives one domain the rights of another.
    SetTarget = 19,
    /// Ends all watches and transactions of the connection.
    ResetWatches = 21,
    /// Reads a part of the names of a node's children.
    DirectoryPart = 22,
}

impl MessageType {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 22] = [
        Self::Control,
        Self::Directory,
        Self::Read,
        Self::GetPerms,
        Self::Watch,
        Self::Unwatch,
        Self::TransactionStart,
        Self::TransactionEnd,
        Self::Introduce,
        Self::Release,
        Self::GetDomainPath,
        Self::Write,
        Self::Mkdir,
        Self::Rm,
        Self::SetPerms,
        Self::WatchEvent,
        Self::Error,
        Self::IsDomainIntroduced,
        Self::Resume,
        Self::SetTarget,
        Self::ResetWatches,
        Self::DirectoryPart,
    ];

    /// Returns the type with this number, or `None` for an unknown number. 20 was `RESTRICT`, which
    /// no longer exists.
    #[must_use]
    pub fn from_wire(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.number() == number)
    }

    /// Returns the number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the word for error messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Directory => "directory",
            Self::Read => "read",
            Self::GetPerms => "get-perms",
            Self::Watch => "watch",
            Self::Unwatch => "unwatch",
            Self::TransactionStart => "transaction-start",
            Self::TransactionEnd => "transaction-end",
            Self::Introduce => "introduce",
            Self::Release => "release",
            Self::GetDomainPath => "get-domain-path",
            Self::Write => "write",
            Self::Mkdir => "mkdir",
            Self::Rm => "rm",
            Self::SetPerms => "set-perms",
            Self::WatchEvent => "watch-event",
            Self::Error => "error",
            Self::IsDomainIntroduced => "is-domain-introduced",
            Self::Resume => "resume",
            Self::SetTarget => "set-target",
            Self::ResetWatches => "reset-watches",
            Self::DirectoryPart => "directory-part",
        }
    }
}

/// Header of a message. The type is a number, since a server must also answer requests of unknown
/// types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of the message's type; see [`MessageType::from_wire`].
    pub kind: u32,
    /// Number that the client chose. The answer repeats it.
    pub req_id: u32,
    /// Number of the transaction, or 0 without one.
    pub tx_id: u32,
    /// Bytes of the payload that follows.
    pub len: u32,
}

impl Header {
    /// Returns the header in wire format.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let words = [self.kind, self.req_id, self.tx_id, self.len];
        for (place, word) in out.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Reads a header. Does not validate its length field.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self { kind: word(0), req_id: word(4), tx_id: word(8), len: word(12) }
    }
}

/// A whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Header of the message. `len` is the length of the payload.
    pub header: Header,
    /// Payload of the message, at most [`PAYLOAD_MAX`] bytes.
    pub payload: Vec<u8>,
}

impl Message {
    /// Splits the payload into strings at its NULs, as [`strings`] does.
    #[must_use]
    pub fn strings(&self) -> Option<Vec<&[u8]>> {
        strings(&self.payload)
    }
}

/// Splits `payload` into strings at its NULs. Returns no strings for an empty payload, and `None`
/// if the last string has no NUL.
#[must_use]
pub fn strings(payload: &[u8]) -> Option<Vec<&[u8]>> {
    if payload.is_empty() {
        return Some(Vec::new());
    }
    let body = payload.strip_suffix(&[0])?;
    Some(body.split(|byte| *byte == 0).collect())
}

/// Error for a payload that is longer than [`PAYLOAD_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("xenstore payload: found {found} bytes, expected at most {PAYLOAD_MAX}")]
pub struct TooLong {
    /// The length that was found, in bytes.
    pub found: usize,
}

/// Makes a message in wire format. The payload is the concatenation of `parts`. The caller includes
/// the NULs in the parts.
///
/// # Errors
///
/// Returns [`TooLong`] if the payload is longer than [`PAYLOAD_MAX`].
pub fn encode(kind: u32, req_id: u32, tx_id: u32, parts: &[&[u8]]) -> Result<Vec<u8>, TooLong> {
    let found = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
    let len = match u32::try_from(found) {
        Ok(len) if found <= PAYLOAD_MAX => len,
        _ => return Err(TooLong { found }),
    };
    let header = Header { kind, req_id, tx_id, len };
    let mut out = Vec::with_capacity(HEADER_LEN + found);
    out.extend_from_slice(&header.to_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    Ok(out)
}

/// Decoder of a byte stream into messages.
///
/// It keeps only the bytes that were pushed and not taken yet. If the caller takes all messages
/// after each push, it keeps less than one message.
#[derive(Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that were taken already.
    taken: usize,
    broken: Option<TooLong>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("held", &self.held()).field("broken", &self.broken).finish()
    }
}

impl Decoder {
    /// Makes a decoder for a new stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes of the stream. Drops them if a message was too long before.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.broken.is_some() {
            return;
        }
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole message, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] as soon as a header announces a payload that is too long, and at every
    /// later call: the stream cannot be read any more.
    pub fn next_message(&mut self) -> Result<Option<Message>, TooLong> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let Some((head, body)) = rest.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = Header::from_bytes(head);
        let len = usize::try_from(header.len).unwrap_or(usize::MAX);
        if len > PAYLOAD_MAX {
            let broken = TooLong { found: len };
            self.broken = Some(broken);
            self.buffer = Vec::new();
            self.taken = 0;
            return Err(broken);
        }
        let Some(payload) = body.get(..len) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.taken += HEADER_LEN + len;
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
        }
        Ok(Some(Message { header, payload }))
    }

    /// Returns true if [`Decoder::next_message`] would return a message or an error.
    #[must_use]
    pub fn has_message(&self) -> bool {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let whole = |(head, body): (&[u8; HEADER_LEN], &[u8])| {
            let len = Header::from_bytes(head).len as usize;
            len > PAYLOAD_MAX || body.len() >= len
        };
        self.broken.is_some() || rest.split_first_chunk().is_some_and(whole)
    }

    /// Returns the number of bytes that were pushed and not taken yet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buffer.len() - self.taken
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
