//! A port that reads large packets in pages that stay mapped (policies staging and persistent), as
//! under the map policy, but without a grant operation. The head of such a packet is private and
//! judged; the guest may write the rest while the port reads it. All other packets are private.

use crate::VifError;
use crate::layout::{BURST, HEAD};
use crate::policy::{Buffers, Pages};
use crate::state::stats::VifStats;
use crate::turn::batch::{Limits, TxBatch};
use crate::turn::outgoing::{Gather, Outgoing};
use crate::turn::sink::{Sink, Tally, ToPort};
use crate::turn::taken::Taken;
use arrayvec::ArrayVec;
use grantway_hypervisor::GrantRef;
use grantway_netif::slots::tx::{SLOTS_ACCEPTED, TxFragment};
use grantway_ports::{FramePlace, SplitFrame};
use grantway_ring::VolatileSlice;

/// Bytes of the longest large packet that is copied as a whole: the system call takes longer for
/// pages than for one piece.
const COPIED: usize = 2048;
/// Slots with which a turn has enough: the guest fills others meanwhile.
const SLOTS: usize = 72;
/// Turns in which all packets are copied after a page was not mapped: to copy the head first and
/// the rest later takes two batches of grant copies.
const PAUSE: u32 = 64;

/// Turns with packets until packets are sent in place again.
#[derive(Debug, Default)]
pub(crate) struct Pause(u32);

impl Pause {
    /// Returns true if packets may be sent in place.
    pub fn is_over(&self) -> bool {
        self.0 == 0
    }

    /// Counts a turn with packets.
    pub fn end_turn(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }
}

/// The way to a port by pages that are mapped already.
pub(crate) struct InPlace<'a> {
    /// The way of all other packets.
    pub sink: ToPort<'a>,
    pub pause: &'a mut Pause,
}

/// Stretches of a packet behind its head.
type Rest<'a> = ArrayVec<VolatileSlice<'a>, SLOTS_ACCEPTED>;

/// Returns the rest of a packet in its pages, or `None` if one of them is not mapped.
fn rest<'a>(pages: Pages<'a>, packet: &Outgoing<'_>) -> Option<Rest<'a>> {
    let (mut found, mut rest) = (Rest::new(), packet.rest());
    while let Some(TxFragment { gref, offset, size, .. }) = rest.take(usize::MAX) {
        found.try_push(pages.to_read(GrantRef(gref), offset, size)?).ok()?;
    }
    Some(found)
}

impl InPlace<'_> {
    /// Fetches packets whose pages are not all mapped. Returns the bits of those packets, by
    /// number. Ends those that cannot be read.
    fn fetch(
        &mut self,
        batch: &mut TxBatch,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<u64, VifError> {
        let (mut gather, mut fetched, mut pieces) = (Gather::default(), 0, 0);
        for packet in batch.all_outgoing(HEAD).filter(|packet| packet.stays(COPIED)) {
            match buffers.pages().and_then(|pages| rest(pages, &packet)) {
                Some(rest) => pieces += rest.len(),
                None => {
                    fetched |= 1 << packet.number();
                    gather.add(packet.number(), &packet, 0..packet.len(), packet.at(), arena);
                }
            }
        }
        buffers.found(pieces);
        if fetched != 0 {
            self.pause.0 = PAUSE;
            gather.fetch(buffers, arena, |number| batch.end_unread(number, stats))?;
        }
        Ok(fetched)
    }

    /// Hands a packet to the port, its rest in its pages.
    fn send_in_place(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        buffers: &mut Buffers,
        tally: &mut Tally<'_>,
    ) -> Result<(), VifError> {
        let Some(rest) = buffers.pages().and_then(|pages| rest(pages, packet)) else {
            return Err(VifError::Internal("a page was unmapped within a turn"));
        };
        // The port may need room for the whole frame, where the head lies now.
        let mut head = [0; HEAD];
        let head = &mut head[..packet.private()];
        head.copy_from_slice(packet.head(arena));
        let room = &mut arena[packet.at()..packet.at() + packet.len()];
        let sent = self.sink.port.send_split(&SplitFrame::new(head, &rest), packet.offload(), room);
        tally.said(sent, packet.len())
    }
}

impl Sink for InPlace<'_> {
    #[inline]
    fn limits(&self) -> Limits {
        Limits { in_place: COPIED, slots: SLOTS, ..self.sink.limits() }
    }

    #[inline]
    fn send_frames(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        self.sink.send_frames(arena, frames, stats)
    }

    fn send(
        &mut self,
        batch: &mut TxBatch,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let fetched = self.fetch(batch, arena, buffers, stats)?;
        // Packets keep their order: those before a packet in place go first, merged.
        let mut frames = ArrayVec::<FramePlace, BURST>::new();
        let mut tally = Tally::new(stats);
        for packet in batch.all_outgoing(HEAD) {
            if !packet.stays(COPIED) || fetched >> packet.number() & 1 != 0 {
                // A burst at most.
                frames.extend(batch.packets.get(packet.number()).map(Taken::place));
                continue;
            }
            if !frames.is_empty() {
                self.send_frames(arena, &frames, stats)?;
                frames.clear();
            }
            self.send_in_place(&packet, arena, buffers, &mut tally)?;
        }
        match frames.is_empty() {
            true => Ok(self.sink.port.flush()?),
            false => self.send_frames(arena, &frames, stats),
        }
    }
}
