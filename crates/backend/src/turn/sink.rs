//! Sinks take a guest's packets: a port, a port that reads the guest's pages
//! (`turn::transmit::mapped`), or the bridge (`bridge::send`).

use crate::VifError;
use crate::layout::{BURST, RING_SLOTS};
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::batch::{Limits, TxBatch};
use crate::turn::stretches::Stretches;
use arrayvec::ArrayVec;
use grantway_ports::{FramePlace, Port, SendError, SentBurst};
use grantway_ring::PAGE_SIZE;
use grantway_vector::Merger;
use std::ops::Deref;

/// Takes the packets of one turn. The guest does not learn what happens to a packet behind the
/// sink.
pub(crate) trait Sink {
    /// Returns the sink's demands on the packets of a turn.
    fn limits(&self) -> Limits;

    /// Returns true if a packet that begins with `head` may go to all receivers.
    fn may_flood(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// Takes frames that are wholly in private memory.
    ///
    /// # Errors
    ///
    /// The vif cannot continue.
    fn send_frames(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError>;

    /// Takes the packets of a turn that are sent on. Their first [`Limits::private`] bytes are in
    /// private memory. Ends packets that cannot be read.
    ///
    /// # Errors
    ///
    /// The errors of [`Sink::send_frames`].
    fn send(
        &mut self,
        batch: &mut TxBatch,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError>;

    /// Returns the stretches that the sink maps. Answers wait while any page is mapped.
    fn stretches(&mut self) -> Option<&mut Stretches> {
        None
    }
}

/// A port that takes frames from private memory, merged if it wants that.
pub(crate) struct ToPort<'a> {
    pub port: &'a mut dyn Port,
    /// Merges TCP segments and UDP datagrams for the port.
    pub merger: Option<&'a mut Merger>,
}

impl Sink for ToPort<'_> {
    #[inline]
    fn limits(&self) -> Limits {
        let (private, in_place) = (usize::MAX, usize::MAX);
        Limits { private, whole: PAGE_SIZE, in_place, slots: RING_SLOTS, reach: 0, cuts: false }
    }

    #[inline(always)]
    fn send_frames(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let sent = match &mut self.merger {
            None => self.port.send_burst(arena, frames),
            Some(merger) => merger.send_burst(self.port, arena, frames),
        };
        count(sent?, stats);
        Ok(self.port.flush()?)
    }

    fn send(
        &mut self,
        batch: &mut TxBatch,
        arena: &mut [u8],
        _: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        // A burst at most.
        let frames: ArrayVec<FramePlace, BURST> = batch.frames().collect();
        self.send_frames(arena, &frames, stats)
    }
}

/// Adds what a port said of a burst to the vif's counters.
#[inline]
fn count(sent: SentBurst, stats: &VifStats) {
    VifStats::add(&stats.tx_packets, sent.taken as u64);
    VifStats::add(&stats.tx_bytes, sent.bytes as u64);
    if sent.merged + sent.dropped + sent.busy > 0 {
        VifStats::add(&stats.tx_merged, sent.merged as u64);
        VifStats::add(&stats.tx_dropped_port, sent.dropped as u64);
        VifStats::add(&stats.tx_dropped_busy, sent.busy as u64);
    }
}

/// Counts the packets of one turn that were taken, and adds them to the vif's
/// counters when it goes: others write those, too, and each addition costs.
pub(crate) struct Tally<'a> {
    stats: &'a VifStats,
    packets: u64,
    bytes: u64,
}

impl<'a> Tally<'a> {
    pub fn new(stats: &'a VifStats) -> Self {
        Self { stats, packets: 0, bytes: 0 }
    }

    /// Counts a packet of `len` bytes from the guest as taken.
    #[inline]
    pub fn sent(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }

    /// Counts the port's result for a packet of `len` bytes.
    ///
    /// # Errors
    ///
    /// The port is of no more use.
    #[inline]
    pub fn said(&mut self, said: Result<(), SendError>, len: usize) -> Result<(), VifError> {
        match said {
            Ok(()) => self.sent(len),
            Err(SendError::Dropped(_)) => VifStats::add(&self.tx_dropped_port, 1),
            Err(SendError::Busy) => VifStats::add(&self.tx_dropped_busy, 1),
            Err(SendError::Failed(e)) => return Err(e.into()),
        }
        Ok(())
    }
}

impl Deref for Tally<'_> {
    type Target = VifStats;

    fn deref(&self) -> &VifStats {
        self.stats
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        VifStats::add(&self.stats.tx_packets, self.packets);
        VifStats::add(&self.stats.tx_bytes, self.bytes);
    }
}
