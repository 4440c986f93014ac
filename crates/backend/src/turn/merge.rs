//! The way to a port that wants TCP segments merged.

use crate::VifError;
use crate::layout::BURST;
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::outlet::{Outgoing, Outlet, Tally, count};
use arrayvec::ArrayVec;
use grantway_netif::tx::status;
use grantway_ports::{FrameMeta, FramePlace, Port};
use grantway_vector::Merger;
use std::mem::take;

/// An outlet that gives the port all packets of a turn at once, at its end.
pub(crate) struct Merged<'a> {
    port: &'a mut dyn Port,
    merger: &'a mut Merger,
    stats: &'a VifStats,
    /// Those that were taken one by one.
    frames: ArrayVec<FramePlace, BURST>,
}

impl<'a> Merged<'a> {
    pub fn new(port: &'a mut dyn Port, merger: &'a mut Merger, stats: &'a VifStats) -> Self {
        Self { port, merger, stats, frames: ArrayVec::new() }
    }
}

impl Outlet for Merged<'_> {
    const WHOLE: usize = <&mut (dyn Port + 'static)>::WHOLE;

    fn send_whole(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        count(self.merger.send_burst(self.port, arena, frames)?, stats);
        Ok(self.port.flush()?)
    }

    fn head(&self) -> usize {
        usize::MAX
    }

    fn send(
        &mut self,
        packet: &Outgoing<'_>,
        _: &mut [u8],
        _: &mut Buffers,
        _: &mut Tally<'_>,
    ) -> Result<i16, VifError> {
        let meta = FrameMeta { len: packet.len(), offload: packet.offload() };
        // A turn has no more packets than that.
        let _ = self.frames.try_push(FramePlace { at: packet.at, meta });
        Ok(status::OKAY)
    }

    fn finish(&mut self, arena: &mut [u8], _: &mut Buffers, _: &mut [i16]) -> Result<(), VifError> {
        let frames = take(&mut self.frames);
        self.send_whole(arena, &frames, self.stats)
    }
}
