//! Frames on their way to the kernel: copied into a ring of bytes, which the kernel's thread frees in
//! the same order.

use std::sync::Arc;

use rustix::io;

use super::HEADER;
use super::ring::{Broken, Layout, Ring};
use super::sys::Region;
use crate::port::{BURST, RECV_BUFFER};
use crate::split::SplitFrame;
use crate::vnet::VnetHeader;

/// Descriptors: enough for the segments of a turn whose large frames are cut.
pub(super) const ENTRIES: u16 = 1024;
/// Descriptors that have to be free for a turn: 256 pages, cut to segments of 1448 bytes.
const TURN_ENTRIES: u16 = 768;
/// Bytes that have to be free for a turn: 256 pages, in frames of a header and an alignment each, and
/// what is left out at the end of the ring.
const TURN_BYTES: usize = 256 * 4096 + TURN_ENTRIES as usize * (HEADER + ALIGN) + FRAME;
/// Bytes of the longest frame with its header.
const FRAME: usize = (HEADER + RECV_BUFFER).next_multiple_of(ALIGN);
/// Each frame begins at a multiple of this, so that no two share a cache line.
const ALIGN: usize = 64;
/// Bytes for frames. Above [`TURN_BYTES`] it is what the kernel's thread may be behind by.
pub(super) const BYTES: usize = 3 << 20;
const _: () = assert!(BYTES > TURN_BYTES + BURST * 4096);

/// Frames on their way to the kernel.
#[derive(Debug)]
pub(super) struct Transmit {
    ring: Ring,
    memory: Arc<Region>,
    /// First byte for frames in the region.
    bytes: usize,
    /// Start of the next frame, from `bytes` on.
    head: usize,
    /// Start of the oldest frame that the kernel has.
    tail: usize,
    /// End of the frame of each entry.
    ends: Box<[u32]>,
}

impl Transmit {
    /// Returns a ring of frames, whose bytes begin at `bytes`.
    pub fn new(ring: Ring, memory: Arc<Region>, bytes: usize) -> Self {
        let ends = vec![0; ring.layout().entries.into()].into_boxed_slice();
        Self { ring, memory, bytes, head: 0, tail: 0, ends }
    }

    /// Returns the layout of a ring that begins at `at`.
    pub const fn layout(at: usize) -> Layout {
        Layout::new(at, ENTRIES)
    }

    /// Returns the ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Takes back what the kernel has sent.
    fn reclaim(&mut self) -> Result<(), Broken> {
        let used = self.ring.used()?;
        for ahead in 0..used {
            self.ring.written(ahead)?;
        }
        if used > 0 {
            self.ring.take(used);
            let last = self.ring.next_used().wrapping_sub(1) & (ENTRIES - 1);
            self.tail = self.ends[usize::from(last)] as usize;
        }
        if self.ring.outstanding() == 0 {
            // What was written last is written again: it is still in a cache.
            (self.head, self.tail) = (0, 0);
        }
        Ok(())
    }

    /// Returns the bytes that are free, in one stretch or in two.
    fn free(&self) -> usize {
        match self.head.checked_sub(self.tail) {
            Some(taken) => BYTES - taken,
            None => self.tail - self.head,
        }
    }

    fn has_turn(&self) -> bool {
        self.ring.free() >= TURN_ENTRIES && self.free() > TURN_BYTES
    }

    /// Returns true if the frames of a turn might not find room.
    ///
    /// # Errors
    ///
    /// What the kernel wrote makes no sense.
    pub fn is_full(&mut self) -> Result<bool, Broken> {
        if self.has_turn() {
            return Ok(false);
        }
        self.reclaim()?;
        Ok(!self.has_turn())
    }

    /// Asks to be woken when there is room for a turn again, if there is none now.
    pub fn arm(&self) {
        if !self.has_turn() {
            // Where the bytes are not enough then, the next look asks again.
            let missing = TURN_ENTRIES.saturating_sub(self.ring.free());
            self.ring.arm(missing.max(self.ring.outstanding() / 2));
        }
    }

    /// Returns room for a frame and its header, in one piece. Returns `None` if the kernel is too
    /// far behind.
    fn place(&mut self, need: usize) -> Option<usize> {
        if self.ring.free() == 0 {
            return None;
        }
        // A head that met the tail would say that all is free.
        let (at, is_free) = match self.head >= self.tail {
            true if BYTES - self.head >= need => (self.head, true),
            true => (0, self.tail > need),
            false => (self.head, self.tail - self.head > need),
        };
        is_free.then_some(at)
    }

    /// Copies a frame in, by `write`, which gets the place of its first byte. Returns false if there
    /// is no room for it.
    ///
    /// # Errors
    ///
    /// What the kernel wrote makes no sense.
    fn push(
        &mut self,
        header: [u8; VnetHeader::LEN],
        len: usize,
        write: impl FnOnce(&Region, usize),
    ) -> Result<bool, Broken> {
        let need = (HEADER + len).next_multiple_of(ALIGN);
        let at = match self.place(need) {
            Some(at) => at,
            None => {
                self.reclaim()?;
                let Some(at) = self.place(need) else { return Ok(false) };
                at
            }
        };
        let place = self.bytes + at;
        // The number of buffers behind the header is the device's to write, on the way back.
        let mut whole = [0; HEADER];
        whole[..VnetHeader::LEN].copy_from_slice(&header);
        self.memory.write(place, &whole);
        write(&self.memory, place + HEADER);
        let entry = self.ring.next();
        self.ring.describe(entry, place, HEADER + len, false);
        self.head = at + need;
        // Below the bytes of the ring.
        self.ends[usize::from(entry)] = self.head as u32;
        self.ring.make(1);
        Ok(true)
    }

    /// Takes a frame of private memory. Returns false if there is no room for it.
    ///
    /// # Errors
    ///
    /// What the kernel wrote makes no sense.
    pub fn send(&mut self, header: [u8; VnetHeader::LEN], frame: &[u8]) -> Result<bool, Broken> {
        self.push(header, frame.len(), |memory, at| memory.write(at, frame))
    }

    /// Takes a frame that lies in pieces.
    ///
    /// # Errors
    ///
    /// What the kernel wrote makes no sense.
    pub fn send_pieces(
        &mut self,
        header: [u8; VnetHeader::LEN],
        pieces: &[&[u8]],
    ) -> Result<bool, Broken> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.push(header, len, |memory, mut at| {
            for piece in pieces {
                memory.write(at, piece);
                at += piece.len();
            }
        })
    }

    /// Takes a frame whose rest lies in its sender's pages: each byte of them is read once.
    ///
    /// # Errors
    ///
    /// What the kernel wrote makes no sense.
    pub fn send_split(
        &mut self,
        header: [u8; VnetHeader::LEN],
        frame: &SplitFrame<'_>,
    ) -> Result<bool, Broken> {
        self.push(header, frame.len(), |memory, at| {
            memory.write(at, frame.head());
            let mut at = at + frame.head().len();
            for slice in frame.rest() {
                memory.write_slice(at, slice);
                at += slice.len();
            }
        })
    }

    /// Shows the kernel all frames that were taken.
    ///
    /// # Errors
    ///
    /// It cannot be woken.
    pub fn show(&mut self) -> io::Result<()> {
        self.ring.show()
    }
}
