//! Frames on their way from the kernel, which fills as many buffers as a frame takes.

use std::sync::Arc;

use rustix::io;

use super::HEADER;
use super::ring::{Broken, Layout, Ring};
use super::sys::Region;
use crate::vnet::VnetHeader;

/// Buffers: 15 of the longest frames, or as many short ones.
pub(super) const ENTRIES: u16 = 256;
/// Bytes of a buffer.
pub(super) const BUFFER: usize = 4096;
/// Bytes of all buffers.
pub(super) const BYTES: usize = ENTRIES as usize * BUFFER;
/// Buffers that are kept back until they are given to the kernel together.
const BATCH: u16 = ENTRIES / 4;

/// A frame that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    pub header: [u8; VnetHeader::LEN],
    /// Length of the frame, which is cut if it is longer than the caller's memory.
    pub len: usize,
}

/// Frames on their way from the kernel.
#[derive(Debug)]
pub(super) struct Receive {
    ring: Ring,
    memory: Arc<Region>,
    /// First byte of the buffers in the region.
    bytes: usize,
    /// Buffers that are known to be used and were not taken back.
    known: u16,
    /// Buffers that were made available and not shown.
    back: u16,
}

impl Receive {
    /// Returns a ring whose buffers are all made available.
    pub fn new(mut ring: Ring, memory: Arc<Region>, bytes: usize) -> Self {
        for entry in 0..ring.layout().entries {
            ring.describe(entry, bytes + usize::from(entry) * BUFFER, BUFFER, true);
        }
        ring.make(ENTRIES);
        Self { ring, memory, bytes, known: 0, back: ENTRIES }
    }

    /// Returns the layout of a ring that begins at `at`.
    pub const fn layout(at: usize) -> Layout {
        Layout::new(at, ENTRIES)
    }

    /// Returns the ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Gives the kernel the buffers that were kept back.
    ///
    /// # Errors
    ///
    /// It cannot be woken.
    pub fn show(&mut self) -> io::Result<()> {
        self.back = 0;
        self.ring.show()
    }

    /// Returns true if the kernel has filled a buffer.
    ///
    /// # Errors
    ///
    /// What the kernel wrote makes no sense.
    pub fn has_frame(&self) -> Result<bool, Broken> {
        Ok(self.known > 0 || self.ring.used()? > 0)
    }

    /// Asks to be woken at the next frame.
    pub fn arm(&self) {
        self.ring.arm(1);
    }

    /// Returns true if at least `wanted` buffers are used and were not taken back.
    fn buffers(&mut self, wanted: u16) -> Result<bool, Broken> {
        if self.known < wanted {
            self.known = self.ring.used()?;
        }
        Ok(self.known >= wanted)
    }

    fn filled(&self, ahead: u16) -> Result<usize, Broken> {
        let found = self.ring.written(ahead)?;
        match usize::try_from(found) {
            Ok(len) if len <= BUFFER => Ok(len),
            _ => Err(Broken::Length { found, most: BUFFER }),
        }
    }

    /// Copies a frame to the start of `buf`. Returns `None` if there is no frame.
    ///
    /// # Errors
    ///
    /// The kernel wrote something impossible.
    pub fn recv(&mut self, buf: &mut [u8]) -> Result<Option<Received>, Broken> {
        if !self.buffers(1)? {
            return Ok(None);
        }
        let entry = self.ring.next_used();
        let (first, mut header) = (self.filled(0)?, [0; HEADER]);
        if first < HEADER {
            return Err(Broken::Length { found: first as u32, most: BUFFER });
        }
        let mut at = self.bytes + usize::from(entry) * BUFFER;
        self.memory.read(at, &mut header);
        let [own @ .., low, high] = header;
        let count = u16::from_le_bytes([low, high]);
        if count == 0 || count > ENTRIES {
            return Err(Broken::Surplus { found: count, outstanding: ENTRIES });
        }
        if !self.buffers(count)? {
            return Ok(None);
        }
        let (mut len, mut skip) = (0, HEADER);
        for ahead in 0..count {
            let filled = self.filled(ahead)?;
            let bytes = filled.saturating_sub(skip);
            if let Some(rest) = buf.get_mut(len..) {
                let fits = bytes.min(rest.len());
                self.memory.read(at + skip, &mut rest[..fits]);
            }
            len += bytes;
            (skip, at) = (0, at + BUFFER);
            if at == self.bytes + BYTES {
                at = self.bytes;
            }
        }
        self.ring.take(count);
        // In the same order, so each entry keeps its buffer.
        self.ring.make(count);
        (self.known, self.back) = (self.known - count, self.back + count);
        Ok(Some(Received { header: own, len }))
    }

    /// Returns true if so many buffers were kept that they must go back to the kernel.
    pub fn is_behind(&self) -> bool {
        self.back >= BATCH
    }
}
