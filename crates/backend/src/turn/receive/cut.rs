//! Frames that the guest does not take as they are: finished for it, and cut.

use super::{Incoming, Receive};
use crate::VifError;
use crate::journal::JournalMemory;
use crate::state::shared::Shared;
use crate::state::stats::VifStats;
use crate::turn::delivery::{Accepted, Delivery};
use grantway_netif::{Checksum, Offload};
use grantway_ports::finish::{SegmentChecksum, Segments, finish_checksum};
use grantway_ports::{DropReason, FrameMeta};
use grantway_ring::RingMemory;

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    /// Whether a frame is to be segmented, which the guest leaves to others.
    #[inline]
    pub(super) fn is_to_be_cut(&self, frame: &Incoming, arena: &[u8]) -> bool {
        frame.offload.gso.is_some() && !self.guest.takes(frame.bytes(arena), frame.offload)
    }

    /// Cuts a frame into segments, which lie behind it in the arena, from `at` on where
    /// all is free: no further behind [`Scratch::FILL`](crate::turn::scratch::Scratch::FILL)
    /// than one frame. Those that find no page wait. From where on it is free then.
    pub(super) fn cut(
        &mut self,
        frame: Incoming,
        mut at: usize,
        arena: &mut [u8],
        delivery: &mut Delivery,
        shared: &Shared,
    ) -> Result<usize, VifError> {
        let (used, free) = arena.split_at_mut(at);
        let (bytes, first) = (frame.bytes(used), at);
        if !wants(bytes, shared) {
            return Ok(at);
        }
        let mut segments = match self.segments(bytes, frame.offload) {
            Ok(segments) => segments,
            Err(_) => {
                VifStats::add(&shared.stats.rx_dropped_offload, 1);
                return Ok(at);
            }
        };
        if is_too_much(&segments, &frame) {
            drop_rest(&segments, shared);
            return Ok(at);
        }
        // Those of a ring's pages fit behind any frame, unless their headers are pages.
        while let Some(next) = segments.next_len() {
            if (!self.waiting.is_empty() || !self.has_posted(1)?)
                && !self.waiting.has_room_for(next, frame.origin.flooded().is_some())
            {
                drop_rest(&segments, shared);
                break;
            }
            let room = free.get_mut(at - first..).unwrap_or_default();
            let FrameMeta { len, offload } = match segments.next_into(room) {
                Ok(Some(segment)) => segment,
                Ok(None) => break,
                Err(_) => {
                    VifStats::add(&shared.stats.rx_dropped_offload, 1);
                    break;
                }
            };
            let segment = &room[..len];
            VifStats::add(&shared.stats.rx_cut, 1);
            let Some(layout) = self.layout(segment, len, offload, shared)? else { continue };
            if self.waiting.is_empty() && self.has_posted(layout.slots())? {
                self.lay_out(&layout, at, len, None, delivery)?;
                at = (at + len).next_multiple_of(64);
                continue;
            }
            VifStats::add(&shared.stats.rx_stalls, u64::from(self.waiting.is_empty()));
            if self.wait(segment, layout, &Incoming { offload, ..frame }, shared)
                == Accepted::Dropped
            {
                drop_rest(&segments, shared);
                break;
            }
        }
        Ok(at)
    }

    /// Does for a frame what the guest cannot: its checksum, its segmentation.
    /// What comes of it waits for pages, were there any or not.
    pub(super) fn accept_unfinished(
        &mut self,
        bytes: &[u8],
        of: Incoming,
        shared: &Shared,
    ) -> Result<Accepted, VifError> {
        let mut accepted = Accepted::Dropped;
        let mut take = |receive: &mut Self, frame: &[u8], offload| {
            let Some(layout) = receive.layout(frame, frame.len(), offload, shared)? else {
                return Ok(());
            };
            if receive.wait(frame, layout, &Incoming { offload, ..of }, shared) == Accepted::Short {
                accepted = Accepted::Short;
            }
            Ok(())
        };
        match self.finish_each(bytes, &of, shared, &mut take) {
            Ok(done) => done?,
            Err(_) => VifStats::add(&shared.stats.rx_dropped_offload, 1),
        }
        Ok(accepted)
    }

    /// Calls `take` for each frame that comes of finishing one, as far as there is room for
    /// it to wait.
    fn finish_each(
        &mut self,
        bytes: &[u8],
        frame: &Incoming,
        shared: &Shared,
        take: &mut impl FnMut(&mut Self, &[u8], Offload) -> Result<(), VifError>,
    ) -> Result<Result<(), VifError>, DropReason> {
        let &Incoming { offload, origin, .. } = frame;
        if offload.gso.is_none() {
            let mut whole = bytes.to_vec();
            finish_checksum(&mut whole)?;
            let offload = Offload { checksum: Checksum::Complete, gso: None };
            return Ok(take(self, &whole, offload));
        }
        if !wants(bytes, shared) {
            return Ok(Ok(()));
        }
        let mut segments = self.segments(bytes, offload)?;
        if is_too_much(&segments, frame) {
            drop_rest(&segments, shared);
            return Ok(Ok(()));
        }
        let mut segment = vec![0; segments.longest()];
        while let Some(next) = segments.next_len() {
            if !self.waiting.has_room_for(next, origin.flooded().is_some()) {
                drop_rest(&segments, shared);
                break;
            }
            let Some(meta) = segments.next_into(&mut segment)? else { break };
            VifStats::add(&shared.stats.rx_cut, 1);
            if let Err(e) = take(self, &segment[..meta.len], meta.offload) {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }

    /// The segments of a frame as the guest takes them.
    fn segments<'a>(&self, bytes: &'a [u8], offload: Offload) -> Result<Segments<'a>, DropReason> {
        let gso = offload.gso.ok_or(DropReason::GsoNotWanted)?;
        let checksum = match self.guest.takes_blank(bytes) {
            true => SegmentChecksum::Partial,
            false => SegmentChecksum::Whole,
        };
        Segments::new(bytes, gso, checksum)
    }
}

/// Whether the guest takes frames to this station: of one that it does not list, no segment
/// is built.
fn wants(frame: &[u8], shared: &Shared) -> bool {
    let passes = shared.multicast.passes(frame);
    VifStats::add(&shared.stats.rx_filtered_multicast, u64::from(!passes));
    passes
}

/// Whether a frame that goes to all is cut into more than is borne of such.
fn is_too_much(segments: &Segments<'_>, frame: &Incoming) -> bool {
    frame.origin.flooded().is_some_and(|most| segments.left() > usize::from(most))
}

/// Where one segment finds no room, those behind it find none either: they are not built,
/// as that would be work for whoever cut a frame into thousands.
fn drop_rest(segments: &Segments<'_>, shared: &Shared) {
    VifStats::add(&shared.stats.rx_dropped_drained, segments.left() as u64);
}
