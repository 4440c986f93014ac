//! Frames that cross in bursts through private memory.

use super::intake::Intake;
use super::{Carry, Ends, Trouble};
use arrayvec::ArrayVec;
use grantway_command::control::nanoseconds;
use grantway_frontend::{SendError, TxFrame};
use grantway_ports::{BURST, FrameMeta, FramePlace, PageAligned, RECV_BUFFER, uptime};
use grantway_vector::Merger;

/// Bytes of frames that one burst may fill in either direction, without the room of the
/// last frame.
const FILL: usize = 256 * 1024;

/// One burst each way, copied through an arena.
pub(super) struct Bursts {
    /// Arena of the frames that were read from the port. Nobody else writes to it.
    outgoing: PageAligned,
    /// The port's note of what it left there.
    kept: usize,
    burst: ArrayVec<FramePlace, BURST>,
    /// First frame of `burst` that waits for room on the ring.
    next: usize,
    /// Arena of the frames from the vif.
    incoming: PageAligned,
    arrived: Vec<FramePlace>,
    /// Merges segments and datagrams from the vif, if the port wants large frames.
    merger: Option<Merger>,
    /// Large frames from the port, if it writes them to the vif's pages.
    intake: Option<Intake>,
}

impl Bursts {
    /// Allocates both arenas. Segments and datagrams from the vif are merged if `merge` is true.
    /// Large frames of the port are written to the pages that the vif sends them from if `in_place`
    /// is true.
    pub(super) fn new(merge: bool, in_place: bool) -> Self {
        Self {
            outgoing: PageAligned::new(FILL + RECV_BUFFER),
            kept: 0,
            burst: ArrayVec::new(),
            next: 0,
            incoming: PageAligned::new(FILL + RECV_BUFFER),
            arrived: Vec::with_capacity(BURST),
            merger: merge.then(|| Merger::new(|| nanoseconds(uptime()))),
            intake: in_place.then(Intake::default),
        }
    }
}

impl Carry for Bursts {
    fn transmit(&mut self, ends: &mut Ends) -> Result<bool, Trouble> {
        // The whole burst is read before its first frame is sent: writes to private memory
        // do not delay the writes to memory that the backend reads.
        if self.next == self.burst.len() {
            if let Some(intake) = self.intake.as_mut().filter(|intake| intake.expects_large()) {
                return intake.turn(ends, &mut self.outgoing);
            }
            self.burst.clear();
            self.next = 0;
            ends.port.recv_own_burst(&mut self.outgoing, &mut self.kept, &mut self.burst)?;
            let Some(last) = self.burst.last() else { return Ok(false) };
            if let Some(intake) = &mut self.intake {
                intake.saw(last.meta);
            }
        }
        let mut moved = 0;
        // A frame that the backend does not accept is dropped and counted, and the next one is
        // tried.
        while let Some(left) = self.burst.get(self.next..).filter(|left| !left.is_empty()) {
            let frame = |place: &FramePlace| TxFrame {
                bytes: place.bytes(&self.outgoing),
                offload: place.meta.offload,
            };
            let (sent, why_not) = ends.queue.send_burst(left, frame);
            moved += sent;
            self.next += sent;
            match why_not {
                None => {}
                // The rest waits if no slot came back.
                Some(SendError::Full) => {
                    ends.queue.flush()?;
                    if ends.queue.reap()? == 0 {
                        break;
                    }
                }
                Some(SendError::Length { .. }) => {
                    ends.drops.tx_length += 1;
                    self.next += 1;
                }
                Some(SendError::NotOffered { .. }) => {
                    ends.drops.tx_not_offered += 1;
                    self.next += 1;
                }
            }
        }
        if moved > 0 {
            ends.queue.count_turn();
            ends.queue.flush()?;
        }
        Ok(moved > 0)
    }

    fn receive(&mut self, ends: &mut Ends) -> Result<bool, Trouble> {
        self.arrived.clear();
        let moved = ends.queue.recv_burst(&mut self.incoming, |at, frame| {
            let meta = FrameMeta { len: frame.len, offload: frame.offload };
            self.arrived.push(FramePlace { at, meta });
        })?;
        if moved == 0 {
            return Ok(false);
        }
        let (port, arrived) = (ends.port.as_mut(), &self.arrived);
        let sent = match &mut self.merger {
            Some(merger) => merger.send_burst(port, &mut self.incoming, arrived)?,
            None => port.send_burst(&self.incoming, arrived)?,
        };
        ends.merged += sent.merged as u64;
        ends.drops.rx_busy += sent.busy as u64;
        ends.drops.rx_port += sent.dropped as u64;
        ends.port.flush()?;
        ends.queue.count_turn();
        ends.queue.repost()?;
        Ok(true)
    }

    fn is_waiting(&self) -> bool {
        let waits = |intake: &Intake| intake.is_waiting();
        self.next < self.burst.len() || self.intake.as_ref().is_some_and(waits)
    }

    fn forget_waiting(&mut self) {
        self.next = self.burst.len();
        if let Some(intake) = &mut self.intake {
            intake.forget_waiting();
        }
    }
}
