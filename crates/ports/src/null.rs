//! The sink that counts.

use std::os::fd::BorrowedFd;

use grantway_netif::Offload;

use crate::port::{Counters, FrameMeta, Port, PortError, SendError};
use crate::split::SplitFrame;

/// Takes every frame, counts it and forgets it; never has one to give.
#[derive(Debug, Default)]
pub struct Null {
    counters: Counters,
}

impl Null {
    /// A sink that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    fn recv(&mut self, _: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        Ok(None)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn always_ready(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "null"
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn max_queues(&self) -> u32 {
        u32::MAX
    }

    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Self::new()))
    }
}
