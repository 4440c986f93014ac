//! A port that reads packets in the pages where their guest has them.
//!
//! Answers wait for their packets' pages to be unmapped, which is done for many at once: when
//! [`UNANSWERED_MOST`] slots wait, when the guest is about to run out of slots, when it sent
//! nothing in a turn, when the queue is to wait for others, and at the latest at the first turn
//! after [`UNANSWERED_LONGEST`]. A queue is never armed with answers that wait.

use crate::VifError;
use crate::layout::{HEAD, HEADS, RING_SLOTS};
use crate::policy::{Buffers, Map, Stretch};
use crate::state::stats::VifStats;
use crate::turn::batch::TxBatch;
use crate::turn::outgoing::{Gather, Outgoing};
use crate::turn::sink::{Limits, Sink, Tally, ToPort};
use arrayvec::ArrayVec;
use grantway_hypervisor::GrantRef;
use grantway_netif::slots::tx::{SLOTS_ACCEPTED, SLOTS_SENT, TxFragment};
use grantway_netif::tx::status;
use grantway_ports::{FramePlace, Port, SplitFrame};
use grantway_ring::VolatileSlice;
use std::time::{Duration, Instant};

/// Slots with which a turn has enough if the queue has its worker for itself, and
/// if others wait: to map costs more than to copy, and a turn is to be short.
const SLOTS_ALONE: usize = 128;
const SLOTS_BESIDE: usize = 32;

/// Slots that wait to be answered before pages are unmapped for it: half a ring,
/// so that the guest has the other half to fill.
const UNANSWERED_MOST: usize = RING_SLOTS / 2;
/// Longest time that the first waiting answer waits while packets keep coming.
const UNANSWERED_LONGEST: Duration = Duration::from_micros(100);
/// Slots that the guest is to have free: a guest stops to send when it has fewer
/// than its longest packet takes, and one more packet is to go meanwhile.
const FREE_LEAST: usize = 2 * (SLOTS_SENT + 2);

/// Pages that a queue maps for its port, and the answers that wait for the unmapping.
pub(crate) struct Stretches {
    map: Map,
    all: Vec<Stretch>,
    /// Stretches of each packet of the turn: the first, and one past the last. The range is empty
    /// if no page is mapped for the packet.
    of: Vec<(usize, usize)>,
    /// Packets that are copied, as they are brought into private memory.
    copied: Gather,
    /// Answers that wait, in the order of the ring.
    answers: Vec<[u32; 3]>,
    /// Since when the first of them does.
    since: Option<Instant>,
}

impl Stretches {
    pub fn new(map: Map) -> Self {
        let (all, of, answers) = (Vec::new(), Vec::new(), Vec::new());
        Self { map, all, of, copied: Gather::default(), answers, since: None }
    }

    /// Pages that are mapped now.
    #[cfg(test)]
    pub fn mapped(&self) -> usize {
        self.map.mapped()
    }

    /// Ends a turn; see [`Map::end_turn`].
    pub fn end_turn(&mut self, idle: bool) {
        self.map.end_turn(idle);
    }

    /// Answers that wait.
    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    /// Returns true if answers wait.
    pub fn owe(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Returns true if the answers of a turn have to wait: pages are mapped for its packets, or for
    /// packets before them.
    pub fn are_used(&self) -> bool {
        self.map.mapped() > 0 || self.owe()
    }

    /// Adds answers that wait.
    pub fn wait(&mut self, answers: &[[u32; 3]]) {
        self.answers.extend_from_slice(answers);
    }

    /// Returns true if the waiting answers are to be given now. `shown` is the number of further
    /// requests that the guest has shown.
    pub fn are_due(&mut self, shown: usize, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let slots = self.answers.len();
        slots >= UNANSWERED_MOST
            || slots + shown > RING_SLOTS - FREE_LEAST
            || now.saturating_duration_since(since) >= UNANSWERED_LONGEST
    }

    /// Unmaps all pages. Returns the answers that may be given from here on.
    pub fn unmap(&mut self) -> &[[u32; 3]] {
        // A turn that failed leaves pages named here.
        self.all.clear();
        self.map.unmap();
        &self.answers
    }

    /// Forgets the answers, which were given.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.since = None;
    }

    /// Begins a turn of `packets` packets. No page is mapped for them yet.
    fn begin(&mut self, packets: usize) {
        self.all.clear();
        self.of.clear();
        self.of.resize(packets, (0, 0));
    }

    /// Lists the pages that are to be mapped: of whole packets, as far as there is room.
    fn list(&mut self, batch: &TxBatch) {
        let room = self.map.room();
        for packet in batch.all_outgoing(HEAD).filter(|packet| packet.len() > HEAD) {
            let (first, mut rest) = (self.all.len(), packet.rest());
            while let Some(TxFragment { gref, offset, size, .. }) = rest.take(usize::MAX) {
                self.all.push(Stretch { gref: GrantRef(gref), offset, len: size, page: None });
            }
            if self.all.len() > room {
                self.all.truncate(first);
            }
            self.of[packet.number()] = (first, self.all.len());
        }
    }

    /// Maps the pages that are listed, all of them or none.
    fn map(&mut self, stats: &VifStats) {
        if !self.all.is_empty() && self.map.map(&mut self.all) {
            VifStats::add(&stats.mapped_hits, self.all.len() as u64);
            VifStats::add(&stats.mapped_pages, self.all.len() as u64);
        } else {
            self.all.clear();
            self.of.fill((0, 0));
        }
    }
}

/// The way to a port by mappings. What is copied of a packet, and judged, is its
/// first bytes; the guest may write the others while the port reads them.
pub(crate) struct Mapped<'a> {
    pub port: &'a mut dyn Port,
    pub stretches: &'a mut Stretches,
    /// True if the worker has no other queue to serve.
    pub alone: bool,
}

impl Mapped<'_> {
    /// Copies what is not mapped: of each such packet the rest, behind its first bytes, to where
    /// there is room for all of it. Ends those that cannot be read.
    fn copy(
        &mut self,
        batch: &mut TxBatch,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let Stretches { of, copied, .. } = &mut *self.stretches;
        for packet in batch.all_outgoing(HEAD).filter(|packet| packet.len() > HEAD) {
            if of[packet.number()].0 == of[packet.number()].1 {
                copied.add(packet.number(), &packet, 0..packet.len(), packet.whole_at(), arena);
            }
        }
        VifStats::add(&stats.mapped_misses, copied.len() as u64);
        copied.fetch(buffers, arena, |number| {
            if let Some(taken) = batch.packets.get_mut(number).filter(|taken| taken.goes_on()) {
                VifStats::add(&stats.tx_dropped_grant, 1);
                taken.end(status::ERROR);
            }
        })
    }

    /// Hands a packet to the port.
    fn send_one(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        tally: &mut Tally<'_>,
    ) -> Result<(), VifError> {
        let (len, offload) = (packet.len(), packet.offload());
        let (first, end) = self.stretches.of[packet.number()];
        if first == end {
            let at = if len > HEAD { packet.whole_at() } else { packet.at() };
            return tally.said(self.port.send(&arena[at..at + len], offload), len);
        }
        let rest: ArrayVec<_, SLOTS_ACCEPTED> = self.stretches.all[first..end]
            .iter()
            .filter_map(|stretch| {
                VolatileSlice::new(stretch.page.as_ref()?, stretch.offset, stretch.len).ok()
            })
            .take(SLOTS_ACCEPTED)
            .collect();
        // The private bytes of all packets lie before the room for whole ones.
        let (heads, room) = arena.split_at_mut(HEADS);
        let frame = SplitFrame::new(packet.head(heads), &rest);
        let room = &mut room[packet.whole_at() - HEADS..][..len];
        tally.said(self.port.send_split(&frame, offload, room), len)
    }
}

impl Sink for Mapped<'_> {
    fn limits(&self) -> Limits {
        let slots = if self.alone { SLOTS_ALONE } else { SLOTS_BESIDE };
        Limits { private: HEAD, whole: 0, slots, reach: 0 }
    }

    fn send_frames(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        ToPort { port: self.port, merger: None }.send_frames(arena, frames, stats)
    }

    fn send(
        &mut self,
        batch: &mut TxBatch,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        self.stretches.begin(batch.packets.len());
        if batch.packets.iter().any(|taken| taken.len() > HEAD) {
            self.stretches.list(batch);
            self.stretches.map(stats);
            self.copy(batch, arena, buffers, stats)?;
        }
        let mut tally = Tally::new(stats);
        for packet in batch.all_outgoing(HEAD) {
            self.send_one(&packet, arena, &mut tally)?;
        }
        // Nothing is unmapped while a page is named here.
        self.stretches.all.clear();
        Ok(self.port.flush()?)
    }

    fn stretches(&mut self) -> Option<&mut Stretches> {
        Some(self.stretches)
    }
}
