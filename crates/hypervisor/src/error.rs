//! Errors of requests to the hypervisor and to the store.

use crate::{DomId, GrantRef, GrantStatus, Port};
use alloc::string::String;
use core::fmt;

/// An error of the store. [`StoreErrno::as_str`] returns its name in `xs_wire.h`, which is the text
/// on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrno {
    /// A malformed request or path.
    Einval,
    /// The permissions of the node forbid the operation.
    Eacces,
    /// The node exists already.
    Eexist,
    /// The node is a directory.
    Eisdir,
    /// No such node.
    Enoent,
    /// The store has no memory left.
    Enomem,
    /// No space: a quota is used up.
    Enospc,
    /// Input or output failed.
    Eio,
    /// The node has children.
    Enotempty,
    /// The store does not implement the request.
    Enosys,
    /// The store is read-only.
    Erofs,
    /// The resource is in use, for example by another transaction of the connection.
    Ebusy,
    /// The transaction conflicts with another change. Run it again.
    Eagain,
    /// The domain is connected already.
    Eisconn,
    /// The request or its answer is too large.
    E2big,
    /// Only the owner or domain 0 may do this.
    Eperm,
}

impl StoreErrno {
    /// All errors, for tables.
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

    /// Returns the name on the wire, such as `ENOENT`.
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

    /// Returns the error with this name. Returns `EINVAL` for an unknown name, as Xen's own client
    /// (`libxenstore`) does.
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

/// Error of an operation that a platform did not carry out. The message names the remedy for the
/// operator if there is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A grant could not be mapped or copied.
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
    /// The store refused a request.
    #[error("xenstore {what} {path}: {errno}")]
    Store {
        /// Name of the operation, such as `read`.
        what: &'static str,
        /// Path of the node.
        path: String,
        /// Reason of the refusal.
        errno: StoreErrno,
    },
    /// A table or a quota is full.
    #[error("{what} is full at {limit}; {remedy}")]
    Exhausted {
        /// Name of the table.
        what: &'static str,
        /// Number of entries in the table.
        limit: u64,
        /// Remedy for the operator: the limit to raise, or the resource to free.
        remedy: &'static str,
    },
    /// The domain does not exist, or does not run.
    #[error("domain {domain}: found no running domain, expected one; {remedy}")]
    NoDomain {
        /// Number of the domain.
        domain: DomId,
        /// Remedy for the operator.
        remedy: &'static str,
    },
    /// The hypervisor, its host process or the store is gone.
    #[error("{what} is gone; start it again, then run this command again")]
    Gone {
        /// The missing resource.
        what: String,
    },
    /// The operating system refused a call.
    #[error("{call}: {reason}; {remedy}")]
    Os {
        /// Name of the call, with its file or argument.
        call: String,
        /// Message of the operating system.
        reason: String,
        /// Remedy for the operator.
        remedy: &'static str,
    },
    /// The platform sent a value that its protocol does not allow.
    #[error("{what}: found {found}, expected {expected}")]
    Protocol {
        /// Name of the value or of its message.
        what: &'static str,
        /// The value that was found.
        found: String,
        /// The value that was expected.
        expected: &'static str,
    },
}
