//! What can go wrong on a vif, by our caller's doing, the backend's, or the
//! platform's.

use alloc::string::String;
use grantway_hypervisor::Error as PlatformError;
use grantway_netif::slots::rx::RxFatal;
use grantway_ring::RingError;

/// Why a frame was not sent. The frame is the caller's still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No slot or no page is free now: flush, wait for an event, take it in,
    /// and send again.
    #[error("the transmit ring is full")]
    Full,
    /// Shorter than an Ethernet header or longer than 65,535 bytes.
    #[error("a frame of {found} bytes cannot be sent, which takes 14 to {longest}")]
    Length {
        /// The frame's length in bytes.
        found: usize,
        /// The longest that this backend takes.
        longest: usize,
    },
    /// The backend did not offer what this frame asks of it.
    #[error("the backend takes no frame with {what}")]
    NotOffered {
        /// What the frame asks.
        what: &'static str,
    },
}

/// What the backend did that no backend may. The vif is to be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Its producer index is absurd.
    #[error("{ring} ring: {source}")]
    Ring {
        /// `transmit`, `receive` or `control`.
        ring: &'static str,
        /// What was found.
        source: RingError,
    },
    /// It answered a request that is not outstanding.
    #[error("transmit ring: response at {index} has id {found}, which is not outstanding")]
    UnknownId {
        /// Free-running index of the response.
        index: u32,
        /// The id found.
        found: u16,
    },
    /// It answered an extra slot that was not sent, or a data slot as an extra.
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
    /// Its receive responses break the protocol.
    #[error("receive ring, response at {index}: {source}")]
    Slots {
        /// Free-running index of the first response of the packet.
        index: u32,
        /// What was found.
        source: RxFatal,
    },
    /// It answered a control request that is not out, or answered it twice.
    #[error("control ring: answer at {index} has id {found}, which is not outstanding")]
    UnknownAnswer {
        /// Free-running index of the answer.
        index: u32,
        /// The id found.
        found: u16,
    },
    /// Its answer is to another type of request than was sent by that id.
    #[error("control ring: answer at {index} is of type {found}, expected {expected}")]
    WrongAnswer {
        /// Free-running index of the answer.
        index: u32,
        /// The type found.
        found: u16,
        /// The type of the request.
        expected: u16,
    },
    /// Its answer has a status without a name.
    #[error("control ring: answer at {index} has status {found}, expected 0 to 3")]
    UnknownStatus {
        /// Free-running index of the answer.
        index: u32,
        /// The status found.
        found: u32,
    },
    /// It unmapped more staged grants than the list had.
    #[error("control ring: answer at {index} tells of {found} grants of a list of {expected}")]
    TooManyDeleted {
        /// Free-running index of the answer.
        index: u32,
        /// The number found.
        found: u32,
        /// Entries of the list.
        expected: u32,
    },
    /// A bug of ours, found before it could do harm.
    #[error("internal: {0}")]
    Internal(&'static str),
}

/// Why a vif cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VifError {
    /// The platform refused or went away.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The backend broke the protocol; the vif is to be closed.
    #[error("the backend broke the protocol: queue {queue}, {source}")]
    Peer {
        /// On which of the vif's queues.
        queue: u16,
        /// What it did.
        source: PeerError,
    },
    /// The backend broke the protocol of the control ring; the vif is to be closed.
    #[error("the backend broke the protocol: {source}")]
    Control {
        /// What it did.
        source: PeerError,
    },
    /// There is no such vif.
    #[error("{path} is not there: no vif {devid} is attached; attach one first")]
    NoVif {
        /// The folder that was looked for.
        path: String,
        /// The vif's number.
        devid: u32,
    },
    /// A key of the vif is missing or malformed.
    #[error("{path}: found {found}, expected {expected}")]
    Key {
        /// The store path.
        path: String,
        /// What was read.
        found: String,
        /// What the protocol asks for.
        expected: &'static str,
    },
}
