//! The control protocol: one request, one answer, each a message of a
//! `SOCK_SEQPACKET` socket, encoded by postcard, with descriptors beside it.

use crate::sys::MESSAGE_MAX;
use crate::tables::DomainTable;
use grantway_hypervisor::DomId;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version that both sides must speak.
pub const VERSION: u32 = 1;

/// Domains in one answer to [`Request::Tables`]. Names are at most
/// [`NAME_MAX`] long, and a domain's lists are cut at [`ROWS_MAX`], so that
/// this many always fit in a message.
pub const DOMAINS_MAX: usize = 8;

/// Rows of a list in a [`DomainTable`].
pub const ROWS_MAX: usize = 64;

/// Bytes in a domain's name, at most.
pub const NAME_MAX: usize = 255;

/// What a process asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First of all: who we are. Answered with [`Answer::Welcome`].
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The domain.
        domid: u16,
        /// Whether this process is to hold the domain's memory and grants.
        guest: bool,
    },
    /// The memory is mapped at this address: the domain is alive.
    Booted {
        /// Address of frame 0 in the asking process.
        base: u64,
    },
    /// A new set of event channels: [`Answer::Set`].
    OpenSet,
    /// The end of a set.
    CloseSet {
        /// Which.
        set: u64,
    },
    /// A port that `remote` may bind to: [`Answer::Port`].
    AllocUnbound {
        /// In which set.
        set: u64,
        /// For whom.
        remote: u16,
    },
    /// A port bound to one of `remote`'s: [`Answer::Port`].
    Bind {
        /// In which set.
        set: u64,
        /// Whose port.
        remote: u16,
        /// Which.
        port: u32,
    },
    /// Ends a port.
    ClosePort {
        /// In which set.
        set: u64,
        /// Which.
        port: u32,
    },
    /// Where a port's peer listens: [`Answer::Peer`].
    Peer {
        /// In which set.
        set: u64,
        /// Our port.
        port: u32,
    },
    /// A domain's memory and grants: [`Answer::Grants`].
    Lease {
        /// Whose.
        domid: u16,
    },
    /// A store connection: [`Answer::Done`] with a socket.
    OpenStore,
    /// Makes a domain: [`Answer::Created`].
    Create {
        /// Its number.
        domid: u16,
        /// Its name.
        name: String,
    },
    /// Ends a domain and its processes.
    Destroy {
        /// Which.
        domid: u16,
    },
    /// What the host holds, from this domain on: [`Answer::Tables`].
    Tables {
        /// The first domain to tell of.
        from: u16,
    },
}

/// What the host answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Come in. With the board of lives, and for a guest its memory and its
    /// grant table.
    Welcome {
        /// Number of this boot (0 for a service).
        boot: u32,
        /// Ports that a domain has.
        ports: u32,
        /// Entries of the grant table.
        grant_entries: u32,
        /// Pages of memory.
        ram_pages: u32,
    },
    /// Done.
    Done,
    /// A set: with pending bits, port states and the wake-up.
    Set {
        /// Its number.
        set: u64,
    },
    /// A port.
    Port {
        /// Its number.
        port: u32,
    },
    /// A peer's set: with pending bits and the wake-up.
    Peer {
        /// The binding that this is about.
        binding: u32,
        /// The number of the set.
        set: u64,
        /// The peer's port.
        port: u32,
    },
    /// A domain's memory and grant table, both with descriptors.
    Grants {
        /// Which boot of the domain.
        boot: u32,
        /// The process that runs it.
        pid: i32,
        /// Address of frame 0 there.
        base: u64,
        /// Pages of memory.
        ram_pages: u32,
        /// Entries of the table.
        grant_entries: u32,
    },
    /// Whether the domain is new.
    Created {
        /// Not there before.
        new: bool,
    },
    /// What the host holds.
    Tables {
        /// The host's process.
        host_pid: u32,
        /// Control connections.
        connections: u32,
        /// Store connections.
        store_connections: u32,
        /// Sets of event channels.
        event_sets: u32,
        /// Some domains.
        domains: Vec<DomainTable>,
        /// Where to go on asking.
        next: Option<u16>,
    },
    /// No.
    Refused(Refusal),
}

/// Why the host refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Another version of the protocol.
    Version {
        /// The host's.
        host: u32,
    },
    /// No such domain was made.
    NoDomain {
        /// Which.
        domid: u16,
    },
    /// The domain does not run.
    NotAlive {
        /// Which.
        domid: u16,
    },
    /// A process runs the domain already.
    Held {
        /// Which domain.
        domid: u16,
        /// Which process.
        pid: u32,
    },
    /// Another process of our domain maps that domain's grants.
    Leased {
        /// Whose grants.
        domid: u16,
        /// Which process.
        pid: u32,
    },
    /// No port is free.
    PortsFull {
        /// Ports that a domain has.
        limit: u32,
    },
    /// The port is not there, or not for us.
    BadPort {
        /// Whose.
        domid: u16,
        /// Which.
        port: u32,
        /// Why.
        why: PortRefusal,
    },
    /// Only domain 0 may.
    NotPrivileged,
    /// A domain of that number has another name.
    Exists {
        /// Its name.
        name: String,
    },
    /// A request that makes no sense now.
    Confused,
    /// The host lacks something (descriptors, memory).
    Os {
        /// The call.
        call: String,
        /// The system's error number.
        errno: i32,
    },
}

/// Why a port cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortRefusal {
    /// Not one of the set's.
    NotOurs,
    /// Free.
    NotThere,
    /// Made for another domain.
    NotForUs,
    /// Has a peer already.
    Taken,
}

impl PortRefusal {
    /// In words.
    pub fn why(self) -> &'static str {
        match self {
            Self::NotOurs => "not a port of this set of event channels",
            Self::NotThere => "free; expected a port that the peer made for us",
            Self::NotForUs => "made for another domain",
            Self::Taken => "bound already; expected an unbound port",
        }
    }
}

/// Encodes a message; `None` for one that is too long.
pub fn encode(message: &impl Serialize) -> Option<Vec<u8>> {
    let bytes = postcard::to_stdvec(message).ok()?;
    (bytes.len() <= MESSAGE_MAX).then_some(bytes)
}

/// Decodes a message; `None` for what is none, or has something behind it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// A number that a domain may have.
pub fn domid(number: u16) -> Option<DomId> {
    (number < DomId::FIRST_RESERVED).then_some(DomId(number))
}
