//! Time: what Xen writes of it, and the processor's clock since.

use crate::sys::shared::SharedInfo;
use core::time::Duration;

/// The guest's clock: the time since its host started, and in a guest that was restored the time
/// that goes on from where it was.
#[derive(Debug, Clone)]
pub struct Clock {
    shared: SharedInfo,
}

impl Clock {
    pub(crate) fn new(shared: SharedInfo) -> Self {
        Self { shared }
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now())
    }

    /// Returns the time since 1970 by the host's wall clock, which whoever sets it may set back.
    #[must_use]
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.shared.wall())
    }
}
