//! The control protocol: one request, one answer, each a message of a
//! `SOCK_SEQPACKET` socket, encoded by postcard, with descriptors beside it.

use crate::sys::MESSAGE_MAX;
use crate::tables::DomainTable;
use grantway_hypervisor::DomId;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version that both sides must speak.
pub const VERSION: u32 = 1;

/// Most domains in one answer to [`Request::Tables`]. Names are at most [`NAME_MAX`] long, and a
/// domain's lists are cut at [`ROWS_MAX`], so this many always fit in a message.
pub const DOMAINS_MAX: usize = 8;

/// Most rows of a list in a [`DomainTable`].
pub const ROWS_MAX: usize = 64;

/// Most bytes in a domain's name.
pub const NAME_MAX: usize = 255;

/// A request of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first request, which says who asks. Answered with [`Answer::Welcome`].
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The domain.
        domid: u16,
        /// True if this process is to hold the domain's memory and grants.
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
        /// The set.
        set: u64,
    },
    /// A port that `remote` may bind to: [`Answer::Port`].
    AllocUnbound {
        /// The set that the port is to be in.
        set: u64,
        /// The domain that may bind.
        remote: u16,
    },
    /// A port bound to one of `remote`'s: [`Answer::Port`].
    Bind {
        /// The set that the port is to be in.
        set: u64,
        /// The domain of the other port.
        remote: u16,
        /// The other port.
        port: u32,
    },
    /// Ends a port.
    ClosePort {
        /// The port's set.
        set: u64,
        /// The port.
        port: u32,
    },
    /// The set of a port's peer: [`Answer::Peer`], or [`Answer::Done`] if there is no peer.
    Peer {
        /// The set of our port.
        set: u64,
        /// Our port.
        port: u32,
    },
    /// A domain's memory and grants: [`Answer::Grants`].
    Lease {
        /// The domain.
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
        /// The domain.
        domid: u16,
    },
    /// Everything that the host holds, from this domain on: [`Answer::Tables`].
    Tables {
        /// The first domain to tell of.
        from: u16,
    },
}

/// An answer of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The process is in. With the board of lives, and for a guest its memory and its grant table.
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
    /// The request was carried out.
    Done,
    /// A set, with pending bits, port states and the wake-up.
    Set {
        /// Its number.
        set: u64,
    },
    /// A port.
    Port {
        /// Its number.
        port: u32,
    },
    /// A peer's set, with pending bits and the wake-up.
    Peer {
        /// The number of the binding.
        binding: u32,
        /// The number of the set.
        set: u64,
        /// The peer's port.
        port: u32,
    },
    /// A domain's memory and grant table, both with descriptors.
    Grants {
        /// The number of the domain's boot.
        boot: u32,
        /// The process that runs it.
        pid: i32,
        /// Address of frame 0 in that process.
        base: u64,
        /// Pages of memory.
        ram_pages: u32,
        /// Entries of the table.
        grant_entries: u32,
    },
    /// The domain exists now.
    Created {
        /// True if the domain is new.
        new: bool,
    },
    /// Everything that the host holds.
    Tables {
        /// The host's process.
        host_pid: u32,
        /// Control connections.
        connections: u32,
        /// Store connections.
        store_connections: u32,
        /// Sets of event channels.
        event_sets: u32,
        /// A part of the domains.
        domains: Vec<DomainTable>,
        /// The domain from which to go on asking, if there are more.
        next: Option<u16>,
    },
    /// The request was refused.
    Refused(Refusal),
}

/// Reason why the host refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The process speaks another version of the protocol.
    Version {
        /// The host's version.
        host: u32,
    },
    /// No such domain was made.
    NoDomain {
        /// The domain.
        domid: u16,
    },
    /// The domain does not run.
    NotAlive {
        /// The domain.
        domid: u16,
    },
    /// A process runs the domain already.
    Held {
        /// The domain.
        domid: u16,
        /// The process that runs it.
        pid: u32,
    },
    /// Another process of our domain maps that domain's grants.
    Leased {
        /// The domain that grants.
        domid: u16,
        /// The process that maps.
        pid: u32,
    },
    /// No port is free.
    PortsFull {
        /// Ports that a domain has.
        limit: u32,
    },
    /// The port cannot be used.
    BadPort {
        /// The domain of the port.
        domid: u16,
        /// The port.
        port: u32,
        /// The reason.
        why: PortRefusal,
    },
    /// The request is for domain 0 only.
    NotPrivileged,
    /// A domain of that number has another name.
    Exists {
        /// Its name.
        name: String,
    },
    /// The request makes no sense now.
    Confused,
    /// The host lacks something (descriptors, memory).
    Os {
        /// The system call.
        call: String,
        /// The system's error number.
        errno: i32,
    },
}

/// Reason why a port cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortRefusal {
    /// The port is not one of the set's.
    NotOurs,
    /// The port is free.
    NotThere,
    /// The port was made for another domain.
    NotForUs,
    /// The port has a peer already.
    Taken,
}

impl PortRefusal {
    /// Returns the reason in words.
    pub fn why(self) -> &'static str {
        match self {
            Self::NotOurs => {
                "found no port of this set of event channels with this number, expected one of its ports"
            }
            Self::NotThere => "found it free, expected a port that the peer made for this domain",
            Self::NotForUs => {
                "found it made for another domain, expected a port made for this domain"
            }
            Self::Taken => "found it bound, expected an unbound port",
        }
    }
}

/// Encodes a message. Returns `None` if it is too long.
pub fn encode(message: &impl Serialize) -> Option<Vec<u8>> {
    let bytes = postcard::to_stdvec(message).ok()?;
    (bytes.len() <= MESSAGE_MAX).then_some(bytes)
}

/// Decodes a message. Returns `None` if the bytes are none, or have something behind it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// Returns the domain of a number, if a domain may have that number.
pub fn domid(number: u16) -> Option<DomId> {
    (number < DomId::FIRST_RESERVED).then_some(DomId(number))
}
