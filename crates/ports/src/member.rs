//! The port of a vif that is on the backend's own bridge.

use grantway_netif::Offload;

use crate::port::{
    Counters, DropReason, FrameMeta, Port, PortCaps, PortControl, PortError, PortReport, Probe,
    Readiness, SendError,
};

/// A port that marks its vif as a member of the backend's own bridge. The bridge passes frames from
/// guest to guest by itself. So this port returns no frames, and accepts none.
#[derive(Debug, Default)]
pub struct Member {
    counters: Counters,
}

impl Member {
    /// Returns the mark of a member.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Port for Member {
    fn send(&mut self, _: &[u8], _: Offload) -> Result<(), SendError> {
        Err(self.counters.refuse(DropReason::Rejected))
    }

    fn recv(&mut self, _: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        Ok(None)
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::Idle
    }

    fn caps(&self) -> PortCaps {
        PortCaps { max_queues: u32::MAX, bridged: true, ..PortCaps::default() }
    }
}

impl PortControl for Member {
    fn another_queue(&mut self) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Self::new()))
    }
}

impl Probe for Member {
    fn name(&self) -> &str {
        "bridge"
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}
