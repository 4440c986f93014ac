//! Errors of a port.

use crate::{DropReason, PacketError, TapError, VhostError, pcap::CaptureError};

/// Reason why a frame was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The port would have to wait. It took nothing, and counted no drop.
    #[error("the port is busy; send again later")]
    Busy,
    /// The port dropped the frame, and counted it under this reason.
    #[error("frame dropped: {0}")]
    Dropped(DropReason),
    /// The port cannot be used any longer.
    #[error(transparent)]
    Failed(#[from] PortError),
}

/// Error that ends a port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A system call failed, and later calls will fail, too.
    #[error("{port}: {operation} failed: {source}")]
    Io {
        /// The port's name.
        port: String,
        /// Operation that failed.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The interface behind the port was deleted.
    #[error("{port}: the interface is gone (deleted by another program?); open the port again")]
    Gone {
        /// Last known name of the interface.
        port: String,
    },
    /// The port has as many queues as it can have.
    #[error("{port}: one more queue was asked for, and this port has no more; use fewer queues")]
    NoMoreQueues {
        /// The port's name.
        port: String,
    },
    /// A TAP could not be set up or changed.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// A TAP could not be used with vhost-net.
    #[error(transparent)]
    Vhost(#[from] VhostError),
    /// A packet socket could not be set up.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A capture file could not be read or written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
}
