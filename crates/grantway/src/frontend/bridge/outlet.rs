//! Frames from the vif, on their way to the port.

use super::{FILL, HEAD, Tally, Trouble};
use arrayvec::ArrayVec;
use grantway_command::control::nanoseconds;
use grantway_frontend::{Queue, RxFrame, VolatileSlice};
use grantway_netif::Offload;
use grantway_netif::slots::rx::SLOTS_ACCEPTED;
use grantway_ports::{
    BURST, FrameMeta, FramePlace, PageAligned, Port, PortError, RECV_BUFFER, SentBurst, SplitFrame,
    uptime,
};
use grantway_vector::Merger;

/// Longest large frame that is copied as a whole, in bytes. For a TAP, pages are not cheaper up to
/// this length, and cost more up to 4 KiB (`bench/log.md`, "Received pages lent to a TAP").
const COPIED: usize = 8192;

/// Returns true if it pays to read a frame in its pages.
fn is_large(len: usize, offload: Offload) -> bool {
    len > COPIED && offload.gso.is_some()
}

/// The way to the port. Frames are copied out of the vif's pages, merged, and sent in bursts. If
/// the port can read pages in place, large frames stay there: their first bytes are copied and
/// judged, and the backend may write the others meanwhile. While no large frames come, all frames
/// are copied, since this is quicker for short ones.
///
/// A page is lent for one call of the port. A burst ends once a quarter of the ring's pages was
/// lent. Free pages are posted again once there are as many. So lending keeps no page, even if the
/// port is slow.
pub(super) struct Outlet {
    /// Copied frames.
    arena: PageAligned,
    arrived: Vec<FramePlace>,
    /// Merges segments and datagrams, if the port wants large frames.
    merger: Option<Merger>,
    /// True if the port reads large frames in the vif's pages.
    in_place: bool,
    /// True if the last burst had a large frame.
    large: bool,
}

impl Outlet {
    /// Allocates the arena. Segments and datagrams are merged if `merge` is true. The port reads
    /// large frames in the vif's pages if `in_place` is true.
    pub fn new(merge: bool, in_place: bool) -> Self {
        Self {
            arena: PageAligned::new(FILL + RECV_BUFFER),
            arrived: Vec::with_capacity(BURST),
            merger: merge.then(|| Merger::new(|| nanoseconds(uptime()))),
            in_place,
            large: false,
        }
    }

    /// Moves at most a burst from the vif to the port. Returns true if a frame moved.
    pub fn turn(
        &mut self,
        queue: &mut Queue,
        port: &mut dyn Port,
        tally: &mut Tally,
    ) -> Result<bool, Trouble> {
        self.arrived.clear();
        let moved = match self.in_place && self.large {
            true => self.take_lent(queue, port, tally)?,
            false => self.take_copies(queue)?,
        };
        if moved == 0 {
            return Ok(false);
        }
        self.send_copies(port, tally)?;
        port.flush()?;
        queue.count_turn();
        queue.repost()?;
        Ok(true)
    }

    /// Copies a burst of frames. Returns their number.
    fn take_copies(&mut self, queue: &mut Queue) -> Result<usize, Trouble> {
        let (arrived, mut large) = (&mut self.arrived, false);
        let moved = queue.recv_burst(&mut self.arena, |at, frame| {
            let meta = FrameMeta { len: frame.len, offload: frame.offload };
            large |= is_large(meta.len, meta.offload);
            arrived.push(FramePlace { at, meta });
        })?;
        // A ring on which nothing is says nothing of what comes next.
        self.large = if moved > 0 { large } else { self.large };
        Ok(moved)
    }

    /// Takes a burst of lent frames. Sends large ones and those before them, and copies the others.
    /// Returns their number.
    fn take_lent(
        &mut self,
        queue: &mut Queue,
        port: &mut dyn Port,
        tally: &mut Tally,
    ) -> Result<usize, Trouble> {
        let (mut at, mut large, mut sent) = (0, false, Ok(()));
        let moved = queue.recv_lent_burst(|frame| {
            large |= is_large(frame.len(), frame.offload());
            // Frames behind a fault are lost with the port.
            if sent.is_ok() {
                sent = self.take(&frame, &mut at, port, tally);
            }
        })?;
        sent?;
        self.large = large || moved == 0;
        Ok(moved)
    }

    /// Sends a large frame in place, behind the frames before it, or copies a frame to `at`.
    fn take(
        &mut self,
        frame: &RxFrame<'_>,
        at: &mut usize,
        port: &mut dyn Port,
        tally: &mut Tally,
    ) -> Result<(), PortError> {
        let len = frame.len();
        // A frame that was copied already has no pages.
        let large = is_large(len, frame.offload()) && frame.bytes().is_none();
        // The arena is longer than any frame.
        if large || self.arena.len() - *at < len {
            self.send_copies(port, tally)?;
            *at = 0;
        }
        if large {
            return self.send_in_place(frame, port, tally);
        }
        let copied = frame.copy_to(&mut self.arena[*at..*at + len]);
        let meta = FrameMeta { len: copied, offload: frame.offload() };
        self.arrived.push(FramePlace { at: *at, meta });
        *at = (*at + len).next_multiple_of(64);
        Ok(())
    }

    /// Sends a frame of which only the first bytes are copied. The arena has no other frames.
    fn send_in_place(
        &mut self,
        frame: &RxFrame<'_>,
        port: &mut dyn Port,
        tally: &mut Tally,
    ) -> Result<(), PortError> {
        let mut head = [0; HEAD];
        let private = frame.copy_to(&mut head);
        // A packet has no more slots.
        let rest: ArrayVec<VolatileSlice<'_>, SLOTS_ACCEPTED> =
            frame.rest(private).take(SLOTS_ACCEPTED).collect();
        let split = SplitFrame::new(&head[..private], &rest);
        let answer = port.send_split(&split, frame.offload(), &mut self.arena);
        let mut sent = SentBurst::default();
        sent.count(answer, 1, split.len())?;
        tally.in_pages.rx_frames += sent.taken as u64;
        tally.in_pages.rx_bytes += sent.bytes as u64;
        tally.sent(&sent);
        Ok(())
    }

    /// Sends the copied frames.
    fn send_copies(&mut self, port: &mut dyn Port, tally: &mut Tally) -> Result<(), PortError> {
        if self.arrived.is_empty() {
            return Ok(());
        }
        let sent = match &mut self.merger {
            Some(merger) => merger.send_burst(port, &mut self.arena, &self.arrived)?,
            None => port.send_burst(&self.arena, &self.arrived)?,
        };
        tally.sent(&sent);
        self.arrived.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
