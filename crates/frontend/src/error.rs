//! Errors of a vif: faults of the caller, of the backend, and of the platform.

use alloc::string::String;
use grantway_hypervisor::Error as PlatformError;
use grantway_netif::slots::rx::RxFatal;
use grantway_ring::RingError;

/// Reason why a frame was not sent. The caller still has the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No slot or no page is free. Flush, wait for an event, reap, and send again.
    #[error("the transmit ring is full")]
    Full,
    /// The frame is shorter than an Ethernet header, or longer than `longest`.
    #[error("a frame of {found} bytes cannot be sent, which takes 14 to {longest}")]
    Length {
        /// The frame's length in bytes.
        found: usize,
        /// The longest frame that this backend accepts, in bytes.
        longest: usize,
    },
    /// The frame needs work that the backend does not offer.
    #[error("the backend takes no frame with {what}")]
    NotOffered {
        /// The work that the frame asks for.
        what: &'static str,
    },
}

/// Faults that no correct backend has. The vif must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The producer index of a ring is impossible.
    #[error("{ring} ring: {source}")]
    Ring {
        /// `transmit`, `receive` or `control`.
        ring: &'static str,
        /// The index that was found.
        source: RingError,
    },
    /// The backend answered a request that is not outstanding.
    #[error("transmit ring: response at {index} has id {found}, which is not outstanding")]
    UnknownId {
        /// Free-running index of the response.
        index: u32,
        /// The id found.
        found: u16,
    },
    /// The backend answered an extra slot that was not sent, or a data slot as an extra.
    #[error("transmit ring: response at {index} answers an extra slot, of which none is out")]
    UnknownExtra {
        /// Free-running index of the response.
        index: u32,
    },
    /// A receive response names another buffer than the one posted there.
    #[error("receive ring: response at {index} has id {found}, expected {expected}")]
    WrongId {
        /// Free-running index of the response.
        index: u32,
        /// The id found.
        found: u16,
        /// The id of the buffer posted at that index.
        expected: u16,
    },
    /// The receive responses break the protocol.
    #[error("receive ring, response at {index}: {source}")]
    Slots {
        /// Free-running index of the first response of the packet.
        index: u32,
        /// The rule that was broken.
        source: RxFatal,
    },
    /// The backend answered a control request that is not out, or answered it twice.
    #[error("control ring: answer at {index} has id {found}, which is not outstanding")]
    UnknownAnswer {
        /// Free-running index of the answer.
        index: u32,
        /// The id found.
        found: u16,
    },
    /// The answer has another type than the request with that id.
    #[error("control ring: answer at {index} is of type {found}, expected {expected}")]
    WrongAnswer {
        /// Free-running index of the answer.
        index: u32,
        /// The type found.
        found: u16,
        /// The type of the request.
        expected: u16,
    },
    /// The answer has an unknown status.
    #[error("control ring: answer at {index} has status {found}, expected 0 to 3")]
    UnknownStatus {
        /// Free-running index of the answer.
        index: u32,
        /// The status found.
        found: u32,
    },
    /// The backend reports more unmapped grants than the list had.
    #[error("control ring: answer at {index} tells of {found} grants of a list of {expected}")]
    TooManyDeleted {
        /// Free-running index of the answer.
        index: u32,
        /// The number found.
        found: u32,
        /// Entries of the list.
        expected: u32,
    },
    /// A fault of this crate, found before it did harm.
    #[error("internal: {0}")]
    Internal(&'static str),
}

/// Reason why a vif cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VifError {
    /// The platform refused a call, or is gone.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The backend broke the protocol. The vif must be closed.
    #[error("the backend broke the protocol: queue {queue}, {source}")]
    Peer {
        /// Number of the queue in the vif.
        queue: u16,
        /// The backend's fault.
        source: PeerError,
    },
    /// The backend broke the protocol of the control ring. The vif must be closed.
    #[error("the backend broke the protocol: {source}")]
    Control {
        /// The backend's fault.
        source: PeerError,
    },
    /// The vif does not exist.
    #[error("{path} is not there: no vif {devid} is attached; attach one first")]
    NoVif {
        /// The folder that was searched.
        path: String,
        /// The vif's number.
        devid: u32,
    },
    /// A key of the vif is missing or malformed.
    #[error("{path}: found {found}, expected {expected}")]
    Key {
        /// The store path.
        path: String,
        /// The value that was read.
        found: String,
        /// The value that the protocol asks for.
        expected: &'static str,
    },
}
