//! Messages as bytes: a header of four little-endian words, then a payload of
//! at most [`PAYLOAD_MAX`] bytes, mostly strings that end in a NUL.
//!
//! Xen's header gives the words in native order; Grantway runs where Xen does,
//! on little-endian machines.

use alloc::vec::Vec;
use core::fmt;

/// The longest payload (`XENSTORE_PAYLOAD_MAX`). Whoever sends more has lost
/// the thread, and the connection is closed.
pub const PAYLOAD_MAX: usize = 4096;

/// Bytes of a header.
pub const HEADER_LEN: usize = 16;

/// Type of a message (`enum xsd_sockmsg_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum MessageType {
    /// Talks to the daemon itself; once called `DEBUG`.
    Control = 0,
    /// The names of a node's children.
    Directory = 1,
    /// A node's value.
    Read = 2,
    /// A node's permissions.
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
    /// A domain's own folder.
    GetDomainPath = 10,
    /// Sets a node's value.
    Write = 11,
    /// Makes a node with an empty value, if it is not there.
    Mkdir = 12,
    /// Removes a node and all below.
    Rm = 13,
    /// Sets a node's permissions.
    SetPerms = 14,
    /// A watch fired; only ever sent by the store.
    WatchEvent = 15,
    /// The answer to a request that failed: the name of an errno.
    Error = 16,
    /// Asks if the store knows a domain.
    IsDomainIntroduced = 17,
    /// Lets a domain's shutdown be told again.
    Resume = 18,
    /// Gives one domain the rights of another.
    SetTarget = 19,
    /// Ends all watches and transactions of the connection.
    ResetWatches = 21,
    /// A part of the names of a node's children.
    DirectoryPart = 22,
}

impl MessageType {
    /// Every type there is, by number.
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

    /// The type of that number, if there is one (20 once was `RESTRICT`).
    #[must_use]
    pub fn from_wire(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.number() == number)
    }

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The word that an error message uses.
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

/// The words before every payload. The type is kept as its number, for a
/// server must be able to answer one that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The message's type; see [`MessageType::from_wire`].
    pub kind: u32,
    /// Chosen by the client, given back in the answer.
    pub req_id: u32,
    /// The transaction, or 0.
    pub tx_id: u32,
    /// Bytes of payload that follow.
    pub len: u32,
}

impl Header {
    /// The header as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let words = [self.kind, self.req_id, self.tx_id, self.len];
        for (place, word) in out.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The header that these bytes are. The length is not judged yet.
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
    /// Its header; `len` is the payload's length.
    pub header: Header,
    /// Its payload, at most [`PAYLOAD_MAX`] bytes.
    pub payload: Vec<u8>,
}

impl Message {
    /// The payload cut at its NULs, if it is whole strings (it is empty, or
    /// ends in a NUL).
    #[must_use]
    pub fn strings(&self) -> Option<Vec<&[u8]>> {
        strings(&self.payload)
    }
}

/// Cuts `payload` at its NULs; `None` when the last string has none.
#[must_use]
pub fn strings(payload: &[u8]) -> Option<Vec<&[u8]>> {
    if payload.is_empty() {
        return Some(Vec::new());
    }
    let body = payload.strip_suffix(&[0])?;
    Some(body.split(|byte| *byte == 0).collect())
}

/// A payload that is longer than [`PAYLOAD_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("xenstore payload: found {found} bytes, expected at most {PAYLOAD_MAX}")]
pub struct TooLong {
    /// The length that was found, in bytes.
    pub found: usize,
}

/// A message as bytes. The payload is the concatenation of `parts`, as they
/// are: NULs are part of them.
///
/// # Errors
///
/// [`TooLong`].
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

/// Bytes in, whole messages out.
///
/// It holds what was pushed and not yet taken, and no more: a caller that takes
/// all messages after each push holds less than one message.
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
    /// A decoder that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes in. After a hostile length they are dropped.
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

    /// The next whole message, or `None` until more bytes come.
    ///
    /// # Errors
    ///
    /// [`TooLong`] as soon as a header says so, and ever after: the stream has
    /// no place from which to go on.
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

    /// Returns true if [`Decoder::next_message`] has a message, or an error.
    #[must_use]
    pub fn has_message(&self) -> bool {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let whole = |(head, body): (&[u8; HEADER_LEN], &[u8])| {
            let len = Header::from_bytes(head).len as usize;
            len > PAYLOAD_MAX || body.len() >= len
        };
        self.broken.is_some() || rest.split_first_chunk().is_some_and(whole)
    }

    /// Bytes that were pushed and not yet taken.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buffer.len() - self.taken
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
