//! The driver's side of a split virtqueue whose device uses buffers in the order in which they were
//! made available, as the kernel's vhost-net does.
//!
//! Each entry of the ring has its own descriptor, so the table of available entries is written once.
//! Both sides say by an index when they want to be woken (`VIRTIO_RING_F_EVENT_IDX`).

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use rustix::io::{self, Errno};

use super::sys::{Addresses, Region};

/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
/// The device writes to the buffer (`VRING_DESC_F_WRITE`).
const WRITE: u16 = 2;
/// Bytes of both tables of indices in front of their entries: flags and index.
const HEAD: usize = 4;

/// The defect of what the device wrote to a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// The device used more buffers than it had.
    #[error("{found} buffers are used, and {outstanding} were available")]
    Surplus { found: u16, outstanding: u16 },
    /// The device used another buffer than the next one.
    #[error("buffer {found} is used, expected {expected}")]
    Order { found: u32, expected: u16 },
    /// The device filled more of a buffer than there is.
    #[error("{found} bytes are in a buffer of {most}")]
    Length { found: u32, most: usize },
}

/// Places of a ring's tables in its region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of entries: a power of 2.
    pub entries: u16,
    pub descriptors: usize,
    pub available: usize,
    pub used: usize,
    /// First byte behind the tables.
    pub end: usize,
}

impl Layout {
    /// Returns the layout of a ring that begins at `at`.
    pub const fn new(at: usize, entries: u16) -> Self {
        let many = entries as usize;
        let descriptors = at.next_multiple_of(64);
        // Written by the driver; the last word is the index at which it wants to be woken.
        let available = descriptors + many * DESCRIPTOR;
        // Written by the device, likewise. Neither side shares a line with the other.
        let used = (available + HEAD + 2 * many + 2).next_multiple_of(64);
        let end = (used + HEAD + 8 * many + 2).next_multiple_of(64);
        Self { entries, descriptors, available, used, end }
    }

    /// Returns the place of the index up to which buffers are available.
    pub const fn available_index(&self) -> usize {
        self.available + 2
    }

    /// Returns the place of the index up to which buffers are used.
    pub const fn used_index(&self) -> usize {
        self.used + 2
    }

    /// Returns the place of the index at which the driver wants to be woken.
    pub const fn used_event(&self) -> usize {
        self.available + HEAD + 2 * self.entries as usize
    }

    /// Returns the place of the index at which the device wants to be woken.
    pub const fn available_event(&self) -> usize {
        self.used + HEAD + 8 * self.entries as usize
    }

    /// Returns the place of a descriptor.
    pub const fn descriptor(&self, entry: u16) -> usize {
        self.descriptors + entry as usize * DESCRIPTOR
    }

    /// Returns the place of what the device says of a buffer that it used.
    pub const fn used_entry(&self, entry: u16) -> usize {
        self.used + HEAD + entry as usize * 8
    }

    /// Returns the addresses of the tables, as the kernel has them.
    pub fn addresses(&self, index: u32, memory: &Region) -> Addresses {
        Addresses {
            index,
            descriptors: memory.address(self.descriptors),
            available: memory.address(self.available),
            used: memory.address(self.used),
            ..Addresses::default()
        }
    }
}

/// Returns true if a waiter for `event` must be woken by the step from `old` to `new`
/// (`vring_need_event` of the virtio specification).
pub(super) fn wakes(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// The driver's side of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Arc<Region>,
    layout: Layout,
    /// Wakes the device.
    kick: OwnedFd,
    /// Index up to which buffers are made available, also those that are not shown yet.
    made: u16,
    /// Index up to which the device was shown buffers.
    shown: u16,
    /// Index up to which used buffers were taken back.
    taken: u16,
}

impl Ring {
    /// Returns a ring that is empty.
    pub fn new(memory: Arc<Region>, layout: Layout, kick: OwnedFd) -> Self {
        for entry in 0..layout.entries {
            let at = layout.available + HEAD + 2 * usize::from(entry);
            memory.store16(at, entry, Ordering::Relaxed);
        }
        Self { memory, layout, kick, made: 0, shown: 0, taken: 0 }
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the descriptor by which the device is woken.
    pub fn kick(&self) -> &OwnedFd {
        &self.kick
    }

    fn entry(&self, index: u16) -> u16 {
        index & (self.layout.entries - 1)
    }

    /// Returns the number of buffers that the device has, or has used and that were not taken back.
    pub fn outstanding(&self) -> u16 {
        self.made.wrapping_sub(self.taken)
    }

    /// Returns the number of buffers for which there are descriptors.
    pub fn free(&self) -> u16 {
        self.layout.entries - self.outstanding()
    }

    /// Returns the entry of the next buffer that is made available.
    pub fn next(&self) -> u16 {
        self.entry(self.made)
    }

    /// Returns the entry of the next buffer that the device uses.
    pub fn next_used(&self) -> u16 {
        self.entry(self.taken)
    }

    /// Names the buffer of an entry that the device does not have: `len` bytes at `at` of the
    /// region.
    pub fn describe(&self, entry: u16, at: usize, len: usize, device_writes: bool) {
        let place = self.layout.descriptor(entry);
        self.memory.store64(place, self.memory.address(at));
        // No buffer is longer than the region.
        self.memory.store32(place + 8, len as u32);
        let flags = if device_writes { WRITE } else { 0 };
        self.memory.store16(place + 12, flags, Ordering::Relaxed);
    }

    /// Makes the next `many` buffers available, of the [`Ring::free`] ones. The device sees them
    /// with [`Ring::show`].
    pub fn make(&mut self, many: u16) {
        debug_assert!(many <= self.free());
        self.made = self.made.wrapping_add(many);
    }

    /// Shows the device all buffers that were made available, and wakes it if it asks for that.
    ///
    /// # Errors
    ///
    /// The device cannot be woken.
    pub fn show(&mut self) -> io::Result<()> {
        if self.shown == self.made {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.shown, self.made);
        self.memory.store16(self.layout.available_index(), self.made, Ordering::Release);
        // The device asks to be woken, and then looks at the index again.
        fence(Ordering::SeqCst);
        let event = self.memory.load16(self.layout.available_event(), Ordering::Relaxed);
        if wakes(event, old, self.made) { wake(&self.kick) } else { Ok(()) }
    }

    /// Returns the number of buffers that the device has used, and that were not taken back.
    ///
    /// # Errors
    ///
    /// The device did not have as many.
    pub fn used(&self) -> Result<u16, Broken> {
        let index = self.memory.load16(self.layout.used_index(), Ordering::Acquire);
        let (found, outstanding) =
            (index.wrapping_sub(self.taken), self.shown.wrapping_sub(self.taken));
        match found <= outstanding {
            true => Ok(found),
            false => Err(Broken::Surplus { found, outstanding }),
        }
    }

    /// Returns the number of bytes that the device wrote to the buffer which is `ahead` behind the
    /// next one, of the [`Ring::used`] ones.
    ///
    /// # Errors
    ///
    /// The device used another buffer.
    pub fn written(&self, ahead: u16) -> Result<u32, Broken> {
        let expected = self.entry(self.taken.wrapping_add(ahead));
        let place = self.layout.used_entry(expected);
        let found = self.memory.load32(place);
        match found == u32::from(expected) {
            true => Ok(self.memory.load32(place + 4)),
            false => Err(Broken::Order { found, expected }),
        }
    }

    /// Takes `many` of the [`Ring::used`] buffers back.
    pub fn take(&mut self, many: u16) {
        self.taken = self.taken.wrapping_add(many);
    }

    /// Asks to be woken when the device has used `many` further buffers, 1 or more. The caller then
    /// looks again: they may be used already.
    pub fn arm(&self, many: u16) {
        let event = self.taken.wrapping_add(many.saturating_sub(1));
        self.memory.store16(self.layout.used_event(), event, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// Adds one to an eventfd. One that is full is readable already.
fn wake(event: &OwnedFd) -> io::Result<()> {
    match io::write(event, &1u64.to_ne_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}
