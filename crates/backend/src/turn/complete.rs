//! A sink before another one, which gets no packet with work left to it: each checksum is in its
//! packet, and a large frame comes as segments.

use crate::VifError;
use crate::layout::BURST;
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::batch::{Limits, TxBatch};
use crate::turn::sink::Sink;
use crate::turn::work;
use arrayvec::ArrayVec;
use grantway_netif::{Checksum, Gso};
use grantway_ports::finish::{SegmentChecksum, Segments, finish_checksum};
use grantway_ports::{FrameMeta, FramePlace, RECV_BUFFER};

/// Completes packets for the sink behind it.
pub(crate) struct Complete<'a, S> {
    pub sink: &'a mut S,
}

/// Frames that the sink is to take next.
type Ready = ArrayVec<FramePlace, BURST>;

impl<S: Sink> Sink for Complete<'_, S> {
    fn limits(&self) -> Limits {
        let limits = self.sink.limits();
        let (private, in_place) = (usize::MAX, usize::MAX);
        Limits { private, in_place, reach: limits.reach.max(1), cuts: true, ..limits }
    }

    fn may_flood(&self, head: &[u8]) -> bool {
        self.sink.may_flood(head)
    }

    fn send_frames(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let (mut ready, mut completed) = (Ready::new(), 0);
        for &FramePlace { at, meta } in frames {
            if let Some(gso) = meta.offload.gso {
                // Packets keep their order.
                self.pass_on(arena, &mut ready, stats)?;
                self.cut(FramePlace { at, meta }, gso, arena, stats)?;
                continue;
            }
            let mut offload = meta.offload;
            if offload.checksum == Checksum::Partial {
                if finish_checksum(&mut arena[at..at + meta.len]).is_err() {
                    VifStats::add(&stats.tx_dropped_offload, 1);
                    continue;
                }
                offload.checksum = Checksum::Complete;
                completed += 1;
            }
            // No more than there were.
            ready.push(FramePlace { at, meta: FrameMeta { offload, ..meta } });
        }
        VifStats::add(&stats.tx_completed, completed);
        self.pass_on(arena, &mut ready, stats)
    }

    fn send(
        &mut self,
        batch: &mut TxBatch,
        arena: &mut [u8],
        _: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let frames: Ready = batch.frames().collect();
        self.send_frames(arena, &frames, stats)
    }
}

impl<S: Sink> Complete<'_, S> {
    fn pass_on(
        &mut self,
        arena: &mut [u8],
        ready: &mut Ready,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        if !ready.is_empty() {
            self.sink.send_frames(arena, ready, stats)?;
            ready.clear();
        }
        Ok(())
    }

    /// Cuts a large frame, and passes its segments on. They lie in the arena behind all packets of
    /// a turn. A frame of more segments than a turn's work allows is dropped.
    fn cut(
        &mut self,
        frame: FramePlace,
        gso: Gso,
        arena: &mut [u8],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let frame = frame.bytes(arena).to_vec();
        let most = match self.sink.may_flood(&frame) {
            true => {
                work::SEGMENTS_SENT.min(work::segments_for_each(self.sink.limits().reach).into())
            }
            false => work::SEGMENTS_SENT,
        };
        let segments = Segments::new(&frame, gso, SegmentChecksum::Whole);
        let Some(mut segments) = segments.ok().filter(|segments| segments.count() <= most) else {
            VifStats::add(&stats.tx_dropped_offload, 1);
            return Ok(());
        };
        VifStats::add(&stats.tx_cut, segments.count() as u64);
        let room = arena.len().saturating_sub(RECV_BUFFER);
        let (mut ready, mut at) = (Ready::new(), room);
        while let Some(len) = segments.next_len() {
            if ready.is_full() || at + len > arena.len() {
                self.pass_on(arena, &mut ready, stats)?;
                at = room;
            }
            let room = arena.get_mut(at..).unwrap_or_default();
            let Ok(Some(meta)) = segments.next_into(room) else {
                return Err(VifError::Internal("a segment that is longer than a frame"));
            };
            ready.push(FramePlace { at, meta });
            at = (at + len).next_multiple_of(64);
        }
        self.pass_on(arena, &mut ready, stats)
    }
}
