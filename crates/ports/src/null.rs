//! The port that counts frames and drops them.

use grantway_netif::Offload;

use crate::port::{
    Counters, FrameMeta, Port, PortCaps, PortControl, PortError, PortReport, Probe, Readiness,
    SendError,
};
use crate::split::SplitFrame;

/// A port that accepts each frame, counts it and drops it. It never returns a frame.
#[derive(Debug, Default)]
pub struct Null {
    counters: Counters,
}

impl Null {
    /// Returns a port that has seen no frame.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a frame that the caller skips in its place.
    #[inline]
    pub fn pass_over(&mut self, len: usize) {
        self.counters.count_sent(len);
    }
}

impl Port for Null {
    fn send(&mut self, frame: &[u8], _: Offload) -> Result<(), SendError> {
        self.counters.count_sent(frame.len());
        Ok(())
    }

    fn send_split(
        &mut self,
        frame: &SplitFrame<'_>,
        _: Offload,
        _: &mut [u8],
    ) -> Result<(), SendError> {
        self.counters.count_sent(frame.len());
        Ok(())
    }

    fn recv(&mut self, _: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        Ok(None)
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::Idle
    }

    fn caps(&self) -> PortCaps {
        PortCaps { max_queues: u32::MAX, ..PortCaps::default() }
    }
}

impl PortControl for Null {
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Self::new()))
    }
}

impl Probe for Null {
    fn name(&self) -> &str {
        "null"
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}
