//! The way between a vif and its own port, by rules.

use crate::VifError;
use crate::layout::BURST;
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::lists::{Lists, UPLINK, count_dropped};
use crate::turn::outlet::{Outgoing, Outlet, Tally};
use crate::turn::scratch::Scratch;
use arrayvec::ArrayVec;
use grantway_netif::tx::status;
use grantway_ports::FramePlace;
use grantway_vector::{PortId, Verdict};
use std::time::Instant;

/// What a vif's packets are to go by in a turn. To the rules its port is the uplink.
pub(crate) struct Filter<'a> {
    pub lists: &'a mut Lists,
    /// The vif.
    pub id: PortId,
    pub now: Instant,
}

impl Filter<'_> {
    /// Takes frames from the port, all of each in private memory, through the graph.
    pub fn run_from_port(&mut self, arena: &mut [u8], frames: &[FramePlace]) {
        let way = (UPLINK, Some(self.id));
        self.lists.run_whole(arena, frames, way, self.now);
    }

    /// Takes frames to the port, all of each in private memory, through the graph. Returns those
    /// that reach it.
    fn run_to_port(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> ArrayVec<FramePlace, BURST> {
        let Self { lists, id, now } = self;
        lists.run_whole(arena, frames, (*id, Some(UPLINK)), *now);
        let mut kept = ArrayVec::new();
        for (number, &place) in (0..).zip(frames) {
            match lists.verdict(number) {
                // No more than there were.
                Verdict::To(UPLINK) => kept.push(place),
                verdict => count_dropped(stats, verdict, 1),
            }
        }
        kept
    }

    /// Whether such a frame reaches the guest.
    pub fn reaches_guest(&self, frame: u8) -> bool {
        self.lists.verdict(frame) == Verdict::To(self.id)
    }
}

/// An outlet that is given only what reaches the port: all, where there are no rules.
pub(crate) struct Filtered<'a, 'b, O> {
    pub outlet: O,
    pub rules: &'a mut Option<Filter<'b>>,
}

impl<O: Outlet> Outlet for Filtered<'_, '_, O> {
    const WHOLE: usize = O::WHOLE;

    #[inline]
    fn send_whole(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        match self.rules {
            None => self.outlet.send_whole(arena, frames, stats),
            Some(rules) => {
                let kept = rules.run_to_port(arena, frames, stats);
                self.outlet.send_whole(arena, &kept, stats)
            }
        }
    }

    #[inline]
    fn head(&self) -> usize {
        self.outlet.head()
    }

    #[inline]
    fn has_enough(&self, slots: usize) -> bool {
        self.outlet.has_enough(slots)
    }

    fn prepare(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        if let Some(Filter { lists, id, now }) = self.rules {
            lists.run_heads(scratch, self.outlet.head(), (*id, Some(UPLINK)), *now);
        }
        self.outlet.prepare(scratch, buffers, stats)
    }

    #[inline]
    fn send(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &mut Tally<'_>,
    ) -> Result<i16, VifError> {
        let verdict = match self.rules {
            None => Verdict::To(UPLINK),
            Some(Filter { lists, .. }) => match lists.frame_of(packet.number) {
                Some(frame) => lists.verdict(frame),
                None => return Err(VifError::Internal("a packet that is in no list")),
            },
        };
        match verdict {
            Verdict::To(UPLINK) => self.outlet.send(packet, arena, buffers, stats),
            verdict => {
                count_dropped(stats, verdict, 1);
                Ok(status::OKAY)
            }
        }
    }

    #[inline]
    fn mapped(&self) -> usize {
        self.outlet.mapped()
    }

    #[inline]
    fn unmap(&mut self) {
        self.outlet.unmap();
    }

    #[inline]
    fn finish(
        &mut self,
        arena: &mut [u8],
        buffers: &mut Buffers,
        statuses: &mut [i16],
    ) -> Result<(), VifError> {
        self.outlet.finish(arena, buffers, statuses)
    }
}
