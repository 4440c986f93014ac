//! A seat at the backend's own bridge.

use std::os::fd::BorrowedFd;

use grantway_netif::Offload;

use crate::port::{Counters, DropReason, FrameMeta, Port, PortError, SendError};

/// Says that the vif is on the backend's own bridge, which passes frames from
/// guest to guest by itself: this port has none to give, and takes none.
#[derive(Debug, Default)]
pub struct Member {
    counters: Counters,
}

impl Member {
    /// A seat.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Port for Member {
    fn send(&mut self, _: &[u8], _: Offload) -> Result<(), SendError> {
        Err(self.counters.refuse(DropReason::Rejected))
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
        "bridge"
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

    fn is_bridged(&self) -> bool {
        true
    }
}
