//! A turn by rules: frames from the port go through the graph, by lists, before they
//! are laid out.

use super::{Frame, Receive};
use crate::VifError;
use crate::journal::JournalMemory;
use crate::layout::{BURST, place};
use crate::policy::Buffers;
use crate::state::shared::Shared;
use crate::state::stats::VifStats;
use crate::turn::filter::Filter;
use crate::turn::scratch::Scratch;
use crate::turn::taken::Moved;
use arrayvec::ArrayVec;
use grantway_ports::{FrameMeta, FramePlace, Port};
use grantway_ring::RingMemory;

/// Pages that the longest frame takes, with two extras; and one page, with them.
const SLOTS_LONGEST: u32 = 19;
const SLOTS_OF_PAGE: u32 = 3;

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    /// Moves at most a burst from the port to the ring.
    pub(crate) fn turn_by_rules(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        port: &mut dyn Port,
        filter: &mut Filter<'_>,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        scratch.waited_from.clear();
        let now = self.look_at_the_time(port, shared)?;
        if let Some(now) = now
            && let Some(moved) = self.turn_waited(scratch, buffers, now, shared)?
        {
            return Ok(moved);
        }
        let Scratch { arena, delivery, .. } = scratch;
        let arena = &mut arena[..];
        delivery.clear();
        let (mut taken, mut at) = (0, 0);
        while taken < BURST && at <= Scratch::FILL {
            let Some(waiter) = self.waited(&mut arena[at..], now, shared)? else { break };
            let len = waiter.meta.len;
            self.lay_out(&waiter.layout, at, len, None, delivery)?;
            taken += 1;
            at = place((at + len).next_multiple_of(64), 0, len);
        }
        let mut frames: ArrayVec<FramePlace, BURST> = ArrayVec::new();
        while taken < BURST && at <= Scratch::FILL && self.waiting.is_empty() {
            let most = self.list_most()?.min(BURST - taken);
            frames.clear();
            while frames.len() < most && at <= Scratch::FILL {
                let Some(frame) = self.next_frame(arena, at, port, shared)? else { break };
                let Frame { len, offload, passed, .. } = frame;
                at = place((at + len).next_multiple_of(64), 0, len);
                taken += 1;
                if passed {
                    // The queue that passed it on has asked.
                    self.accept(frame, arena, delivery, shared)?;
                    break;
                }
                frames.push(FramePlace { at: frame.at, meta: FrameMeta { len, offload } });
            }
            filter.run_from_port(arena, &frames);
            for (number, &FramePlace { at: place, meta }) in (0..).zip(&frames) {
                if !filter.reaches_guest(number) {
                    VifStats::add(&shared.stats.rx_dropped_rules, 1);
                    continue;
                }
                let frame = Frame::from_port(place, meta);
                if self.pass_on(frame, arena, shared) {
                    continue;
                }
                // Where there is no room for segments they wait, one by one.
                if at <= Scratch::FILL && self.is_to_be_cut(&frame, arena) {
                    at = self.cut(frame, at, arena, delivery, shared)?;
                } else {
                    self.accept(frame, arena, delivery, shared)?;
                }
            }
            if frames.is_empty() {
                break;
            }
        }
        let notify = self.finish(delivery, arena, buffers, None, shared)?;
        Ok(Moved { packets: taken, notify, call_at: self.waiting.call_at() })
    }

    /// Frames of the next list: as many as find pages, whatever their lengths, so that
    /// all others stay in the port's own queue; one where there are few pages.
    fn list_most(&mut self) -> Result<usize, VifError> {
        let each = if self.guest.scatter_gather { SLOTS_LONGEST } else { SLOTS_OF_PAGE };
        // At most a ring of them.
        Ok((self.posted()? / each).max(1) as usize)
    }
}
