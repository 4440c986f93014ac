//! The other side of both rings, as the kernel's thread is: it takes buffers in their order, works
//! while it has any, and asks to be woken before it stops.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use rustix::io::{self, Errno};

use crate::vhost::device::Rings;
use crate::vhost::ring::{Layout, Ring, wakes};
use crate::vhost::sys::Region;
use crate::vhost::{HEADER, receive};

/// The device's side of one ring.
pub(super) struct Side {
    memory: Arc<Region>,
    layout: Layout,
    kick: OwnedFd,
    /// Index up to which it took buffers.
    seen: u16,
    /// Index up to which it used buffers.
    used: u16,
    /// True if it works without being woken.
    awake: bool,
    /// Times that it woke the driver.
    pub calls: usize,
}

/// A buffer: where it lies in the region, its length, and its flags.
type Buffer = (usize, usize, u16);

impl Side {
    fn new(memory: &Arc<Region>, ring: &Ring) -> Self {
        let (memory, layout) = (Arc::clone(memory), *ring.layout());
        let kick = ring.kick().try_clone().unwrap();
        Self { memory, layout, kick, seen: 0, used: 0, awake: false, calls: 0 }
    }

    /// Returns the descriptor by which it is woken.
    pub fn kick(&self) -> &OwnedFd {
        &self.kick
    }

    /// Returns true if it works now: it was woken, or has not stopped.
    pub fn is_awake(&mut self) -> bool {
        match io::read(self.kick.as_fd(), &mut [0; 8]) {
            Ok(_) => self.awake = true,
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
        self.awake
    }

    /// Returns true if there are `wanted` buffers. Otherwise it stops, and asks to be woken.
    fn has(&mut self, wanted: u16) -> bool {
        if !self.is_awake() {
            return false;
        }
        let there = || {
            let shown = self.memory.load16(self.layout.available_index(), Ordering::Acquire);
            let there = shown.wrapping_sub(self.seen);
            assert!(there <= self.layout.entries, "{there} buffers");
            (shown, there >= wanted)
        };
        let (shown, enough) = there();
        if enough {
            return true;
        }
        self.memory.store16(self.layout.available_event(), shown, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.awake = there().1;
        self.awake
    }

    fn buffer(&mut self) -> (u16, Buffer) {
        let slot = self.seen & (self.layout.entries - 1);
        let place = self.layout.available + 4 + 2 * usize::from(slot);
        let entry = self.memory.load16(place, Ordering::Relaxed);
        assert!(entry < self.layout.entries);
        self.seen = self.seen.wrapping_add(1);
        let place = self.layout.descriptor(entry);
        let mut bytes = [0; 16];
        self.memory.read(place, &mut bytes);
        let address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let len = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let flags = u16::from_le_bytes([bytes[12], bytes[13]]);
        let at = (address - self.memory.address(0)) as usize;
        assert!(at + len <= self.memory.len(), "a buffer beyond the region");
        (entry, (at, len, flags))
    }

    /// Returns buffers, each with the bytes that were written to it.
    fn give_back(&mut self, buffers: &[(u16, usize)]) {
        let old = self.used;
        for &(entry, written) in buffers {
            let slot = self.used & (self.layout.entries - 1);
            self.set_entry(slot, entry.into(), written as u32);
            self.used = self.used.wrapping_add(1);
        }
        self.memory.store16(self.layout.used_index(), self.used, Ordering::Release);
        fence(Ordering::SeqCst);
        let event = self.memory.load16(self.layout.used_event(), Ordering::Relaxed);
        self.calls += usize::from(wakes(event, old, self.used));
    }

    /// Says that buffers up to this index are used.
    pub fn set_used(&mut self, index: u16) {
        self.memory.store16(self.layout.used_index(), index, Ordering::Release);
    }

    /// Says that a buffer was used with so many bytes.
    pub fn set_entry(&mut self, slot: u16, buffer: u32, written: u32) {
        let place = self.layout.used_entry(slot);
        self.memory.store32(place, buffer);
        self.memory.store32(place + 4, written);
    }
}

/// The device of both rings.
pub(super) struct Kernel {
    pub transmit: Side,
    pub receive: Side,
    memory: Arc<Region>,
}

impl Kernel {
    /// The header of the frames that it gives.
    pub const HEADER: [u8; 10] = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    pub fn new(rings: &Rings) -> Self {
        let memory = Arc::clone(&rings.memory);
        let transmit = Side::new(&memory, rings.transmit.ring());
        let receive = Side::new(&memory, rings.receive.ring());
        Self { transmit, receive, memory }
    }

    /// Takes at most `most` frames that were sent.
    pub fn take(&mut self, most: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while frames.len() < most && self.transmit.has(1) {
            let (entry, (at, len, flags)) = self.transmit.buffer();
            assert!(flags == 0 && len >= HEADER);
            let mut frame = vec![0; len];
            self.memory.read(at, &mut frame);
            frames.push(frame.split_off(HEADER));
            self.transmit.give_back(&[(entry, 0)]);
        }
        frames
    }

    /// Gives a frame, if there are buffers for it.
    pub fn give(&mut self, frame: &[u8]) -> bool {
        let count = (HEADER + frame.len()).div_ceil(receive::BUFFER) as u16;
        if !self.receive.has(count) {
            return false;
        }
        let mut bytes = Self::HEADER.to_vec();
        bytes.extend(count.to_le_bytes());
        bytes.extend(frame);
        let used: Vec<_> = bytes
            .chunks(receive::BUFFER)
            .map(|chunk| {
                let (entry, (at, len, flags)) = self.receive.buffer();
                assert!(flags == 2 && len == receive::BUFFER);
                self.memory.write(at, chunk);
                (entry, chunk.len())
            })
            .collect();
        self.receive.give_back(&used);
        true
    }

    /// Says in the first buffer that its frame has so many.
    pub fn set_count(&mut self, count: u16) {
        let mut bytes = [0; 8];
        self.memory.read(self.receive.layout.descriptor(0), &mut bytes);
        let at = (u64::from_le_bytes(bytes) - self.memory.address(0)) as usize;
        self.memory.write(at + HEADER - 2, &count.to_le_bytes());
    }
}
