//! A packet socket: frames to and from the wire behind an existing interface, such as a network
//! card, a veth or a VLAN.
//!
//! Each frame crosses with a `virtio_net_hdr`. So unfinished checksums and TCP segmentation pass in
//! both directions, as with a TAP. The interface is promiscuous while the port is open. The host's
//! own network stack on that interface and the port do not receive frames from each other.
//!
//! If the interface is down or deleted, the port stays open, and drops the frames that are sent.
//! [`PacketLink`] attaches the port again to an interface of the same name.
//!
//! Frames are sent and received in bursts. Large frames are received directly into the caller's
//! buffer, and small ones several at a time. The queueing discipline of the interface is not
//! bypassed. With a bypass, an interface that cannot segment would drop each large frame, and a
//! full queue of the interface each frame.

mod batch;
mod error;
mod link;
mod sys;
mod tag;

use std::{
    ops::ControlFlow,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use arrayvec::ArrayVec;
use grantway_netif::Offload;
use rustix::io::Errno;

pub use error::PacketError;
pub use link::{LinkState, PacketLink};

use crate::finish::begin_checksum;
use crate::offloads::TapOffloads;
use crate::port::{
    BURST, Counters, DropReason, ETHERNET_HEADER, FrameMeta, FramePlace, Port, PortCaps,
    PortControl, PortError, PortReport, Probe, RECV_BUFFER, Readiness, SendError, SentBurst,
};
use crate::vnet::{self, VnetHeader};
use batch::Batch;
use link::Socket;
use sys::{Arrived, Outgoing};
use tag::{TAG, put_back};

/// Most frames that one [`Port::recv`] drops before it says that there is none.
const RECV_ATTEMPTS: usize = 64;
/// Frames up to this length in bytes are small.
const SMALL: usize = 2048;
/// Small frames in sequence after which frames are received several at a time.
const SMALL_RUN: u8 = 8;

/// A port that is a packet socket.
#[derive(Debug)]
pub struct Packet {
    socket: Arc<Socket>,
    name: String,
    batch: Batch,
    /// Small frames that were received since the last large one; no more are counted than matter.
    small: u8,
    /// Bytes that are left free for a tag: those of a tag if the last frame had one.
    gap: usize,
    offloads: TapOffloads,
    counters: Counters,
}

impl Packet {
    /// Opens a port on the interface of this name. Returns the port, and its control end.
    ///
    /// # Errors
    /// [`PacketError`], which names its remedy.
    pub fn open(name: &str) -> Result<(Self, PacketLink), PacketError> {
        let socket = Arc::new(Socket::open(name)?);
        let link = PacketLink::watch(Arc::clone(&socket))?;
        let (offloads, counters) = (TapOffloads::NONE, Counters::default());
        let (name, batch) = (format!("packet:{name}"), Batch::default());
        Ok((Self { socket, name, batch, small: 0, gap: 0, offloads, counters }, link))
    }

    /// Returns the error of an operation that ends the port.
    fn fatal(&self, operation: &'static str, errno: Errno) -> PortError {
        PortError::Io { port: self.name.clone(), operation, source: errno.into() }
    }

    /// Judges the kernel's answer to a reception. Breaks if there is no frame now.
    ///
    /// # Errors
    ///
    /// The port cannot be used any longer.
    fn unread(&mut self, errno: Errno) -> Result<ControlFlow<()>, PortError> {
        match unreceived(errno) {
            Unreceived::None => Ok(ControlFlow::Break(())),
            Unreceived::Again => Ok(ControlFlow::Continue(())),
            Unreceived::Lost => {
                self.counters.drop_one(DropReason::GsoUnknown);
                Ok(ControlFlow::Continue(()))
            }
            Unreceived::Failed => Err(self.fatal("receiving frames", errno)),
        }
    }

    /// Receives one frame from the socket into `buf`: straight, or as the first of a batch. Breaks
    /// if there is none now.
    fn receive(&mut self, buf: &mut [u8]) -> rustix::io::Result<Result<FrameMeta, DropReason>> {
        let gap = self.gap;
        let arrived = if let Some(arrived) = self.batch.next(buf) {
            arrived
        } else if self.batch.take_last() {
            // A frame that came since then makes the descriptor readable.
            return Err(Errno::AGAIN);
        } else if self.small >= SMALL_RUN {
            self.batch.fill(self.socket.fd.as_fd(), gap)?;
            match self.batch.next(buf) {
                Some(arrived) => arrived,
                None => return Err(Errno::AGAIN),
            }
        } else {
            (batch::receive_one(self.socket.fd.as_fd(), buf, gap)?, gap)
        };
        Ok(self.accept(buf, arrived))
    }

    /// Judges a frame that lies in `buf`, with a gap for a tag.
    fn accept(
        &mut self,
        buf: &mut [u8],
        (arrived, gap): (Arrived, usize),
    ) -> Result<FrameMeta, DropReason> {
        let Arrived { header, len, is_cut, tag } = arrived;
        self.small = if len > SMALL { 0 } else { self.small.saturating_add(1).min(SMALL_RUN) };
        self.gap = if tag.is_some() { TAG } else { 0 };
        if is_cut {
            return Err(DropReason::TooLong);
        }
        if len < ETHERNET_HEADER {
            return Err(DropReason::TooShort);
        }
        let len = put_back(buf, len, gap, tag).ok_or(DropReason::TooLong)?;
        let mut header = VnetHeader::decode(header);
        if tag.is_some() {
            header.move_by(TAG as u16)?;
        }
        let frame = &mut buf[..len];
        if header.is_merged_and_complete() {
            // A card merged these segments (LRO). Their checksum is begun anew, for a receiver that
            // cuts the frame again.
            let found = begin_checksum(frame)?;
            header.begin(&found)?;
        }
        let arrival = vnet::incoming(header, frame, self.offloads)?;
        self.counters.checksummed += u64::from(arrival.finished);
        self.counters.count_received(len);
        Ok(FrameMeta { len, offload: arrival.offload })
    }

    /// Sends judged frames. Each is counted, as sent, busy or dropped. Returns the reason of the last
    /// drop, if there was one.
    ///
    /// # Errors
    ///
    /// The port cannot be used any longer.
    fn send_judged(
        &mut self,
        frames: &[Outgoing<'_>],
        sent: &mut SentBurst,
    ) -> Result<Option<DropReason>, PortError> {
        let mut rest = frames;
        let (mut last, mut told) = (None, false);
        while !rest.is_empty() {
            let errno = match sys::send(self.socket.fd.as_fd(), rest) {
                Ok(many) => {
                    let (gone, later) = rest.split_at(many.min(rest.len()));
                    let bytes = gone.iter().map(|outgoing| outgoing.frame.len()).sum();
                    self.counters.count_sent_burst(gone.len(), bytes);
                    sent.taken += gone.len();
                    sent.bytes += bytes;
                    rest = later;
                    continue;
                }
                // It may be of the past: the socket tells each such error once, whoever asks.
                Err(Errno::NETDOWN | Errno::INVAL) if !std::mem::replace(&mut told, true) => {
                    continue;
                }
                Err(errno) => errno,
            };
            let refused = match unsent(errno) {
                Unsent::Again => continue,
                Unsent::Failed => return Err(self.fatal("sending frames", errno)),
                // The next frames fare no better.
                Unsent::Busy => {
                    self.counters.busy += rest.len() as u64;
                    sent.busy += rest.len();
                    return Ok(last);
                }
                Unsent::AllDropped(reason) => {
                    rest.iter().for_each(|_| self.counters.drop_one(reason));
                    sent.dropped += rest.len();
                    return Ok(Some(reason));
                }
                Unsent::Dropped(reason) => reason,
            };
            self.counters.drop_one(refused);
            last = Some(refused);
            sent.dropped += 1;
            rest = &rest[1..];
        }
        Ok(last)
    }
}

impl Port for Packet {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let outgoing = judge(frame, offload).map_err(|reason| self.counters.refuse(reason))?;
        let mut sent = SentBurst::default();
        match self.send_judged(&[outgoing], &mut sent)? {
            Some(reason) => Err(SendError::Dropped(reason)),
            None if sent.busy > 0 => Err(SendError::Busy),
            None => Ok(()),
        }
    }

    fn send_burst(&mut self, arena: &[u8], frames: &[FramePlace]) -> Result<SentBurst, PortError> {
        let mut sent = SentBurst::default();
        for frames in frames.chunks(BURST) {
            let mut judged: ArrayVec<Outgoing<'_>, BURST> = ArrayVec::new();
            for place in frames {
                match judge(place.bytes(arena), place.meta.offload) {
                    Ok(outgoing) => judged.push(outgoing),
                    Err(reason) => {
                        self.counters.drop_one(reason);
                        sent.dropped += 1;
                    }
                }
            }
            self.send_judged(&judged, &mut sent)?;
        }
        Ok(sent)
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        for _ in 0..RECV_ATTEMPTS {
            match self.receive(buf) {
                Ok(Ok(meta)) => return Ok(Some(meta)),
                Ok(Err(reason)) => self.counters.drop_one(reason),
                Err(errno) => match self.unread(errno)? {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(()) => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    fn readiness(&self) -> Readiness<'_> {
        match self.batch.is_empty() {
            true => Readiness::Readable(self.socket.fd.as_fd()),
            false => Readiness::Now,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
    }

    fn caps(&self) -> PortCaps {
        PortCaps { wants_merged: true, ..PortCaps::default() }
    }
}

impl PortControl for Packet {
    fn set_offloads(&mut self, offloads: TapOffloads) -> Result<(), PortError> {
        // The kernel is not asked: frames come as the interface makes them.
        self.offloads = offloads.effective();
        Ok(())
    }
}

impl Probe for Packet {
    fn name(&self) -> &str {
        &self.name
    }

    fn report(&self) -> PortReport {
        PortReport::new(&self.name, &self.counters)
    }
}

/// Judges a frame on its way to the kernel. Bytes behind a packet whose checksum is unfinished are
/// left out.
fn judge(frame: &[u8], offload: Offload) -> Result<Outgoing<'_>, DropReason> {
    if frame.len() < ETHERNET_HEADER {
        return Err(DropReason::TooShort);
    }
    if frame.len() > RECV_BUFFER {
        return Err(DropReason::TooLong);
    }
    let (header, len) = vnet::outgoing(frame, frame.len(), offload)?;
    Ok(Outgoing { header: header.encode(), frame: &frame[..len] })
}

/// Outcome of a frame that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unsent {
    /// A signal came first; the frame is sent again.
    Again,
    /// The socket has no room for further frames now.
    Busy,
    /// The frame is lost; the next one may be sent.
    Dropped(DropReason),
    /// The frame is lost, and so are those behind it.
    AllDropped(DropReason),
    /// The port cannot be used any longer.
    Failed,
}

/// Judges the kernel's answer to a frame. An unknown error is about the frame, which a guest made.
fn unsent(errno: Errno) -> Unsent {
    match errno {
        Errno::INTR => Unsent::Again,
        Errno::AGAIN => Unsent::Busy,
        Errno::NETDOWN => Unsent::AllDropped(DropReason::InterfaceDown),
        Errno::NXIO | Errno::NODEV => Unsent::AllDropped(DropReason::InterfaceGone),
        Errno::NOBUFS => Unsent::Dropped(DropReason::QueueFull),
        Errno::NOMEM => Unsent::Dropped(DropReason::NoMemory),
        Errno::MSGSIZE => Unsent::Dropped(DropReason::LongerThanMtu),
        Errno::BADF | Errno::NOTSOCK | Errno::NOSYS => Unsent::Failed,
        _ => Unsent::Dropped(DropReason::Rejected),
    }
}

/// Meaning of an error of a reception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unreceived {
    /// There is no frame now.
    None,
    /// Nothing is lost; frames may be there.
    Again,
    /// A frame is lost, whose segmentation the header cannot express.
    Lost,
    /// The port cannot be used any longer.
    Failed,
}

/// Judges an error of a reception.
fn unreceived(errno: Errno) -> Unreceived {
    match errno {
        Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS => Unreceived::None,
        // The kernel says once that the interface went down or away. Frames from before are there.
        Errno::INTR | Errno::NETDOWN | Errno::NXIO | Errno::NODEV => Unreceived::Again,
        Errno::INVAL => Unreceived::Lost,
        _ => Unreceived::Failed,
    }
}

#[cfg(test)]
mod tests;
