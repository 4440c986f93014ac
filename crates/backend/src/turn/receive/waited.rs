//! Frames that find no page wait for one, and go before all that come after them.

use super::{Accepted, Incoming, Receive};
use crate::VifError;
use crate::journal::JournalMemory;
use crate::layout::{BURST, place};
use crate::policy::Buffers;
use crate::state::shared::QueueState;
use crate::state::stats::VifStats;
use crate::state::trace::{TraceKind, TraceRing};
use crate::turn::Moved;
use crate::turn::plain::is_short;
use crate::turn::scratch::Scratch;
use crate::turn::waiting::Waiter;
use crate::turn::work::time_to_give;
use grantway_netif::slots::rx::RxLayout;
use grantway_ports::{FrameMeta, FramePlace};
use grantway_ring::RingMemory;
use std::time::Instant;

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    /// Lets bytes wait that were a frame, or are part of what came of it: what is left to
    /// be done to them is said by `of`.
    pub(super) fn wait(
        &mut self,
        bytes: &[u8],
        layout: RxLayout,
        of: &Incoming,
        shared: &QueueState,
    ) -> Accepted {
        let &Incoming { origin, offload, .. } = of;
        let (from, flooded) = (origin.sender(), origin.flooded().is_some());
        if self.waiting.has_room_for(bytes.len(), flooded) {
            if shared.tap.is_on() && self.waiting.is_empty() {
                shared.tap.event(self.queue, TraceRing::Receive, TraceKind::RingFull);
            }
            let meta = FrameMeta { len: bytes.len(), offload };
            self.waiting.push(Waiter { meta, layout, from, flooded }, bytes, || shared.now());
            return Accepted::Short;
        }
        VifStats::add(&shared.stats.rx_dropped_drained, 1);
        Accepted::Dropped
    }

    /// Returns the first waiting frame, with its bytes at the start of `room`, if there are pages
    /// for it now.
    pub(super) fn waited(
        &mut self,
        room: &mut [u8],
        shared: &QueueState,
    ) -> Result<Option<Waiter>, VifError> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let posted = self.posted()?;
        let waiter = self.waiting.pop(posted, room, || shared.now());
        if waiter.is_some() {
            self.tell_drained(shared);
        }
        Ok(waiter)
    }

    /// Gives the guest the first waiting frames as one burst, as long as each fits one posted page.
    /// Returns `None` if there is no such frame.
    #[inline(never)]
    pub(super) fn turn_waited(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        now: Instant,
        shared: &QueueState,
    ) -> Result<Option<Moved>, VifError> {
        if self.waiting.is_empty()
            || !self.carried.is_empty()
            || self.steers.are_set(&shared.steering)
            || self.guest.headroom != 0
        {
            return Ok(None);
        }
        let Scratch { arena, rx_plain: plain, waited_from, .. } = scratch;
        let posted = self.posted()?.min(BURST as u32);
        let mut at = 0;
        plain.frames.clear();
        for left in (1..=posted).rev() {
            let first = self.waiting.first().map(|waiter| FramePlace { at, meta: waiter.meta });
            let Some(frame) = first.filter(|frame| at <= Scratch::FILL && is_short(frame)) else {
                break;
            };
            let Some(waiter) = self.waiting.pop(left, &mut arena[at..], || now) else { break };
            plain.frames.push(frame);
            let len = waiter.meta.len;
            waited_from.extend(waiter.from.map(|from| (from, time_to_give(len))));
            at = place((at + len).next_multiple_of(64), 0, len);
        }
        let count = plain.frames.len();
        if count == 0 {
            return Ok(None);
        }
        self.tell_drained(shared);
        match self.store_short(plain, arena, buffers, shared)? {
            true => {
                let call_at = self.waiting.call_at();
                Ok(Some(Moved { packets: count, notify: false, call_at }))
            }
            false => Err(VifError::Internal("a frame of one page is of another kind")),
        }
    }

    /// Records in the trace that the ring has room again, and that the port's reader continues at
    /// once.
    fn tell_drained(&self, shared: &QueueState) {
        if shared.tap.is_on() {
            for kind in [TraceKind::RingDrained, TraceKind::Woken] {
                shared.tap.event(self.queue, TraceRing::Receive, kind);
            }
        }
    }
}
