//! Bundles: the frames of one turn for the guests of another worker.

use crate::ids::Key;
use crate::layout::place;
use crate::turn::work;
use grantway_ports::FramePlace;
use grantway_ring::PAGE_SIZE;
use grantway_vector::PortId;

/// Work of a bundle beside its frames.
const EACH: u32 = 40;

/// Frames of one sender's turn, all of each in private memory.
#[derive(Default)]
pub(crate) struct Bundle {
    pub from: PortId,
    /// The sender's queue, or `None` for the uplink.
    pub sender: Option<Key>,
    /// The frames, in their order. Their places are those in `bytes`, and later in the arena of
    /// the worker that gives them.
    pub(super) places: Vec<FramePlace>,
    /// Receivers of the frames, and the number of frames in a row with these receivers.
    pub(super) runs: Vec<(To, usize)>,
    pub(super) bytes: Vec<u8>,
}

/// The receivers of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// One port. A filter may have chosen its queue.
    Port(PortId, Option<u16>),
    /// All ports that the sender may reach.
    All,
}

impl Bundle {
    /// Returns true if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Takes everything out of it. The memory stays.
    pub fn clear(&mut self) {
        self.places.clear();
        self.runs.clear();
        self.bytes.clear();
    }

    /// Adds frames. Their bytes are copied out of the arena.
    pub fn add(&mut self, places: &[FramePlace], to: To, arena: &[u8]) {
        match self.runs.last_mut() {
            Some((last, frames)) if *last == to => *frames += places.len(),
            _ => self.runs.push((to, places.len())),
        }
        let most = |frame: &FramePlace| frame.meta.len + PAGE_SIZE.min(frame.meta.len) + 64;
        self.bytes.reserve(places.iter().map(most).sum());
        for frame in places {
            // Frames of the usual short length lie side by side.
            let at = place(self.bytes.len().next_multiple_of(64), 0, frame.meta.len);
            if at > self.bytes.len() {
                self.bytes.resize(at, 0);
            }
            self.bytes.extend_from_slice(frame.bytes(arena));
            self.places.push(FramePlace { at, meta: frame.meta });
        }
    }

    /// Returns the number with which its first frame begins.
    #[cfg(test)]
    pub fn first_word(&self) -> u64 {
        u64::from_ne_bytes(*self.bytes.first_chunk().unwrap())
    }

    /// Returns the bytes that it takes.
    pub fn allocated(&self) -> usize {
        size_of::<Self>()
            + self.bytes.capacity()
            + self.places.capacity() * size_of::<FramePlace>()
            + self.runs.capacity() * size_of::<(To, usize)>()
    }

    /// Returns the most that its delivery costs, if `reach` receivers get what is for all.
    pub fn price(&self, reach: u32) -> u32 {
        let mut frames = self.places.iter();
        let run = |&(to, many): &(To, usize)| {
            let price = |frame: &FramePlace| {
                u32::from(work::price(frame.meta.len, frame.meta.offload.gso, work::SEGMENT))
            };
            let each: u32 = frames.by_ref().take(many).map(price).sum();
            each.saturating_mul(if to == To::All { reach.max(1) } else { 1 })
        };
        self.runs.iter().map(run).fold(EACH, u32::saturating_add)
    }
}
