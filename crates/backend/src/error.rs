//! Errors that end a vif or prevent its connection, and errors that prevent the start of a backend.

use crate::ids::VifId;
use crate::journal::JournalError;
use crate::journal::Tampered;
use grantway_hypervisor::{Error as PlatformError, GrantStatus, StoreErrno};
use grantway_ports::PortError;
use grantway_ring::RingError;
use grantway_vector::graph::GraphError;

/// Reason why a backend does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The platform or the store cannot be opened.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The journal of a predecessor cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The graph cannot be made.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Reason why a vif is no longer served. Other vifs are not affected.
#[derive(Debug, thiserror::Error)]
pub enum VifError {
    /// The guest's producer index is impossible.
    #[error("queue {queue}, {ring} ring: {source}")]
    Ring {
        /// Queue number.
        queue: u16,
        /// `guest transmit` or `guest receive`.
        ring: &'static str,
        /// The error that was found.
        source: RingError,
    },
    /// The guest's producer index on the control ring is impossible.
    #[error("control ring: {0}")]
    Control(RingError),
    /// The guest's slots break the protocol, so that the rest of the ring cannot be read.
    #[error("queue {queue}, slot {index}: {source}")]
    Slots {
        /// Queue number.
        queue: u16,
        /// Free-running ring index of the first slot that was not consumed.
        index: u32,
        /// The error that was found.
        source: grantway_netif::slots::tx::TxFatal,
    },
    /// A driver of the kernel serves the vif.
    #[error(
        "the kernel's driver {driver} holds {name}; detach the vif, `rmmod xen-netback` and keep \
         it away (`grantway doctor` says how), then attach it again"
    )]
    Claimed {
        /// The device on the kernel's xen-backend bus.
        name: String,
        /// The driver.
        driver: String,
    },
    /// The ring does not fit the journal of the process that served the ring before.
    #[error(transparent)]
    Tampered(#[from] Tampered),
    /// The platform refused a call, or is gone.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The port behind the vif cannot be used any longer.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A fault of this crate, found before it did harm.
    #[error("internal: {0}")]
    Internal(&'static str),
    /// A key of the frontend is missing or not a number.
    #[error("{path}: found {found}, expected {expected}")]
    Key {
        /// Path of the key in the store. Without a store, the key.
        path: String,
        /// The value that was read.
        found: String,
        /// The value that the protocol asks for.
        expected: &'static str,
    },
    /// The frontend wants pages to be flipped, not copied into.
    #[error(
        "{path}/request-rx-copy is {found}, expected 1: the frontend wants pages flipped, \
         which no backend does any more"
    )]
    NoRxCopy {
        /// The frontend's folder.
        path: String,
        /// The value that was read.
        found: String,
    },
    /// The table of vifs and of names in rules is full.
    #[error(
        "no number is left for it: at most {} vifs and names in rules; leave names out of the \
         file of rules, or detach vifs",
        grantway_vector::rules::NAMES_MAX
    )]
    Names,
    /// A vif of the same name is attached to this [`RingServer`](crate::RingServer).
    #[error("{0} is attached already; detach it first")]
    Attached(VifId),
    /// No vif of this name is attached to this [`RingServer`](crate::RingServer).
    #[error("{0} is not attached; attach it first")]
    NotAttached(VifId),
    /// No server that was killed or dropped left this connection.
    #[error(
        "{0}: the journal has no connection with these rings and event channels; attach it as a \
         new one, with rings that no other backend has had"
    )]
    NotLeft(VifId),
    /// The worker thread that owns the queues ended.
    #[error("the worker has ended")]
    WorkerGone,
}

/// Cause of an error that may pass in a moment, although no node changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    /// The store.
    Store,
    /// The kernel or the hypervisor: memory, descriptors, tables, or a device that another program
    /// holds.
    Machine,
}

impl VifError {
    /// Returns true if the error may pass by itself, so that the same call may succeed in a moment.
    /// These are all errors of the system, a port or the store, grants that the hypervisor has no room
    /// for, and event channels that cannot be bound: they may still be bound to a process that died.
    /// A wrong event channel of a guest looks the same, so a caller limits its attempts, for instance
    /// to five seconds.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.passing(true).is_some()
    }

    /// Returns the cause of the error if the error may pass by itself. Errors of values that the
    /// guest wrote or granted do not pass. At a takeover (`resume`), an event channel that cannot
    /// be bound may still be bound to the process that died.
    pub(crate) fn passing(&self, resume: bool) -> Option<Passing> {
        match self {
            Self::Platform(PlatformError::Store { errno, .. }) => {
                (!is_of_nodes(*errno)).then_some(Passing::Store)
            }
            Self::Platform(PlatformError::Exhausted { .. } | PlatformError::Os { .. })
            | Self::Port(PortError::Io { .. } | PortError::Tap(_)) => Some(Passing::Machine),
            Self::Platform(PlatformError::Grant { status, .. }) => {
                let passes = matches!(*status, GrantStatus::EAGAIN | GrantStatus::NO_DEVICE_SPACE);
                passes.then_some(Passing::Machine)
            }
            Self::Platform(PlatformError::Event { .. }) => resume.then_some(Passing::Machine),
            _ => None,
        }
    }
}

/// Returns true if the error comes from the nodes: they are missing, or not ours. All other errors
/// come from the store.
pub(crate) fn is_of_nodes(errno: StoreErrno) -> bool {
    matches!(errno, StoreErrno::Enoent | StoreErrno::Eacces | StoreErrno::Eperm)
}
