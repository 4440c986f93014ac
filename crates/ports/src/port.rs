//! The seam: one frame at a time, all of it or nothing.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use grantway_netif::{Offload, headers::Why};

use crate::generator::Generator;
use crate::split::{SplitFrame, send_gathered, send_joined};
use crate::{
    TapError,
    checker::{CheckPort, FlowReport},
    pcap::CaptureError,
    tap::TapOffloads,
};

/// Smallest buffer, in bytes, that [`Port::recv`] is to be given.
///
/// A GSO frame holds an IP packet of up to 65,535 bytes behind an Ethernet
/// header and up to two VLAN tags, which is 65,557; the rest is slack.
pub const RECV_BUFFER: usize = 65_536 + 128;

/// Length of an Ethernet header without tags, in bytes; no port takes less.
pub const ETHERNET_HEADER: usize = 14;

/// A frame in private memory and what travels beside it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FrameMeta {
    /// Length of the frame at the start of the buffer, in bytes, without FCS.
    pub len: usize,
    /// Checksum and segmentation state.
    pub offload: Offload,
}

/// Most frames that [`Port::recv_burst`] receives.
pub const BURST: usize = 64;

/// A frame of a burst: it begins at this offset of the arena, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FramePlace {
    /// Offset in the arena, in bytes.
    pub at: usize,
    /// The frame.
    pub meta: FrameMeta,
}

impl FramePlace {
    /// Its bytes; none of a place beyond the arena, which no port takes for a
    /// frame.
    #[inline]
    #[must_use]
    pub fn bytes<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        arena.get(self.at..).and_then(|rest| rest.get(..self.meta.len)).unwrap_or(&[])
    }
}

/// What became of the frames of a burst.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SentBurst {
    /// Frames that the port took.
    pub taken: usize,
    /// Their bytes.
    pub bytes: usize,
    /// As [`SendError::Busy`].
    pub busy: usize,
    /// As [`SendError::Dropped`].
    pub dropped: usize,
    /// Frames of these that were sent as part of a merged one.
    pub merged: usize,
}

impl SentBurst {
    /// Counts what a port said of so many frames, of so many bytes together.
    ///
    /// # Errors
    /// The port is of no more use.
    #[inline]
    pub fn count(
        &mut self,
        said: Result<(), SendError>,
        frames: usize,
        bytes: usize,
    ) -> Result<(), PortError> {
        match said {
            Ok(()) => {
                self.taken += frames;
                self.bytes += bytes;
            }
            Err(SendError::Busy) => self.busy += frames,
            Err(SendError::Dropped(_)) => self.dropped += frames,
            Err(SendError::Failed(error)) => return Err(error),
        }
        Ok(())
    }
}

/// Where frames go to and come from, beyond the vif.
///
/// A port never blocks and is driven by one thread. Two kinds of trouble are
/// kept apart: [`SendError::Dropped`] costs one frame, is counted by the port
/// and never repeats by itself; [`PortError`] ends the port.
pub trait Port: Send {
    /// Sends one frame, all of it or nothing.
    ///
    /// # Errors
    /// [`SendError::Busy`]: nothing was taken, try again when the descriptor
    /// is writable or after a pause. [`SendError::Dropped`]: the frame cannot
    /// be sent by this port and was counted. [`SendError::Failed`]: the port
    /// is of no more use.
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError>;

    /// Sends the frames at these places of `arena`, in order, each as
    /// [`Port::send`] does.
    ///
    /// # Errors
    /// The port is of no more use.
    fn send_burst(&mut self, arena: &[u8], frames: &[FramePlace]) -> Result<SentBurst, PortError> {
        let mut sent = SentBurst::default();
        for place in frames {
            let bytes = place.bytes(arena);
            sent.count(self.send(bytes, place.meta.offload), 1, bytes.len())?;
        }
        Ok(sent)
    }

    /// Sends one frame whose rest is not private. When this returns, whatever it
    /// says, nothing of the rest is looked at any more. Ports that look at
    /// payloads, or keep them, are given a copy, which is made in `room`: at
    /// least as long as the frame.
    ///
    /// # Errors
    /// As [`Port::send`].
    fn send_split(
        &mut self,
        frame: &SplitFrame<'_>,
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        send_gathered(self, frame, offload, room)
    }

    /// Whether a large TCP frame costs it less than its segments do, so that those are
    /// to come merged, and it may give such frames to who has to cut them.
    fn wants_merged(&self) -> bool {
        false
    }

    /// Sends one large frame that was merged of as many segments as it has pieces: one
    /// lies behind the other, and all headers are in the first. Where the port counts
    /// frames it counts the segments. Ports that cannot take it so are given a copy,
    /// which is made in `room`: at least as long as the frame.
    ///
    /// # Errors
    /// As [`Port::send`].
    fn send_pieces(
        &mut self,
        pieces: &[&[u8]],
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        send_joined(self, pieces, offload, room)
    }

    /// Ends a burst: ports that buffer write out here.
    ///
    /// # Errors
    /// What was buffered could not be written; the port is of no more use.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Receives one frame into `buf`, or `Ok(None)` when there is none now.
    ///
    /// `buf` is to hold [`RECV_BUFFER`] bytes. A frame that does not fit, or
    /// whose offload the network side has not agreed to, is dropped and
    /// counted, and the next one is tried.
    ///
    /// # Errors
    /// The port is of no more use.
    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError>;

    /// Receives frames into `arena` until there are none, or `frames` is full, or
    /// what is left of the arena could not hold any frame; each begins at a
    /// multiple of 64 bytes, and its place is added to `frames`.
    ///
    /// # Errors
    /// As [`Port::recv`]; what was received before stays listed.
    fn recv_burst(
        &mut self,
        arena: &mut [u8],
        frames: &mut ArrayVec<FramePlace, BURST>,
    ) -> Result<(), PortError> {
        let mut at = 0;
        while !frames.is_full()
            && let Some(room) = arena.get_mut(at..at + RECV_BUFFER)
            && let Some(meta) = self.recv(room)?
        {
            frames.push(FramePlace { at, meta });
            at = (at + meta.len).next_multiple_of(64);
        }
        Ok(())
    }

    /// The generator that it is, for who has its frames made where they are sent from.
    fn as_generator(&mut self) -> Option<&mut Generator> {
        None
    }

    /// The checker that it is, for who has frames judged where they were received.
    fn as_checker(&mut self) -> Option<&mut CheckPort> {
        None
    }

    /// Whether each frame that is received fits a page and leaves nothing to be
    /// done, so that whoever has room for a burst of pages may ask for a burst.
    fn is_short(&self) -> bool {
        false
    }

    /// The descriptor that is readable while `recv` has something.
    ///
    /// `None` for a port that has none, which is to be polled if
    /// [`always_ready`](Port::always_ready) and never asked otherwise.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Whether `recv` may have something that no descriptor announces
    /// (a generator, a capture file not yet at its end).
    fn always_ready(&self) -> bool;

    /// The name that operators see.
    fn name(&self) -> &str;

    /// What has passed so far.
    fn counters(&self) -> &Counters;

    /// Says which unfinished frames `recv` may hand over from now on: what the
    /// frontend at the other end can take. It may change while the port is
    /// open. Ports that only have finished frames ignore it.
    ///
    /// # Errors
    /// The platform refused the change; the earlier setting still stands.
    fn set_offloads(&mut self, offloads: TapOffloads) -> Result<(), PortError> {
        let _ = offloads;
        Ok(())
    }

    /// Says whether frames can cross the vif behind the port now: an interface
    /// shows it as its carrier. Ports without a link ignore it.
    ///
    /// # Errors
    /// The platform refused the change.
    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let _ = up;
        Ok(())
    }

    /// Says that the vif is gone for good: what would outlive this process (a
    /// persistent interface) goes with the port.
    ///
    /// # Errors
    /// The platform refused.
    fn remove(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// The index of the network interface behind the port, where there is one:
    /// it stays when the interface is renamed.
    fn interface(&self) -> Option<u32> {
        None
    }

    /// How many queues the port can have: handles that frames are sent to and
    /// received from side by side, each by a thread of its own.
    fn max_queues(&self) -> u32 {
        1
    }

    /// One more queue of the same port. What a flow's frames come in on, and
    /// whether flows keep to one queue, is the port's affair.
    ///
    /// # Errors
    /// The platform refused, or the port has as many as it can have.
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Err(PortError::NoMoreQueues { port: self.name().to_owned() })
    }

    /// Whether the vif is on the backend's own bridge: then its frames go from
    /// guest to guest without a port, and this one is never sent to.
    fn is_bridged(&self) -> bool {
        false
    }

    /// What became of numbered test frames, for a port that judges them.
    fn checked(&self) -> Option<CheckReport> {
        None
    }

    /// How long test frames were under way that carried a time, for a port that
    /// judges them: nanoseconds, and how many took so long.
    fn latency(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

/// What became of the numbered test frames sent to a port.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CheckReport {
    /// All flows together.
    pub total: FlowReport,
    /// Frames that were damaged.
    pub corrupt: u64,
    /// Frames that were not the generator's.
    pub foreign: u64,
}

impl CheckReport {
    /// Two queues together, where each flow kept to one of them.
    fn plus(self, other: Self) -> Self {
        Self {
            total: self.total.plus(other.total),
            corrupt: self.corrupt + other.corrupt,
            foreign: self.foreign + other.foreign,
        }
    }
}

/// A port's name and counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortReport {
    /// The name that operators see.
    pub name: String,
    /// What has passed and what was dropped.
    pub counters: Counters,
    /// What became of numbered test frames, where the port judges them.
    pub checked: Option<CheckReport>,
    /// As [`Port::latency`].
    pub latency: Vec<(u64, u64)>,
}

impl PortReport {
    /// Reads a port.
    #[must_use]
    pub fn of(port: &dyn Port) -> Self {
        Self {
            name: port.name().to_owned(),
            counters: port.counters().clone(),
            checked: port.checked(),
            latency: port.latency(),
        }
    }

    /// All queues of one port together; `None` where there are none. Latencies
    /// stand one queue after the other.
    #[must_use]
    pub fn sum(queues: impl IntoIterator<Item = Self>) -> Option<Self> {
        queues.into_iter().reduce(|mut sum, queue| {
            sum.counters.add(&queue.counters);
            sum.checked = match (sum.checked, queue.checked) {
                (Some(a), Some(b)) => Some(a.plus(b)),
                (a, b) => a.or(b),
            };
            sum.latency.extend(queue.latency);
            sum
        })
    }
}

/// Why a frame was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The port would have to wait; nothing was taken and nothing counted as
    /// dropped.
    #[error("the port is busy; send again later")]
    Busy,
    /// This frame was dropped, and counted under its reason.
    #[error("frame dropped: {0}")]
    Dropped(DropReason),
    /// The port is of no more use.
    #[error(transparent)]
    Failed(#[from] PortError),
}

/// Why a port is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A system call failed in a way that no later frame can mend.
    #[error("{port}: {operation} failed: {source}")]
    Io {
        /// The port's name.
        port: String,
        /// What was being done.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The interface behind the port was deleted.
    #[error("{port}: the interface is gone (deleted by another program?); open the port again")]
    Gone {
        /// The name it was last known by.
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
    /// A capture file could not be read or written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
}

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why one frame was dropped; each reason is a counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)*];

            /// The counter's name: lower case, words joined by `-`.
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
    /// Shorter than an Ethernet header.
    TooShort = "too-short",
    /// Longer than the port or the buffer holds.
    TooLong = "too-long",
    /// An unfinished checksum on a frame that is neither IPv4 nor IPv6.
    NotIp = "not-ip",
    /// An unfinished checksum, and the frame ends within its headers, or
    /// before the length that its IP header claims.
    Truncated = "truncated-headers",
    /// An unfinished checksum, and an IP or TCP header contradicts itself
    /// (version, IHL or data offset).
    BadHeader = "bad-header",
    /// An unfinished checksum on a fragment, which has none of its own.
    Fragment = "fragment",
    /// More IPv6 extension headers than any real packet carries.
    ExtensionChain = "extension-chain",
    /// An unfinished checksum on something other than TCP or UDP.
    OtherTransport = "other-transport",
    /// Segmentation asked of a frame that is not TCP.
    GsoNotTcp = "gso-not-tcp",
    /// Segmentation asked for the other IP version than the frame has.
    GsoWrongFamily = "gso-wrong-family",
    /// Segmentation asked with a segment size of 0.
    GsoZeroSize = "gso-zero-size",
    /// Segmentation asked into more segments than are cut here.
    GsoTooMany = "gso-too-many",
    /// Segmentation asked of a frame whose checksum is not unfinished.
    GsoNotPartial = "gso-not-partial",
    /// Received with a kind of segmentation that netif does not have.
    GsoUnknown = "gso-unknown",
    /// Received with segmentation that is switched off (a frame that was
    /// queued before [`Port::set_offloads`]).
    GsoNotWanted = "gso-not-wanted",
    /// The kernel refused the frame, as malformed or for a reason not known here.
    Rejected = "rejected",
    /// The kernel had no memory for the frame.
    NoMemory = "no-memory",
    /// This port only receives.
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

/// What a port has passed and dropped.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent; of a merged one, the segments that it is of.
    pub sent: u64,
    /// Bytes sent, without FCS.
    pub sent_bytes: u64,
    /// Frames received.
    pub received: u64,
    /// Bytes received, without FCS.
    pub received_bytes: u64,
    /// Sends answered with [`SendError::Busy`].
    pub busy: u64,
    /// Unfinished checksums that the port finished in software.
    pub checksummed: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Frames dropped for `reason`, in both directions.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Frames dropped for any reason, in both directions.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        let all = DropReason::ALL.iter().map(|&r| (r, self.dropped(r)));
        all.filter(|&(_, n)| n > 0)
    }

    /// Adds those of another queue.
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.busy += other.busy;
        self.checksummed += other.checksummed;
        for (sum, n) in self.dropped.iter_mut().zip(other.dropped) {
            *sum += n;
        }
    }

    pub(crate) fn count_sent(&mut self, len: usize) {
        self.sent += 1;
        self.sent_bytes += len as u64;
    }

    /// So many frames were sent, of so many bytes together.
    pub(crate) fn count_sent_burst(&mut self, frames: usize, bytes: usize) {
        self.sent += frames as u64;
        self.sent_bytes += bytes as u64;
    }

    pub(crate) fn count_received(&mut self, len: usize) {
        self.received += 1;
        self.received_bytes += len as u64;
    }

    /// So many frames of one length were received.
    pub(crate) fn count_burst(&mut self, frames: usize, len: usize) {
        self.received += frames as u64;
        self.received_bytes += (frames * len) as u64;
    }

    pub(crate) fn drop_one(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Counts a drop and makes the error of it.
    pub(crate) fn refuse(&mut self, reason: DropReason) -> SendError {
        self.drop_one(reason);
        SendError::Dropped(reason)
    }
}
