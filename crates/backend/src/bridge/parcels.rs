//! The frames of a turn's packets of which only the first bytes are in private memory, as they
//! are handed to their receivers: one for each frame of the list that goes somewhere.
//!
//! A frame for one guest has its rest in the sender's pages, and crosses from there. A frame
//! for several receivers, for the uplink or for a guest of another worker, or one that segments were merged into, is brought
//! into private memory, all of it, together with all others of the turn.

use super::Bridge;
use crate::VifError;
use crate::layout::{self, HEAD, HEADS};
use crate::policy::Buffers;
use crate::turn::batch::TxBatch;
use crate::turn::outgoing::Gather;
use grantway_ports::{FrameMeta, FramePlace};
use grantway_vector::Verdict;

/// One frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parcel {
    /// Place of the frame, or of its first bytes, with the length of the whole frame.
    pub place: FramePlace,
    /// Number of the packet, if its rest is in the sender's pages.
    pub rest: Option<u8>,
}

/// The frames of a list.
#[derive(Default)]
pub(super) struct Parcels {
    /// Parcels by their numbers in the list. `None` for a frame that cannot be read, or that was
    /// merged into an earlier one.
    all: Vec<Option<Parcel>>,
    /// Brings packets into private memory.
    pub(super) gather: Gather,
}

impl Parcels {
    /// A frame of the list, by its number.
    pub fn get(&self, frame: u8) -> Option<Parcel> {
        *self.all.get(usize::from(frame))?
    }

    /// Finds a place for each frame of the list, and brings into private memory what has to be
    /// there.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    pub fn fill(
        &mut self,
        bridge: &Bridge,
        batch: &mut TxBatch,
        arena: &mut [u8],
        buffers: &mut Buffers,
    ) -> Result<(), VifError> {
        self.all.clear();
        let mut at = HEADS;
        for frame in 0..bridge.lists.len() {
            // A list has no more than a burst, and all of it fits behind the heads.
            let parcel = self.place(frame as u8, bridge, batch, &mut at, arena);
            self.all.push(parcel);
        }
        let Self { all, gather } = self;
        gather.fetch(buffers, arena, |frame| all[frame] = None)
    }

    /// A frame of the list. The arena has room for it from `free` on, which is moved behind what the
    /// frame needs of that. A copy names a page of the arena by its grant, so as far as may be each
    /// lies in one page: copies from the sender for the uplink, and those to the receivers of a flood.
    fn place(
        &mut self,
        frame: u8,
        bridge: &Bridge,
        batch: &mut TxBatch,
        free: &mut usize,
        arena: &mut [u8],
    ) -> Option<Parcel> {
        let lists = &bridge.lists;
        let (verdict, is_merged) = (lists.verdict(frame), lists.is_merged(frame));
        if verdict == Verdict::Merged {
            return None;
        }
        let first = lists.frame(frame);
        let number = first.token as usize;
        let packet = batch.outgoing(number, HEAD)?;
        let (len, is_private) = (packet.len(), packet.private() == packet.len());
        let place = |at, len, offload| FramePlace { at, meta: FrameMeta { len, offload } };
        if is_merged {
            let at = *free;
            let mut end = at;
            for (part, skip) in lists.pieces(frame) {
                // Each frame of the list is a packet that goes on.
                let Some(packet) = batch.outgoing(part.token as usize, HEAD) else { continue };
                let bytes = skip as usize..part.len as usize;
                end = self.gather.add(frame.into(), &packet, bytes, end, arena);
            }
            *free = end.next_multiple_of(64);
            return Some(Parcel { place: place(at, end - at, first.offload), rest: None });
        }
        let offload = packet.offload();
        if is_private {
            return Some(Parcel { place: place(packet.at(), len, offload), rest: None });
        }
        let lead = if verdict == Verdict::Flood { 0 } else { packet.lead().unwrap_or(0) };
        let at = layout::place(*free, lead, len);
        *free = (at + len).next_multiple_of(64);
        if bridge.wants_whole(verdict) {
            self.gather.add(frame.into(), &packet, 0..len, at, arena);
            return Some(Parcel { place: place(at, len, offload), rest: None });
        }
        let place = place(packet.at(), len, offload);
        batch.packets[number].place_whole(at);
        // A turn has no more packets than a byte counts.
        Some(Parcel { place, rest: Some(number as u8) })
    }
}
