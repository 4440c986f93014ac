//! Time: what Xen writes of it, and the processor's clock since.

use crate::sys::shared::SharedInfo;
use core::time::Duration;

/// The guest's clock: the time since its host started. It goes on from where it was in a guest that
/// was restored on another host.
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
}
