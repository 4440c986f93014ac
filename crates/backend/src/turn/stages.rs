//! Stages of a turn between a vif and its sink or port.

use crate::layout::BURST;
use crate::policy::Buffers;
use crate::state::shared::QueueState;
use crate::state::stats::VifStats;
use crate::turn::batch::TxBatch;
use crate::turn::lists::{Lists, UPLINK, count_dropped};
use arrayvec::ArrayVec;
use grantway_netif::tx::status;
use grantway_ports::FramePlace;
use grantway_vector::{PortId, Verdict};
use std::time::Instant;

/// The stages that a turn's packets pass on their way from the guest.
pub(crate) struct Stages<'a, 'b, S> {
    /// Bring bytes into private memory.
    pub buffers: &'a mut Buffers,
    /// Rules that decide which packets are sent on, if there are any.
    pub rules: Option<&'a mut Filter<'b>>,
    /// Takes the packets.
    pub sink: &'a mut S,
    /// State that the vif's queues share.
    pub shared: &'a QueueState,
}

/// The rules between a vif and its own port, which to them is the uplink.
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

    /// Returns true if the frame of this number reaches the guest.
    pub fn reaches_guest(&self, frame: u8) -> bool {
        self.lists.verdict(frame) == Verdict::To(self.id)
    }

    /// Takes frames to the port, all of each in private memory, through the graph. Returns those
    /// that reach it.
    pub fn run_to_port(
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

    /// Takes packets to the port through the graph, of each of which at most `private` bytes are
    /// private, and ends those that do not reach it.
    pub fn judge(
        &mut self,
        batch: &mut TxBatch,
        private: usize,
        arena: &mut [u8],
        stats: &VifStats,
    ) {
        let Self { lists, id, now } = self;
        lists.run_heads(batch, private, arena, (*id, Some(UPLINK)), *now);
        let going = batch.packets.iter_mut().enumerate().filter(|(_, taken)| taken.goes_on());
        for (number, taken) in going {
            // A packet that is in no list goes nowhere.
            let frame = lists.frame_of(number);
            let verdict = frame.map_or(Verdict::Open, |frame| lists.verdict(frame));
            if verdict != Verdict::To(UPLINK) {
                count_dropped(stats, verdict, 1);
                taken.end(status::OKAY);
            }
        }
    }
}
