//! Transmit: frames into granted pages, slots onto the ring, completions back.

use crate::buffers::{Buffer, Buffers, SMALL};
use crate::stats::QueueStats;
use crate::{PeerError, SendError};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use grantway_netif::Offload;
use grantway_netif::slots::tx::{SLOTS_SENT, SLOTS_WRITTEN, TxFragment, write_one, write_tx};
use grantway_netif::tx::{TxResponse, status};
use grantway_ring::{Front, PAGE_SIZE, RingPage};

/// Shortest frame: an Ethernet header.
pub(crate) const SHORTEST: usize = 14;
/// Longest frame that a request's 16-bit size can tell of.
pub(crate) const LONGEST: usize = 65_535;

/// Frames that are put on the ring, or taken off it, together.
pub(crate) const BURST: usize = 64;

/// A frame to be sent.
#[derive(Debug, Clone, Copy)]
pub struct TxFrame<'a> {
    /// All of it, 14 to 65,535 bytes, without FCS.
    pub bytes: &'a [u8],
    /// Checksum and segmentation state.
    pub offload: Offload,
}

/// The transmit half of a queue.
pub(crate) struct Transmit {
    ring: Front<RingPage<3>, 3>,
    buffers: Buffers,
    /// By id: whether the buffer is out with the backend.
    out: Vec<bool>,
    /// Extra slots that are out; their answers carry no id.
    extras_out: u32,
    /// Copies of slots, for one call at a time.
    slots: Box<[[u32; 3]; BURST]>,
    scatter_gather: bool,
}

impl Transmit {
    pub fn new(ring: Front<RingPage<3>, 3>, buffers: Buffers, scatter_gather: bool) -> Self {
        let out = vec![false; buffers.numbers()];
        let slots = Box::new([[0; 3]; BURST]);
        Self { ring, buffers, out, extras_out: 0, slots, scatter_gather }
    }

    /// What frames are sent from.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Copies short frames, from the first on, into small buffers and puts their
    /// slots on the ring, where they stay private until [`Transmit::publish`]; how
    /// many, up to the first that is not short, or finds no room. `frame` makes the
    /// frame of one of `items`.
    ///
    /// In two passes: while the copies wait for lines that the backend has, nothing
    /// else is written, and more of them are under way at once.
    #[inline]
    pub fn send_short<'a, T>(
        &mut self,
        items: &[T],
        frame: impl Fn(&T) -> TxFrame<'a>,
        stats: &mut QueueStats,
    ) -> usize {
        let Some(small) = self.buffers.small() else { return 0 };
        let free = small.free();
        let room = (self.ring.free() as usize).min(BURST);
        let mut bytes = 0;
        let mut copied = 0;
        for (item, &id) in items.iter().zip(free.iter().rev()).take(room) {
            let TxFrame { bytes: from, offload } = frame(item);
            if !(SHORTEST..=SMALL).contains(&from.len()) || offload.gso.is_some() {
                break;
            }
            let Some(Buffer { page, offset, .. }) = small.buffer(id) else { break };
            if page.write(offset.into(), from).is_err() {
                break;
            }
            bytes += from.len();
            copied += 1;
        }
        let slots = &mut *self.slots;
        let ids = free.iter().rev();
        let mut written = 0;
        for ((slot, item), &id) in slots.iter_mut().zip(&items[..copied]).zip(ids) {
            let Some(Buffer { gref, offset, .. }) = small.buffer(id) else { break };
            let TxFrame { bytes: from, offload } = frame(item);
            // At most 256.
            let size = from.len() as u16;
            let fragment = TxFragment { gref: gref.0, offset, size, id };
            let Ok(words) = write_one(fragment, offload.checksum) else { break };
            *slot = words;
            if let Some(out) = self.out.get_mut(usize::from(id)) {
                *out = true;
            }
            written += 1;
        }
        let sent = self.ring.push_batch(&slots[..written]);
        self.buffers.take_smalls(sent);
        stats.tx_packets += sent as u64;
        stats.tx_bytes += bytes as u64;
        stats.tx_slots += sent as u64;
        sent
    }

    /// Copies a frame into whole pages and puts its slots on the ring.
    pub fn send(&mut self, frame: &TxFrame<'_>, stats: &mut QueueStats) -> Result<(), SendError> {
        let TxFrame { bytes: frame, offload } = *frame;
        let longest = if self.scatter_gather { LONGEST } else { PAGE_SIZE };
        if !(SHORTEST..=longest).contains(&frame.len()) {
            return Err(SendError::Length { found: frame.len(), longest });
        }
        let pages = frame.len().div_ceil(PAGE_SIZE);
        let extras = usize::from(offload.gso.is_some());
        if (self.ring.free() as usize) < pages + extras || self.buffers.free_pages() < pages {
            stats.tx_full += 1;
            return Err(SendError::Full);
        }
        let mut fragments = ArrayVec::<TxFragment, SLOTS_SENT>::new();
        for chunk in frame.chunks(PAGE_SIZE) {
            // Free pages and slots were counted above, and each chunk fits its
            // buffer: none of these can fail.
            let Some(id) = self.buffers.take_page() else { break };
            let Some(buffer) = self.buffers.page(id, chunk.len()) else { break };
            let Buffer { page, gref, offset } = buffer;
            if page.write(offset.into(), chunk).is_err() {
                break;
            }
            let size = chunk.len() as u16;
            fragments.push(TxFragment { gref: gref.0, offset, size, id });
        }
        let mut slots = ArrayVec::<[u32; 3], SLOTS_WRITTEN>::new();
        // At most LONGEST, which fits 16 bits.
        let len = frame.len() as u16;
        let written = write_tx(&fragments, len, offload, None, None, &mut slots);
        if written.is_err() || fragments.len() != pages {
            for fragment in &fragments {
                self.buffers.give(fragment.id);
            }
            return Err(SendError::Length { found: frame.len(), longest });
        }
        self.ring.push_batch(&slots);
        for fragment in &fragments {
            if let Some(out) = self.out.get_mut(usize::from(fragment.id)) {
                *out = true;
            }
        }
        // At most a few: one a packet, and the ring has 256 slots.
        self.extras_out += (slots.len() - pages) as u32;
        stats.tx_packets += 1;
        stats.tx_bytes += frame.len() as u64;
        stats.tx_slots += slots.len() as u64;
        Ok(())
    }

    /// Shows the backend what was sent; true when it asked to be signalled.
    #[must_use]
    pub fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Takes completions in and frees their pages. Called on an event or when
    /// pages run short, not on each send: reaping within every transmit keeps
    /// moving the event index and buys nothing.
    pub fn reap(&mut self, stats: &mut QueueStats) -> Result<usize, PeerError> {
        let mut reaped = 0;
        loop {
            let first = self.ring.rsp_cons();
            let popped = self.ring.pop_batch(&mut self.slots[..]);
            let popped = popped.map_err(|source| PeerError::Ring { ring: "transmit", source })?;
            for (&words, at) in self.slots[..popped].iter().zip(0..) {
                let response = TxResponse::from_words(words);
                let index = || first.wrapping_add(at);
                if response.status == status::NULL {
                    let left = self.extras_out.checked_sub(1);
                    self.extras_out = left.ok_or(PeerError::UnknownExtra { index: index() })?;
                    continue;
                }
                match self.out.get_mut(usize::from(response.id)) {
                    Some(out) if *out => *out = false,
                    _ => return Err(PeerError::UnknownId { index: index(), found: response.id }),
                }
                self.buffers.give(response.id);
                stats.tx_errors += u64::from(response.status != status::OKAY);
                reaped += 1;
            }
            if popped < BURST {
                return Ok(reaped);
            }
        }
    }

    /// Asks for a signal once a quarter of what is out has come back; true when
    /// that is so already, or nothing is out: then nobody would ever signal.
    pub fn arm(&mut self) -> Result<bool, PeerError> {
        let outstanding = self.ring.outstanding();
        if outstanding == 0 {
            return Ok(true);
        }
        let armed = self.ring.arm_after(outstanding.div_ceil(4));
        armed.map_err(|source| PeerError::Ring { ring: "transmit", source })
    }

    /// Slots that the backend has not answered.
    pub fn outstanding(&self) -> u32 {
        self.ring.outstanding()
    }

    /// Says that the pool's grants are void.
    pub fn void(&self) {
        self.buffers.void();
    }
}
