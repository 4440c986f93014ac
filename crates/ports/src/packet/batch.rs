//! Frames that are received several at a time, and wait to be given one by one.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, Result};

use super::sys::{self, Arrived, Room};
use super::tag::ADDRESSES;
use crate::port::RECV_BUFFER;

/// Most frames of a batch.
const FRAMES: usize = 32;
/// Bytes between the begins of two frames. The lines that short frames use differ in their
/// addresses modulo a page, so they do not compete for the same places of a cache.
const STRIDE: usize = RECV_BUFFER + 64;

/// Frames that were received, and were not given yet.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Room for the frames, one `STRIDE` each; empty until the first batch. The system gives memory
    /// only to the parts that frames reach.
    room: Vec<u8>,
    arrived: [Arrived; FRAMES],
    /// Bytes that were left free for a tag in each frame.
    gap: usize,
    /// Frames that were given, and frames that were received.
    given: usize,
    received: usize,
    /// True if the last batch had room for more frames, so the socket had no other.
    was_last: bool,
}

impl Batch {
    /// Returns true if all frames were given.
    pub fn is_empty(&self) -> bool {
        self.given == self.received
    }

    /// Returns true once after a batch that took all frames of the socket. To ask the kernel for more
    /// would cost a system call, which almost always finds none.
    pub fn take_last(&mut self) -> bool {
        std::mem::take(&mut self.was_last)
    }

    /// Receives the next batch. All frames of the last one must have been given.
    ///
    /// # Errors
    ///
    /// The kernel's answer, also if there is no frame now.
    pub fn fill(&mut self, fd: BorrowedFd<'_>, gap: usize) -> Result<()> {
        if self.room.is_empty() {
            self.room = vec![0; FRAMES * STRIDE];
        }
        (self.given, self.received, self.gap) = (0, 0, gap);
        let mut slots = self.room.chunks_exact_mut(STRIDE).filter_map(|slot| room(slot, gap));
        let mut rooms: [Option<Room<'_>>; FRAMES] = std::array::from_fn(|_| slots.next());
        self.received = sys::receive::<FRAMES>(fd, &mut rooms, &mut self.arrived)?;
        self.was_last = self.received < FRAMES;
        Ok(())
    }

    /// Moves the next frame to the start of `buf`. Returns the frame, and the gap that it has for a
    /// tag, or `None` if all were given. A frame that is longer than `buf` is marked as cut.
    pub fn next(&mut self, buf: &mut [u8]) -> Option<(Arrived, usize)> {
        if self.is_empty() {
            return None;
        }
        let mut arrived = self.arrived[self.given];
        let from = self.given * STRIDE;
        self.given += 1;
        let len = arrived.len + self.gap;
        match (buf.get_mut(..len), self.room.get(from..from + len)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => arrived.is_cut = true,
        }
        Some((arrived, self.gap))
    }
}

/// Receives one frame to the start of `buf`, with a gap for a tag.
///
/// # Errors
///
/// The kernel's answer, also if there is no frame now.
pub(super) fn receive_one(fd: BorrowedFd<'_>, buf: &mut [u8], gap: usize) -> Result<Arrived> {
    let mut arrived = [Arrived::default()];
    match sys::receive::<1>(fd, &mut [room(buf, gap)], &mut arrived)? {
        0 => Err(Errno::AGAIN),
        _ => Ok(arrived[0]),
    }
}

/// Returns the parts of `buf` that a frame is received into.
fn room(buf: &mut [u8], gap: usize) -> Option<Room<'_>> {
    let (addresses, rest) = buf.split_first_chunk_mut::<ADDRESSES>()?;
    Some(Room { addresses, rest: rest.get_mut(gap..)? })
}
