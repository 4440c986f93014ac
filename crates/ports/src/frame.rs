//! Length and unfinished work of a frame in private memory, and reasons why frames are dropped.

use grantway_netif::Offload;
use grantway_netif::headers::Why;

/// Smallest buffer for a frame of any kind, in bytes.
///
/// A GSO frame has an IP packet of up to 65,535 bytes, an Ethernet header, and up to two VLAN tags.
/// These are 65,557 bytes. The rest is reserve.
pub const RECV_BUFFER: usize = 65_536 + 128;

/// Length of an Ethernet header without tags, in bytes. No port accepts shorter frames.
pub const ETHERNET_HEADER: usize = 14;

/// Length and unfinished work of a frame in private memory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FrameMeta {
    /// Length of the frame at the start of the buffer, in bytes, without FCS.
    pub len: usize,
    /// Checksum and segmentation state.
    pub offload: Offload,
}

/// Most frames of a burst.
pub const BURST: usize = 64;

/// Place of a frame in the arena of a burst.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FramePlace {
    /// Offset in the arena, in bytes.
    pub at: usize,
    /// Length and unfinished work of the frame.
    pub meta: FrameMeta,
}

impl FramePlace {
    /// Returns the bytes of the frame, or no bytes if its place is beyond the arena. No port
    /// accepts a frame without bytes.
    #[inline]
    #[must_use]
    pub fn bytes<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        arena.get(self.at..).and_then(|rest| rest.get(..self.meta.len)).unwrap_or(&[])
    }
}

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Reason why a frame was dropped. Each reason has a counter.
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
    /// The frame is longer than the interface's MTU, and must not be segmented.
    LongerThanMtu = "longer-than-mtu",
    /// The interface's queue is full.
    QueueFull = "queue-full",
    /// The frame is shorter than an Ethernet header.
    TooShort = "too-short",
    /// The frame is longer than the port or the buffer allows.
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
    /// Segmentation into more segments than allowed is asked for.
    GsoTooMany = "gso-too-many",
    /// Segmentation is asked for, and the checksum is not unfinished.
    GsoNotPartial = "gso-not-partial",
    /// The received frame has an unknown kind of segmentation.
    GsoUnknown = "gso-unknown",
    /// The received frame has a kind of segmentation that is switched off: it was queued before the
    /// call of `PortControl::set_offloads`.
    GsoNotWanted = "gso-not-wanted",
    /// The kernel refused the frame as malformed, or for an unknown reason.
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

impl core::fmt::Display for DropReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}
