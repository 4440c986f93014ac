//! Errors between a domain and its hypervisor.

use crate::{DomId, GrantRef, GrantStatus, Port};
use alloc::string::String;
use core::fmt;

/// The store's error names, as xs_wire.h spells them on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrno {
    /// A malformed request or path.
    Einval,
    /// Not permitted.
    Eacces,
    /// The node exists already.
    Eexist,
    /// The node is a directory.
    Eisdir,
    /// No such node.
    Enoent,
    /// No memory.
    Enomem,
    /// No space: a quota is used up.
    Enospc,
    /// Input or output failed.
    Eio,
    /// Not empty.
    Enotempty,
    /// Not implemented.
    Enosys,
    /// Read-only.
    Erofs,
    /// Busy.
    Ebusy,
    /// The transaction lost against another.
    Eagain,
    /// Connected already.
    Eisconn,
    /// Too large.
    E2big,
    /// A permission that only the owner or dom0 has.
    Eperm,
}

impl StoreErrno {
    /// Every name, for tables.
    pub const ALL: [Self; 16] = [
        Self::Einval,
        Self::Eacces,
        Self::Eexist,
        Self::Eisdir,
        Self::Enoent,
        Self::Enomem,
        Self::Enospc,
        Self::Eio,
        Self::Enotempty,
        Self::Enosys,
        Self::Erofs,
        Self::Ebusy,
        Self::Eagain,
        Self::Eisconn,
        Self::E2big,
        Self::Eperm,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Einval => "EINVAL",
            Self::Eacces => "EACCES",
            Self::Eexist => "EEXIST",
            Self::Eisdir => "EISDIR",
            Self::Enoent => "ENOENT",
            Self::Enomem => "ENOMEM",
            Self::Enospc => "ENOSPC",
            Self::Eio => "EIO",
            Self::Enotempty => "ENOTEMPTY",
            Self::Enosys => "ENOSYS",
            Self::Erofs => "EROFS",
            Self::Ebusy => "EBUSY",
            Self::Eagain => "EAGAIN",
            Self::Eisconn => "EISCONN",
            Self::E2big => "E2BIG",
            Self::Eperm => "EPERM",
        }
    }

    /// The error of that name; a name that is not known counts as `EINVAL`, as
    /// Xen's own client takes it.
    #[must_use]
    pub fn from_wire(name: &[u8]) -> Self {
        Self::ALL.into_iter().find(|e| e.as_str().as_bytes() == name).unwrap_or(Self::Einval)
    }
}

impl fmt::Display for StoreErrno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An operation that a platform refused, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A grant could not be used.
    #[error("grant {gref} of domain {domain}: {status}")]
    Grant {
        /// The granting domain.
        domain: DomId,
        /// The first reference that failed.
        gref: GrantRef,
        /// Reason of the refusal.
        status: GrantStatus,
    },
    /// An event channel could not be used.
    #[error("event channel {port} of domain {domain}: {why}")]
    Event {
        /// Owner of the port.
        domain: DomId,
        /// The port.
        port: Port,
        /// The state that was found, and the state that was expected.
        why: &'static str,
    },
    /// The store refused.
    #[error("xenstore {what} {path}: {errno}")]
    Store {
        /// The operation.
        what: &'static str,
        /// On which path.
        path: String,
        /// Reason of the refusal.
        errno: StoreErrno,
    },
    /// A table or a quota is full.
    #[error("{what} is full at {limit}; {remedy}")]
    Exhausted {
        /// Name of the table.
        what: &'static str,
        /// Number of entries that the table has.
        limit: u64,
        /// The limit to raise, or the resource to close.
        remedy: &'static str,
    },
    /// No such domain.
    #[error("domain {domain} is not there; {remedy}")]
    NoDomain {
        /// The domain.
        domain: DomId,
        /// Remedy for the operator.
        remedy: &'static str,
    },
    /// The hypervisor, its host process or the store went away.
    #[error("{what} is gone; start it again, then this command")]
    Gone {
        /// The missing resource.
        what: String,
    },
    /// The operating system refused.
    #[error("{call}: {reason}; {remedy}")]
    Os {
        /// The call or the file.
        call: String,
        /// The system's words.
        reason: String,
        /// Remedy for the operator.
        remedy: &'static str,
    },
    /// Somebody broke the protocol between us and the platform.
    #[error("{what}: found {found}, expected {expected}")]
    Protocol {
        /// Place of the value.
        what: &'static str,
        /// The value that was found.
        found: String,
        /// The value that was expected.
        expected: &'static str,
    },
}
