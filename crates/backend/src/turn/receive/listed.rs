//! A turn whose frames may be of any kind. Those that waited go first. Frames from the port are
//! taken by lists: each as long as its frames find pages, so that all others stay in the port's
//! own queue. By rules a list goes through the graph before its frames are laid out.

use super::{Incoming, Origin, Receive};
use crate::VifError;
use crate::journal::JournalMemory;
use crate::layout::{BURST, place};
use crate::policy::Buffers;
use crate::state::shared::QueueState;
use crate::state::stats::VifStats;
use crate::turn::Moved;
use crate::turn::delivery::Delivery;
use crate::turn::scratch::Scratch;
use crate::turn::stages::Filter;
use crate::turn::waiting::Waiter;
use crate::turn::work::time_to_give;
use arrayvec::ArrayVec;
use grantway_ports::{FrameMeta, FramePlace, Port};
use grantway_ring::RingMemory;

/// Pages that the longest frame takes, with two extras; and one page, with them.
const SLOTS_LONGEST: u32 = 19;
const SLOTS_OF_PAGE: u32 = 3;

/// A list of frames in the arena, and what comes behind it.
#[derive(Default)]
struct List {
    /// Frames from the port.
    frames: ArrayVec<FramePlace, BURST>,
    /// The last frame, if another queue of the vif passed it on.
    passed: Option<Incoming>,
    /// Start of the arena's free room.
    at: usize,
}

impl List {
    /// Marks `len` more bytes as used.
    fn fill(&mut self, len: usize) {
        self.at = place((self.at + len).next_multiple_of(64), 0, len);
    }

    fn has_room(&self) -> bool {
        self.at <= Scratch::FILL
    }
}

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    /// Moves at most a burst: what waited, then what the port gives.
    pub(super) fn turn_listed(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        port: &mut dyn Port,
        mut rules: Option<&mut Filter<'_>>,
        shared: &QueueState,
    ) -> Result<Moved, VifError> {
        let Scratch { arena, delivery, waited_from, .. } = scratch;
        let arena = &mut arena[..];
        delivery.clear();
        let (mut taken, mut list) = (0, List::default());
        while taken < BURST && list.has_room() {
            let Some(waiter) = self.waited(&mut arena[list.at..], shared)? else { break };
            let Waiter { layout, meta, from, .. } = waiter;
            self.lay_out(&layout, list.at, meta.len, None, delivery)?;
            waited_from.extend(from.map(|from| (from, time_to_give(meta.len))));
            list.fill(meta.len);
            taken += 1;
        }
        while taken < BURST && list.has_room() && self.waiting.is_empty() {
            let most = self.list_most()?.min(BURST - taken);
            let listed = self.take_list(&mut list, most, arena, port, shared)?;
            if listed == 0 {
                break;
            }
            taken += listed;
            if let Some(rules) = &mut rules {
                rules.run_from_port(arena, &list.frames);
            }
            let frames = std::mem::take(&mut list.frames);
            for (number, &place) in (0..).zip(&frames) {
                match rules.as_ref().is_none_or(|rules| rules.reaches_guest(number)) {
                    true => {
                        let frame = Incoming::new(place, Origin::Port);
                        self.take_in(frame, &mut list.at, arena, delivery, shared)?;
                    }
                    false => VifStats::add(&shared.stats.rx_dropped_rules, 1),
                }
            }
            // The queue that passed it on has asked.
            if let Some(frame) = list.passed.take() {
                self.take_in(frame, &mut list.at, arena, delivery, shared)?;
            }
        }
        self.finish(delivery, arena, buffers, None, shared)?;
        Ok(Moved { packets: taken, notify: false, call_at: self.waiting.call_at() })
    }

    /// Returns the most frames of the next list: as many as find pages at any length, or one if
    /// there are few pages.
    fn list_most(&mut self) -> Result<usize, VifError> {
        let each = if self.guest.scatter_gather { SLOTS_LONGEST } else { SLOTS_OF_PAGE };
        // At most a ring of them.
        Ok((self.posted()? / each).max(1) as usize)
    }

    /// Takes at most `most` frames. Returns their number. A frame that is to be cut is the last,
    /// since it takes more pages than others, and room behind it. A frame that another queue passed
    /// on is the last, too.
    fn take_list(
        &mut self,
        list: &mut List,
        most: usize,
        arena: &mut [u8],
        port: &mut dyn Port,
        shared: &QueueState,
    ) -> Result<usize, VifError> {
        while list.frames.len() < most && list.has_room() {
            let Some(frame) = self.next_frame(arena, list.at, port, shared)? else { break };
            list.fill(frame.len);
            if frame.origin == Origin::Lane {
                list.passed = Some(frame);
                return Ok(list.frames.len() + 1);
            }
            let Incoming { at, len, offload, .. } = frame;
            list.frames.push(FramePlace { at, meta: FrameMeta { len, offload } });
            if self.is_to_be_cut(&frame, arena) {
                break;
            }
        }
        Ok(list.frames.len())
    }

    /// Passes a frame on to another queue, cuts it, or lays it out: what of it finds no pages
    /// waits for some. The arena is free from `at` on, before and after.
    #[inline]
    fn take_in(
        &mut self,
        frame: Incoming,
        at: &mut usize,
        arena: &mut [u8],
        delivery: &mut Delivery,
        shared: &QueueState,
    ) -> Result<(), VifError> {
        if self.pass_on(frame, arena, shared) {
            return Ok(());
        }
        if self.is_to_be_cut(&frame, arena) {
            *at = self.cut(frame, *at, arena, delivery, shared)?;
            return Ok(());
        }
        self.accept(frame, arena, delivery, shared).map(drop)
    }
}
