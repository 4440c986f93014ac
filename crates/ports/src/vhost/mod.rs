//! A TAP with `/dev/vhost-net`: a thread of the kernel passes frames to the TAP and takes them from
//! it. The port's owner makes no system calls for this.
//!
//! The port and the thread share a region of private memory. It has two rings (split virtqueues)
//! and the bytes of frames on their way. So each frame is copied once by the port, and once by the
//! thread. The thread never sees the memory of guests or the worker's arena, since it reads a frame
//! some time after the call.
//!
//! A burst costs one system call to wake the thread, and none while the thread works. The thread
//! wakes the port's owner only if the owner is about to wait: the owner then calls
//! [`Port::readiness`].
//!
//! Differences from a TAP that is written and read by its owner:
//!
//! - The thread does not report the outcome of a frame. Frames that the kernel drops count as sent,
//!   for example if the interface is down.
//! - The thread may be slow. [`Port::is_full`] reports this before a turn, so that frames wait in
//!   their sender's ring.

mod device;
mod error;
mod receive;
mod ring;
mod sys;
mod transmit;
mod wake;

use std::{cell::Cell, os::fd::BorrowedFd};

use grantway_netif::Offload;

pub use error::VhostError;

use crate::offloads::TapOffloads;
use crate::port::{
    Counters, DropReason, ETHERNET_HEADER, FrameMeta, Port, PortCaps, PortControl, PortError,
    PortReport, Probe, Readiness, SendError, send_gathered, send_joined,
};
use crate::split::SplitFrame;
use crate::tap::{Tap, judge};
use crate::vnet::{self, VnetHeader};
use device::{Device, Rings};
use ring::Broken;
use wake::{Wake, is_gone};

/// Bytes of the header in front of each frame: the TAP's, and the number of buffers
/// (`struct virtio_net_hdr_v1`).
const HEADER: usize = VnetHeader::LEN + 2;

/// Most frames that one [`Port::recv`] drops before it says that there is none.
const RECV_ATTEMPTS: usize = 64;

/// A TAP whose frames a thread of the kernel moves (`/dev/vhost-net`).
#[derive(Debug)]
pub struct VhostTap {
    /// Dropped first: from then on the kernel's thread does nothing.
    _device: Device,
    rings: Rings,
    wake: Wake,
    tap: Tap,
    /// True if the TAP was found to be gone.
    gone: Cell<bool>,
    /// Frames that were received when the owner last was about to wait.
    heard: Cell<u64>,
    counters: Counters,
}

impl VhostTap {
    /// Bytes of memory for frames on their way, for each queue.
    pub const MEMORY: usize = device::BYTES;
    /// Descriptors of each queue, without those of its TAP.
    pub const DESCRIPTORS: usize = device::DESCRIPTORS;

    /// Starts a thread of the kernel for this TAP, and returns the port.
    ///
    /// # Errors
    /// [`PortError::Vhost`] or [`PortError::Tap`], which name their remedies.
    pub fn start(mut tap: Tap) -> Result<Self, PortError> {
        tap.set_header(HEADER)?;
        let error = |operation| {
            let name = tap.name().to_owned();
            move |errno| VhostError::system(&name, operation, errno)
        };
        let rings = Rings::new().map_err(error("making its rings"))?;
        let wake = Wake::new().map_err(error("making its events"))?;
        let device = Device::start(tap.fd(), tap.name(), &rings, wake.descriptor())?;
        let (gone, heard, counters) = (Cell::new(false), Cell::new(0), Counters::default());
        Ok(Self { _device: device, rings, wake, tap, gone, heard, counters })
    }

    fn broken(&self, broken: Broken) -> PortError {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, broken.to_string());
        self.io("reading a ring of /dev/vhost-net", source)
    }

    fn io(&self, operation: &'static str, source: std::io::Error) -> PortError {
        PortError::Io { port: self.tap.name().to_owned(), operation, source }
    }

    fn unless_gone(&self) -> Result<(), PortError> {
        match self.gone.get() {
            true => Err(PortError::Gone { port: self.tap.name().to_owned() }),
            false => Ok(()),
        }
    }

    /// Counts a frame of `len` bytes, merged from `frames`, which was taken or not.
    fn taken(
        &mut self,
        taken: Result<bool, Broken>,
        len: usize,
        frames: u64,
    ) -> Result<(), SendError> {
        match taken {
            Ok(true) => {
                self.counters.count_sent(len);
                self.counters.sent += frames.saturating_sub(1);
                Ok(())
            }
            Ok(false) => {
                self.counters.busy += 1;
                Err(SendError::Busy)
            }
            Err(broken) => Err(SendError::Failed(self.broken(broken))),
        }
    }

    /// Judges a frame of `len` bytes at the start of `buf`.
    fn accept(
        &mut self,
        header: [u8; VnetHeader::LEN],
        buf: &mut [u8],
        len: usize,
    ) -> Result<FrameMeta, DropReason> {
        let frame = buf.get_mut(..len).ok_or(DropReason::TooLong)?;
        if len < ETHERNET_HEADER {
            return Err(DropReason::TooShort);
        }
        let arrival = vnet::incoming(VnetHeader::decode(header), frame, self.tap.offloads())?;
        self.counters.checksummed += u64::from(arrival.finished);
        self.counters.count_received(len);
        Ok(FrameMeta { len, offload: arrival.offload })
    }

    fn show_receive(&mut self) -> Result<(), PortError> {
        self.rings.receive.show().map_err(|errno| self.io("waking /dev/vhost-net", errno.into()))
    }

    /// Arms both rings, after what woke the owner before is out of the way. Returns true if there
    /// is a frame already.
    fn arm(&self) -> Result<bool, PortError> {
        let failed = |errno: rustix::io::Errno| self.io("looking at its events", errno.into());
        self.wake.settle().map_err(failed)?;
        // The kernel's thread does not say that the TAP is gone. Nothing comes from one that is.
        if self.heard.replace(self.counters.received) == self.counters.received {
            self.gone.set(is_gone(self.tap.fd()).map_err(failed)?);
        }
        self.rings.transmit.arm();
        self.rings.receive.arm();
        self.rings.receive.has_frame().map_err(|broken| self.broken(broken))
    }
}

impl Port for VhostTap {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let (header, len) =
            judge(frame, frame.len(), offload).map_err(|reason| self.counters.refuse(reason))?;
        let taken = self.rings.transmit.send(header, &frame[..len]);
        self.taken(taken, len, 1)
    }

    fn send_split(
        &mut self,
        frame: &SplitFrame<'_>,
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        match judge(frame.head(), frame.len(), offload) {
            Ok((header, len)) if len == frame.len() => {
                let taken = self.rings.transmit.send_split(header, frame);
                self.taken(taken, len, 1)
            }
            // Headers may continue behind the private bytes, and bytes behind the packet are left
            // out.
            Ok(_) | Err(DropReason::Truncated) => send_gathered(self, frame, offload, room),
            Err(reason) => Err(self.counters.refuse(reason)),
        }
    }

    fn send_pieces(
        &mut self,
        pieces: &[&[u8]],
        offload: Offload,
        room: &mut [u8],
    ) -> Result<(), SendError> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let head = pieces.first().copied().unwrap_or(&[]);
        let (header, end) =
            judge(head, len, offload).map_err(|reason| self.counters.refuse(reason))?;
        if end < len {
            return send_joined(self, pieces, offload, room);
        }
        let taken = self.rings.transmit.send_pieces(header, pieces);
        self.taken(taken, len, pieces.len() as u64)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.rings.transmit.show().map_err(|errno| self.io("waking /dev/vhost-net", errno.into()))
    }

    fn is_full(&mut self) -> Result<bool, PortError> {
        let full = self.rings.transmit.is_full();
        full.map_err(|broken| self.broken(broken))
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        self.unless_gone()?;
        for _ in 0..RECV_ATTEMPTS {
            let received = self.rings.receive.recv(buf);
            let Some(received) = received.map_err(|broken| self.broken(broken))? else { break };
            if self.rings.receive.is_behind() {
                self.show_receive()?;
            }
            match self.accept(received.header, buf, received.len) {
                Ok(meta) => return Ok(Some(meta)),
                Err(reason) => self.counters.drop_one(reason),
            }
        }
        self.show_receive()?;
        Ok(None)
    }

    fn readiness(&self) -> Readiness<'_> {
        match self.arm() {
            Ok(false) if !self.gone.get() => Readiness::Readable(self.wake.descriptor()),
            // The next call says what is wrong.
            _ => Readiness::Now,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.descriptor())
    }

    fn caps(&self) -> PortCaps {
        PortCaps { fills: true, ..self.tap.caps() }
    }
}

impl PortControl for VhostTap {
    fn set_offloads(&mut self, offloads: TapOffloads) -> Result<(), PortError> {
        self.tap.set_offloads(offloads)
    }

    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        self.tap.set_link(up)
    }

    fn remove(&mut self) -> Result<(), PortError> {
        self.tap.remove()
    }

    fn interface(&self) -> Option<u32> {
        self.tap.interface()
    }

    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Self::start(self.tap.queue()?)?))
    }
}

impl Probe for VhostTap {
    fn name(&self) -> &str {
        self.tap.name()
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.tap.name(), &self.counters)
    }
}

#[cfg(test)]
mod tests;
