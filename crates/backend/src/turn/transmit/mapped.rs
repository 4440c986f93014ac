//! A port that reads packets in the pages where their guest has them.

use crate::VifError;
use crate::layout::{HEAD, HEADS};
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::batch::{Limits, TxBatch};
use crate::turn::outgoing::Outgoing;
use crate::turn::sink::{Sink, Tally, ToPort};
use crate::turn::stretches::Stretches;
use arrayvec::ArrayVec;
use grantway_netif::slots::tx::SLOTS_ACCEPTED;
use grantway_ports::{FramePlace, Port, SplitFrame};
use grantway_ring::VolatileSlice;

/// Slots with which a turn has enough if the queue has its worker for itself, and
/// if others wait: to map costs more than to copy, and a turn is to be short.
const SLOTS_ALONE: usize = 128;
const SLOTS_BESIDE: usize = 32;

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
        copied.fetch(buffers, arena, |number| batch.end_unread(number, stats))
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
        Limits { private: HEAD, whole: 0, in_place: usize::MAX, slots, reach: 0, cuts: false }
    }

    /// A turn never asks for it, as no packet is taken whole.
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
