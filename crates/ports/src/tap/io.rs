//! The moving of frames between memory and the kernel, and the meaning of its answers.
//!
//! A header and a short frame cross in one buffer, by `write` and `read`. A longer frame crosses
//! beside its header, by `writev` and `readv`, so that it is not copied once more.

use std::{
    io::{IoSlice, IoSliceMut},
    ops::ControlFlow,
    os::fd::{AsFd, BorrowedFd},
};

use grantway_netif::Offload;
use rustix::io::{self, Errno};

use super::Tap;
use crate::port::{DropReason, ETHERNET_HEADER, FrameMeta, PortError, RECV_BUFFER, SendError};
use crate::split::{SplitMeta, SplitRoom};
use crate::vnet::{self, Judged, VnetHeader};

/// Longest frame that crosses in one buffer with its header. The kernel then walks no list of
/// buffers, which costs more than a copy of so short a frame.
pub(super) const SHORT: usize = 2048;
/// Short frames in a row behind which the next frame is read with its header, too. A longer frame
/// that is read so has to be moved.
pub(super) const SHORT_ROW: u8 = 8;

/// Memory of a TAP for frames that cross in one buffer with their headers.
#[derive(Debug)]
pub(super) struct Joined {
    /// Room for a header and a short frame.
    room: Box<[u8]>,
    /// Short frames that were read since the last longer one, at most [`SHORT_ROW`].
    row: u8,
}

impl Joined {
    pub fn new() -> Self {
        Self { room: vec![0; VnetHeader::LEN + SHORT].into_boxed_slice(), row: 0 }
    }

    /// Puts a header and a short frame together. Returns both, as one buffer.
    fn join(&mut self, header: &[u8; VnetHeader::LEN], frame: &[u8]) -> Option<&[u8]> {
        let joined = self.room.get_mut(..header.len() + frame.len())?;
        let (first, rest) = joined.split_at_mut(header.len());
        first.copy_from_slice(header);
        rest.copy_from_slice(frame);
        Some(joined)
    }

    /// Takes in the number of bytes of a header and a frame that were read.
    fn note(&mut self, read: usize) {
        let is_short = read <= VnetHeader::LEN + SHORT;
        self.row = if is_short { (self.row + 1).min(SHORT_ROW) } else { 0 };
    }

    /// Returns true if the next frame is expected to be short.
    pub fn expects_short(&self) -> bool {
        self.row == SHORT_ROW
    }
}

/// Fate of a frame that was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsent {
    /// The kernel accepts no frame now.
    Busy,
    /// The frame is lost; the next one may be sent.
    Dropped(DropReason),
    /// The port is of no more use.
    Failed,
}

/// Judges the kernel's answer to a write. An unknown error is about the frame, which a guest made,
/// as long as the interface and the descriptor are there.
pub(super) fn unsent(errno: Errno) -> Unsent {
    match errno {
        Errno::AGAIN => Unsent::Busy,
        Errno::IO => Unsent::Dropped(DropReason::InterfaceDown),
        Errno::NOBUFS | Errno::NOMEM => Unsent::Dropped(DropReason::NoMemory),
        Errno::BADFD | Errno::NODEV | Errno::BADF => Unsent::Failed,
        _ => Unsent::Dropped(DropReason::Rejected),
    }
}

/// Calls the kernel again if a signal came first.
fn retried(call: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

/// Judges a frame of `len` bytes on its way to the kernel, by its first bytes. Returns its header,
/// and the number of bytes that are to be written.
pub(crate) fn judge(
    head: &[u8],
    len: usize,
    offload: Offload,
) -> Result<([u8; VnetHeader::LEN], usize), DropReason> {
    if len < ETHERNET_HEADER {
        return Err(DropReason::TooShort);
    }
    if len > RECV_BUFFER {
        return Err(DropReason::TooLong);
    }
    vnet::outgoing(head, len, offload).map(|(header, len)| (header.encode(), len))
}

impl Tap {
    /// Writes a frame of private memory behind its header.
    pub(super) fn write_frame(
        &mut self,
        header: [u8; VnetHeader::LEN],
        frame: &[u8],
    ) -> Result<(), SendError> {
        let written = match self.joined.join(&header, frame) {
            Some(joined) => retried(|| io::write(&self.fd, joined)),
            None => {
                let parts = [IoSlice::new(&header), IoSlice::new(frame)];
                retried(|| io::writev(&self.fd, &parts))
            }
        };
        self.judge_written(written, frame.len())
    }

    /// Writes a frame of `len` bytes.
    pub(super) fn write(
        &mut self,
        len: usize,
        write: impl Fn(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Result<(), SendError> {
        let written = retried(|| write(self.fd.as_fd()));
        self.judge_written(written, len)
    }

    /// Judges the kernel's answer to a write of a frame of `len` bytes. A TAP takes a frame whole or
    /// not at all.
    fn judge_written(&mut self, written: io::Result<usize>, len: usize) -> Result<(), SendError> {
        let Err(errno) = written else {
            self.counters.count_sent(len);
            return Ok(());
        };
        Err(match unsent(errno) {
            Unsent::Busy => {
                self.counters.busy += 1;
                SendError::Busy
            }
            Unsent::Dropped(reason) => self.counters.refuse(reason),
            Unsent::Failed => SendError::Failed(self.fatal("writing a frame", errno)),
        })
    }

    /// Reads a header, and a frame to the start of `buf`. Returns the number of bytes of both, which
    /// is more than `buf` has if the frame was cut.
    pub(super) fn read(
        &mut self,
        header: &mut [u8; VnetHeader::LEN],
        buf: &mut [u8],
    ) -> io::Result<usize> {
        // A buffer of the usual size has room for the longest frame and its header.
        let read = match self.joined.expects_short() && buf.len() >= RECV_BUFFER {
            true => self.read_joined(header, buf),
            false => self.read_parts(header, buf),
        }?;
        self.joined.note(read);
        Ok(read)
    }

    fn read_parts(&self, header: &mut [u8; VnetHeader::LEN], buf: &mut [u8]) -> io::Result<usize> {
        // A frame that was cut is noticed by one byte too many, which arrives here.
        let mut spill = [0; 1];
        let mut parts =
            [IoSliceMut::new(header), IoSliceMut::new(buf), IoSliceMut::new(&mut spill)];
        io::readv(&self.fd, &mut parts)
    }

    /// Reads both to `buf`, as one buffer, and moves the frame to the start.
    fn read_joined(&self, header: &mut [u8; VnetHeader::LEN], buf: &mut [u8]) -> io::Result<usize> {
        let read = io::read(&self.fd, &mut *buf)?;
        // A frame that fills the buffer may have been cut.
        if read >= buf.len() {
            return Ok(VnetHeader::LEN + buf.len() + 1);
        }
        let first = read.min(VnetHeader::LEN);
        header[..first].copy_from_slice(&buf[..first]);
        buf.copy_within(first..read, 0);
        Ok(read)
    }

    /// Judges the kernel's answer to a read. Breaks if there is no frame now.
    ///
    /// # Errors
    ///
    /// The port is of no more use.
    pub(super) fn unread(&self, errno: Errno) -> Result<ControlFlow<()>, PortError> {
        match errno {
            Errno::AGAIN => Ok(ControlFlow::Break(())),
            Errno::INTR => Ok(ControlFlow::Continue(())),
            Errno::IO => Err(PortError::Gone { port: self.name.clone() }),
            _ => Err(self.fatal("reading a frame", errno)),
        }
    }

    /// Judges the frame of one read whose rest is in pages. A frame that has to be looked at behind
    /// its head is copied out of them.
    pub(super) fn accept_split(
        &mut self,
        header: [u8; VnetHeader::LEN],
        buf: &mut [u8],
        room: &SplitRoom<'_>,
        read: usize,
    ) -> Result<SplitMeta, DropReason> {
        let len = read.saturating_sub(VnetHeader::LEN);
        let head = room.head().min(buf.len());
        // A frame that fills all of the room may have been cut.
        if len >= room.len() {
            return Err(DropReason::TooLong);
        }
        if len > head {
            let judged = vnet::judge(VnetHeader::decode(header), &buf[..head], len, self.offloads);
            if let Ok(Judged::Ready(offload)) = judged {
                self.counters.count_received(len);
                return Ok(SplitMeta { meta: FrameMeta { len, offload }, private: head });
            }
            if !room.gather(buf.get_mut(..len).ok_or(DropReason::TooLong)?) {
                return Err(DropReason::TooLong);
            }
        }
        let meta = self.accept(header, buf, read)?;
        Ok(SplitMeta { meta, private: meta.len })
    }

    /// Judges the frame of one read.
    pub(super) fn accept(
        &mut self,
        header: [u8; VnetHeader::LEN],
        buf: &mut [u8],
        read: usize,
    ) -> Result<FrameMeta, DropReason> {
        let len = read.checked_sub(VnetHeader::LEN).ok_or(DropReason::TooShort)?;
        let frame = buf.get_mut(..len).ok_or(DropReason::TooLong)?;
        if len < ETHERNET_HEADER {
            return Err(DropReason::TooShort);
        }
        let arrival = vnet::incoming(VnetHeader::decode(header), frame, self.offloads)?;
        self.counters.checksummed += u64::from(arrival.finished);
        self.counters.count_received(len);
        Ok(FrameMeta { len, offload: arrival.offload })
    }
}
