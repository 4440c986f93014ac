//! The interface between a vif and the network behind it.

mod error;
mod report;
mod whole;

pub use crate::frame::{BURST, DropReason, ETHERNET_HEADER, FrameMeta, FramePlace, RECV_BUFFER};
pub use error::{PortError, SendError};
pub use report::{CheckReport, Counters, PortReport};
pub(crate) use whole::{send_gathered, send_joined};

use crate::offloads::TapOffloads;
use crate::split::{SplitFrame, SplitMeta, SplitRoom};
use arrayvec::ArrayVec;
use grantway_netif::Offload;
use std::any::Any;
use std::os::fd::BorrowedFd;

/// Numbers of the frames of a burst, by outcome.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SentBurst {
    /// Frames that the port took.
    pub taken: usize,
    /// Bytes of the frames that the port took.
    pub bytes: usize,
    /// Frames that were refused with [`SendError::Busy`].
    pub busy: usize,
    /// Frames that were refused with [`SendError::Dropped`].
    pub dropped: usize,
    /// Frames of `taken` that were sent as part of a merged frame.
    pub merged: usize,
}

impl SentBurst {
    /// Counts the port's answer for `frames` frames of `bytes` bytes together.
    ///
    /// # Errors
    /// [`SendError::Failed`]: the port cannot be used any longer.
    #[inline]
    pub fn count(
        &mut self,
        answer: Result<(), SendError>,
        frames: usize,
        bytes: usize,
    ) -> Result<(), PortError> {
        match answer {
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

/// Capabilities of a port.
///
/// All but [`short`](PortCaps::short) stay as they are while the port is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortCaps {
    /// Most queues. Queues are handles that send and receive frames in parallel, each used by a
    /// thread of its own.
    pub max_queues: u32,
    /// True if one large TCP frame costs the port less than its segments. Then TCP segments are
    /// merged for the port, and it may give large frames to a receiver that must cut them.
    pub wants_merged: bool,
    /// True if the same is true for UDP. Then the port accepts several datagrams of one flow in a
    /// large frame ([`GsoKind::Udp`](grantway_netif::GsoKind::Udp)). It is false if `wants_merged`
    /// is false.
    pub wants_merged_udp: bool,
    /// True if each frame that [`Port::recv`] returns now fits a page, and has no unfinished
    /// checksum or segmentation.
    pub short: bool,
    /// True if [`Port::send_split`] reads the pages of a frame in place, and [`Port::recv_split`]
    /// writes them in place, without a copy by the port.
    pub in_place: bool,
    /// True if the port may be full ([`Port::is_full`]).
    pub fills: bool,
    /// True if the vif belongs to the backend's own bridge. Its frames go from guest to guest, and
    /// no frame is sent to the port.
    pub bridged: bool,
}

impl Default for PortCaps {
    /// Returns the capabilities of a port with one queue and nothing else.
    fn default() -> Self {
        Self {
            max_queues: 1,
            wants_merged: false,
            wants_merged_udp: false,
            short: false,
            in_place: false,
            fills: false,
            bridged: false,
        }
    }
}

/// Event that shows that [`Port::recv`] has a frame.
#[derive(Debug, Clone, Copy)]
pub enum Readiness<'a> {
    /// There may be a frame now: poll the port.
    Now,
    /// There is a frame if this descriptor is readable.
    Readable(BorrowedFd<'a>),
    /// There is no frame, and only a call of the port's owner can change that.
    Idle,
}

impl<'a> Readiness<'a> {
    /// Returns true if the port must be polled.
    #[must_use]
    pub fn is_now(self) -> bool {
        matches!(self, Self::Now)
    }

    /// Returns the descriptor to wait for.
    #[must_use]
    pub fn descriptor(self) -> Option<BorrowedFd<'a>> {
        match self {
            Self::Readable(descriptor) => Some(descriptor),
            Self::Now | Self::Idle => None,
        }
    }
}

/// The data path of a port: frames to the network behind a vif, and frames from it.
///
/// A port never waits, and is used by one thread. [`SendError::Dropped`] loses one frame, which the
/// port counts. [`PortError`] ends the port.
///
/// [`PortControl`] changes a port, and [`Probe`] reports on it. A port needs [`send`](Port::send),
/// [`recv`](Port::recv), [`readiness`](Port::readiness), [`Probe`], and an empty `impl
/// PortControl`. All other methods have a default.
/// empty `impl PortControl`; everything else has a default.
pub trait Port: PortControl + Any + Send {
    /// Sends one frame, all of it or nothing.
    ///
    /// # Errors
    /// - [`SendError::Busy`]: nothing was taken. Try again when the descriptor is writable, or
    ///   after a pause.
    /// - [`SendError::Dropped`]: this port cannot send the frame, and counted it.
    /// - [`SendError::Failed`]: the port cannot be used any longer.
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError>;

    /// Sends the frames at these places of `arena`, in order, each as [`Port::send`] does.
    ///
    /// # Errors
    /// The port cannot be used any longer.
    fn send_burst(&mut self, arena: &[u8], frames: &[FramePlace]) -> Result<SentBurst, PortError> {
        let mut sent = SentBurst::default();
        for place in frames {
            let bytes = place.bytes(arena);
            sent.count(self.send(bytes, place.meta.offload), 1, bytes.len())?;
        }
        Ok(sent)
    }

    /// Sends one frame whose rest is in pages that its sender can still write. The port does not
    /// read the rest after this function has returned, even if it returned an error.
    ///
    /// The default sends a copy, for ports that read payloads or keep them. The copy is made in
    /// `room`, which is at least as long as the frame.
    ///
    /// # Errors
    /// The errors of [`Port::send`].
    fn send_split(
        &mut self,
        frame: &SplitFrame<'_>,
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        send_gathered(self, frame, offload, room)
    }

    /// Sends one large frame that was merged from segments. `pieces` has a piece for each segment,
    /// in order. The first one has all headers. A port that counts frames counts the segments.
    ///
    /// The default sends a copy. The copy is made in `room`, which is at least as long as the
    /// frame.
    ///
    /// # Errors
    /// The errors of [`Port::send`].
    fn send_pieces(
        &mut self,
        pieces: &[&[u8]],
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        send_joined(self, pieces, offload, room)
    }

    /// Ends a burst. A port that buffers frames writes its buffer here. The default does nothing.
    ///
    /// # Errors
    /// The buffered frames could not be written. The port cannot be used any longer.
    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Returns true if the port might refuse frames of a turn as [`SendError::Busy`]: 256 pages of
    /// frames, or their segments. A caller that can leave frames with their sender waits until
    /// [`Port::descriptor`] is readable. It calls [`Port::readiness`] first, and then this function
    /// again. By default a port takes frames as they come ([`PortCaps::fills`]).
    ///
    /// # Errors
    /// The port cannot be used any longer.
    fn is_full(&mut self) -> Result<bool, PortError> {
        Ok(false)
    }

    /// Receives one frame into `buf`. Returns `Ok(None)` if there is no frame now.
    ///
    /// `buf` has [`RECV_BUFFER`] bytes. A frame that does not fit is dropped and counted, and the
    /// next frame is tried. So is a frame whose unfinished work was not allowed by
    /// [`PortControl::set_offloads`].
    ///
    /// # Errors
    /// The port cannot be used any longer.
    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError>;

    /// Receives one frame: the first bytes to the start of `buf`, and the others into the pages of
    /// `room`. Returns `Ok(None)` if there is no frame now.
    ///
    /// A frame that is no longer than its head is private. So is a frame that the port must read:
    /// it is in `buf` as a whole, and its rest may be in the pages, too. A dropped frame leaves
    /// nothing in the pages when the call returns. `buf` has [`RECV_BUFFER`] bytes. A frame that
    /// does not fit in the pages is dropped.
    ///
    /// The default receives into `buf`, for ports that make or read whole frames.
    ///
    /// # Errors
    /// The errors of [`Port::recv`].
    fn recv_split(
        &mut self,
        buf: &mut [u8],
        room: &mut SplitRoom<'_>,
    ) -> Result<Option<SplitMeta>, PortError> {
        let _ = room;
        Ok(self.recv(buf)?.map(|meta| SplitMeta { meta, private: meta.len }))
    }

    /// Receives frames into `arena`. Ends if there are no more frames, if `frames` is full, or if
    /// the rest of the arena might be too short for a frame. Each frame begins at a multiple of 64
    /// bytes. Its place is added to `frames`.
    ///
    /// # Errors
    /// The errors of [`Port::recv`]. Frames that were received before the error stay listed.
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

    /// Receives frames like [`Port::recv_burst`], into an arena that may still have the last frames
    /// of this port. A port with similar frames then writes only the bytes that differ. `kept` is
    /// the number of frames that the port left there: 0 at first, and 0 after another writer used
    /// the arena. The port changes it. The default receives anew.
    ///
    /// # Errors
    /// The errors of [`Port::recv_burst`].
    fn recv_own_burst(
        &mut self,
        arena: &mut [u8],
        kept: &mut usize,
        frames: &mut ArrayVec<FramePlace, BURST>,
    ) -> Result<(), PortError> {
        let _ = kept;
        self.recv_burst(arena, frames)
    }

    /// Returns the event that shows that [`Port::recv`] has a frame. A caller asks before each
    /// wait, after [`Port::recv`] returned no frame: only then may the port ask for the event.
    fn readiness(&self) -> Readiness<'_>;

    /// Returns the descriptor of [`Readiness::Readable`], even if [`Port::readiness`] now returns
    /// [`Readiness::Now`].
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.readiness().descriptor()
    }

    /// Returns the capabilities of the port.
    fn caps(&self) -> PortCaps {
        PortCaps::default()
    }
}

/// Changes to a port. The defaults do nothing, since most ports have nothing to change.
pub trait PortControl: Probe {
    /// Sets the unfinished frames that [`Port::recv`] may return from now on: those that the
    /// frontend at the other end accepts. The setting may change while the port is open.
    ///
    /// # Errors
    /// The platform refused the change. The previous setting stays in force.
    fn set_offloads(&mut self, offloads: TapOffloads) -> Result<(), PortError> {
        let _ = offloads;
        Ok(())
    }

    /// Sets whether frames can cross the vif now. An interface shows this as its carrier.
    ///
    /// # Errors
    /// The platform refused the change.
    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let _ = up;
        Ok(())
    }

    /// Removes what would outlive this process, such as a persistent interface, because the vif was
    /// removed.
    ///
    /// # Errors
    /// The platform refused.
    fn remove(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Returns the index of the network interface behind the port, if there is one. The
    /// index stays when the interface is renamed.
    fn interface(&self) -> Option<u32> {
        None
    }

    /// Opens one more queue of the same port, up to [`PortCaps::max_queues`]. The port chooses the
    /// queue of each flow that it receives.
    ///
    /// # Errors
    /// The platform refused, or the port has as many queues as it can have.
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Err(PortError::NoMoreQueues { port: self.name().to_owned() })
    }
}

/// Names and counters of a port, for operators.
pub trait Probe {
    /// Returns the name that operators see.
    fn name(&self) -> &str;

    /// Returns the counters now, and the findings of a port that checks test frames.
    fn report(&self) -> PortReport;
}
