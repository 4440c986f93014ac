//! Errors of a port, and the reasons for which a frame is dropped.

use crate::{PacketError, TapError, pcap::CaptureError};
use grantway_netif::headers::Why;

/// Reason for which a frame was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The port would have to wait. It took nothing, and counted nothing as dropped.
    #[error("the port is busy; send again later")]
    Busy,
    /// The port dropped the frame, and counted it under this reason.
    #[error("frame dropped: {0}")]
    Dropped(DropReason),
    /// The port is of no more use.
    #[error(transparent)]
    Failed(#[from] PortError),
}

/// Error that ends a port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A system call failed in a way that no later frame can mend.
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
    /// A packet socket could not be set up.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A capture file could not be read or written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
}

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Reason for which one frame was dropped; each reason is a counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)*];

            /// Returns the counter's name: lower case, words joined by `-`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

drop_reasons! {
    /// The interface is administratively down.
    InterfaceDown = "interface-down",
    /// The interface was deleted.
    InterfaceGone = "interface-gone",
    /// The frame is longer than the interface's MTU, and is not to be segmented.
    LongerThanMtu = "longer-than-mtu",
    /// The interface's queue is full.
    QueueFull = "queue-full",
    /// The frame is shorter than an Ethernet header.
    TooShort = "too-short",
    /// The frame is longer than the port or the buffer can hold.
    TooLong = "too-long",
    /// The checksum is unfinished, and the frame is neither IPv4 nor IPv6.
    NotIp = "not-ip",
    /// The checksum is unfinished, and the frame ends within its headers, or before the length that
    /// its IP header claims.
    Truncated = "truncated-headers",
    /// The checksum is unfinished, and an IP or TCP header contradicts itself (version, IHL or data
    /// offset).
    BadHeader = "bad-header",
    /// The checksum is unfinished, and the frame is a fragment, which has no checksum of its own.
    Fragment = "fragment",
    /// The frame has more IPv6 extension headers than any real packet carries.
    ExtensionChain = "extension-chain",
    /// The checksum is unfinished, and the transport is neither TCP nor UDP.
    OtherTransport = "other-transport",
    /// Segmentation of TCP is asked for, and the frame is not TCP.
    GsoNotTcp = "gso-not-tcp",
    /// Segmentation of UDP is asked for, and the frame is not UDP.
    GsoNotUdp = "gso-not-udp",
    /// Segmentation is asked for another IP version than the frame has.
    GsoWrongFamily = "gso-wrong-family",
    /// Segmentation is asked for with a segment size of 0.
    GsoZeroSize = "gso-zero-size",
    /// Segmentation is asked for into more segments than are cut here.
    GsoTooMany = "gso-too-many",
    /// Segmentation is asked for, and the checksum is not unfinished.
    GsoNotPartial = "gso-not-partial",
    /// The received frame has a kind of segmentation that is not known here.
    GsoUnknown = "gso-unknown",
    /// The received frame has segmentation that is switched off: it was queued before
    /// [`PortControl::set_offloads`](super::PortControl::set_offloads).
    GsoNotWanted = "gso-not-wanted",
    /// The kernel refused the frame, as malformed or for a reason not known here.
    Rejected = "rejected",
    /// The kernel had no memory for the frame.
    NoMemory = "no-memory",
    /// The port only receives.
    ReceiveOnly = "receive-only",
}

impl From<Why> for DropReason {
    fn from(why: Why) -> Self {
        match why {
            Why::TooShort => Self::TooShort,
            Why::NotIp => Self::NotIp,
            Why::Truncated => Self::Truncated,
            Why::Version | Why::HeaderLength | Why::TotalLength => Self::BadHeader,
            Why::Fragment => Self::Fragment,
            Why::Extensions => Self::ExtensionChain,
            Why::OtherTransport => Self::OtherTransport,
        }
    }
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
