//! Clock: the times that Xen publishes, continued by the processor's counter.

use crate::sys::shared::SharedInfo;
use core::time::Duration;

/// Clock of the guest. It begins at the start of the host. After a restore it continues from the
/// time of the save.
#[derive(Debug, Clone)]
pub struct Clock {
    shared: SharedInfo,
}

impl Clock {
    pub(crate) fn new(shared: SharedInfo) -> Self {
        Self { shared }
    }

    /// Returns the time since the host started.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now())
    }

    /// Returns the time since 1970, by the host's wall clock. This clock may be set back.
    #[must_use]
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.shared.wall())
    }
}
