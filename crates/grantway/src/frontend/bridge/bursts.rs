//! Frames that cross in bursts through private memory.

use super::intake::Intake;
use super::outlet::Outlet;
use super::{Carry, Ends, FILL, Trouble};
use arrayvec::ArrayVec;
use grantway_frontend::{SendError, TxFrame};
use grantway_ports::{BURST, FramePlace, PageAligned, RECV_BUFFER};

/// One burst each way, copied through an arena.
pub(super) struct Bursts {
    /// Arena of the frames that were read from the port. Only the port writes to it.
    outgoing: PageAligned,
    /// Number of frames that the port left in the arena.
    kept: usize,
    burst: ArrayVec<FramePlace, BURST>,
    /// First frame of `burst` that waits for room on the ring.
    next: usize,
    /// Frames from the vif.
    outlet: Outlet,
    /// Large frames from the port, if it writes them to the vif's pages.
    intake: Option<Intake>,
}

impl Bursts {
    /// Allocates the arena for frames from the port. If `in_place` is true, the port writes large
    /// frames to the pages from which the vif sends them. Frames from the vif use `outlet`.
    pub(super) fn new(in_place: bool, outlet: Outlet) -> Self {
        Self {
            outgoing: PageAligned::new(FILL + RECV_BUFFER),
            kept: 0,
            burst: ArrayVec::new(),
            next: 0,
            outlet,
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
                    ends.tally.drops.tx_length += 1;
                    self.next += 1;
                }
                Some(SendError::NotOffered { .. }) => {
                    ends.tally.drops.tx_not_offered += 1;
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
        self.outlet.turn(&mut ends.queue, ends.port.as_mut(), &mut ends.tally)
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
