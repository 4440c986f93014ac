//! Frames that the guest does not take as they are: finished for it, and cut.

use super::{Incoming, Receive};
use crate::VifError;
use crate::journal::JournalMemory;
use crate::state::shared::QueueState;
use crate::state::stats::VifStats;
use crate::turn::delivery::{Accepted, Delivery};
use grantway_netif::{Checksum, Offload};
use grantway_ports::FrameMeta;
use grantway_ports::finish::{SegmentChecksum, Segments, finish_checksum};
use grantway_ring::RingMemory;

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    /// Returns true if a frame is to be segmented, and the guest does not do so.
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
        shared: &QueueState,
    ) -> Result<usize, VifError> {
        let (used, free) = arena.split_at_mut(at);
        let (bytes, first) = (frame.bytes(used), at);
        let Some(mut segments) = self.segments(bytes, &frame, shared) else { return Ok(at) };
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

    /// Does for a frame what the guest cannot: its checksum, its segmentation. What comes of it
    /// waits for pages, even if some are posted.
    pub(super) fn accept_unfinished(
        &mut self,
        bytes: &[u8],
        of: Incoming,
        shared: &QueueState,
    ) -> Result<Accepted, VifError> {
        if of.offload.gso.is_none() {
            let mut whole = bytes.to_vec();
            if finish_checksum(&mut whole).is_err() {
                VifStats::add(&shared.stats.rx_dropped_offload, 1);
                return Ok(Accepted::Dropped);
            }
            let offload = Offload { checksum: Checksum::Complete, gso: None };
            return self.wait_finished(&whole, &Incoming { offload, ..of }, shared);
        }
        let Some(mut segments) = self.segments(bytes, &of, shared) else {
            return Ok(Accepted::Dropped);
        };
        let (mut accepted, mut segment) = (Accepted::Dropped, vec![0; segments.longest()]);
        while let Some(next) = segments.next_len() {
            if !self.waiting.has_room_for(next, of.origin.flooded().is_some()) {
                drop_rest(&segments, shared);
                break;
            }
            let FrameMeta { len, offload } = match segments.next_into(&mut segment) {
                Ok(Some(meta)) => meta,
                Ok(None) => break,
                Err(_) => {
                    VifStats::add(&shared.stats.rx_dropped_offload, 1);
                    break;
                }
            };
            VifStats::add(&shared.stats.rx_cut, 1);
            let of = Incoming { offload, ..of };
            if self.wait_finished(&segment[..len], &of, shared)? == Accepted::Short {
                accepted = Accepted::Short;
            }
        }
        Ok(accepted)
    }

    /// Has a frame wait that is finished, if the guest takes it.
    fn wait_finished(
        &mut self,
        frame: &[u8],
        of: &Incoming,
        shared: &QueueState,
    ) -> Result<Accepted, VifError> {
        Ok(match self.layout(frame, frame.len(), of.offload, shared)? {
            Some(layout) => self.wait(frame, layout, of, shared),
            None => Accepted::Dropped,
        })
    }

    /// Returns the segments of a frame for the guest. Returns `None` and counts the frame if the
    /// guest must not get it.
    fn segments<'a>(
        &self,
        bytes: &'a [u8],
        frame: &Incoming,
        shared: &QueueState,
    ) -> Option<Segments<'a>> {
        // Of a frame to a station that the guest does not list no segment is built.
        if !shared.multicast.passes(bytes) {
            VifStats::add(&shared.stats.rx_filtered_multicast, 1);
            return None;
        }
        let checksum = match self.guest.takes_blank(bytes) {
            true => SegmentChecksum::Partial,
            false => SegmentChecksum::Whole,
        };
        let segments = frame.offload.gso.map(|gso| Segments::new(bytes, gso, checksum));
        let Some(Ok(segments)) = segments else {
            VifStats::add(&shared.stats.rx_dropped_offload, 1);
            return None;
        };
        // A frame to all guests is cut into a few for each.
        if frame.origin.flooded().is_some_and(|most| segments.left() > usize::from(most)) {
            drop_rest(&segments, shared);
            return None;
        }
        Some(segments)
    }
}

/// Counts the segments that are left as dropped. If one segment finds no room, the later ones find
/// none either. They are not built, so a guest that cuts a frame into thousands causes no work.
fn drop_rest(segments: &Segments<'_>, shared: &QueueState) {
    VifStats::add(&shared.stats.rx_dropped_drained, segments.left() as u64);
}
