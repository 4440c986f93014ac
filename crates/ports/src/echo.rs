//! The port that gives back the frames that it was sent.

use std::collections::VecDeque;

use grantway_netif::{Checksum, Offload};
use grantway_ring::PAGE_SIZE;

use crate::port::{
    Counters, DropReason, FrameMeta, Port, PortCaps, PortControl, PortError, PortReport, Probe,
    Readiness, SendError,
};

/// Most bytes that wait to go back. With more, the port is busy.
const WAITING: usize = 1 << 20;

/// A port that gives each frame back unchanged, in order, from bounded memory.
#[derive(Debug, Default)]
pub struct Echo {
    waiting: VecDeque<(Vec<u8>, Offload)>,
    bytes: usize,
    /// Waiting frames that do not fit a page, or have work to be finished.
    unfinished: usize,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    counters: Counters,
}

impl Echo {
    /// Returns a port without frames.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// Returns true if a frame fits a page and has no unfinished work.
fn is_finished(frame: &[u8], offload: Offload) -> bool {
    frame.len() <= PAGE_SIZE && offload.gso.is_none() && offload.checksum != Checksum::Partial
}

impl Port for Echo {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        if self.bytes + frame.len() > WAITING {
            self.counters.busy += 1;
            return Err(SendError::Busy);
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        self.bytes += frame.len();
        self.unfinished += usize::from(!is_finished(frame, offload));
        self.waiting.push_back((buffer, offload));
        self.counters.count_sent(frame.len());
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        while let Some((frame, offload)) = self.waiting.pop_front() {
            let len = frame.len();
            self.bytes -= len;
            self.unfinished -= usize::from(!is_finished(&frame, offload));
            let room = buf.get_mut(..len).map(|room| room.copy_from_slice(&frame));
            self.spare.push(frame);
            if room.is_none() {
                self.counters.drop_one(DropReason::TooLong);
                continue;
            }
            self.counters.count_received(len);
            return Ok(Some(FrameMeta { len, offload }));
        }
        Ok(None)
    }

    fn readiness(&self) -> Readiness<'_> {
        match self.waiting.is_empty() {
            true => Readiness::Idle,
            false => Readiness::Now,
        }
    }

    fn caps(&self) -> PortCaps {
        let short = self.unfinished == 0;
        PortCaps { max_queues: u32::MAX, short, ..PortCaps::default() }
    }
}

impl PortControl for Echo {
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Self::new()))
    }
}

impl Probe for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::RECV_BUFFER;

    #[test]
    fn frames_come_back_in_order_and_as_they_were() {
        let (mut echo, mut buf) = (Echo::new(), vec![0; RECV_BUFFER]);
        assert!(!echo.readiness().is_now());
        let offload = Offload::default();
        for byte in 0..3u8 {
            echo.send(&vec![byte; 60 + usize::from(byte)], offload).unwrap();
        }
        assert!(echo.readiness().is_now());
        for byte in 0..3u8 {
            let len = echo.recv(&mut buf).unwrap().unwrap().len;
            assert_eq!(buf[..len], vec![byte; 60 + usize::from(byte)]);
        }
        assert!(echo.recv(&mut buf).unwrap().is_none() && !echo.readiness().is_now());
        assert_eq!((echo.report().counters.sent, echo.report().counters.received), (3, 3));
    }

    #[test]
    fn the_port_is_short_while_all_waiting_frames_are_finished_and_fit_a_page() {
        let (mut echo, mut buf) = (Echo::new(), vec![0; RECV_BUFFER]);
        let blank = Offload { checksum: Checksum::Partial, ..Offload::default() };
        echo.send(&[1; 4096], Offload::default()).unwrap();
        assert!(echo.caps().short);
        echo.send(&[1; 4097], Offload::default()).unwrap();
        echo.send(&[1; 60], blank).unwrap();
        for short in [false, false, true] {
            echo.recv(&mut buf).unwrap().unwrap();
            assert_eq!(echo.caps().short, short);
        }
    }

    #[test]
    fn waiting_frames_are_bounded_and_too_long_ones_are_dropped() {
        let mut echo = Echo::new();
        let (frame, offload) = (vec![1; 65_535], Offload::default());
        let taken = (0..100).take_while(|_| echo.send(&frame, offload).is_ok()).count();
        assert_eq!((taken, echo.report().counters.busy), (WAITING / 65_535, 1));
        assert!(echo.recv(&mut [0; 100]).unwrap().is_none());
        assert_eq!(echo.report().counters.dropped(DropReason::TooLong), taken as u64);
        assert!(echo.send(&frame, offload).is_ok(), "there is room again");
    }
}
