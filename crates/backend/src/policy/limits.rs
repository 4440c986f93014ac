//! What a backend allows each of its vifs.

use super::quota::Mapped;
use grantway_netif::Policy;
use std::time::Duration;

/// What a backend allows each of its vifs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyLimits {
    /// The most that it offers.
    pub most: Policy,
    /// Most pages of a vif's guest that are mapped at once, rings not counted. What
    /// exceeds it is copied.
    pub pages: usize,
    /// What all vifs may have mapped together, rings not counted. None of them may have
    /// more than it leaves free.
    pub all: Mapped,
    /// How long a change of what a guest has staged waits for a turn that uses it. Far
    /// longer than a turn takes, even if other processes have the worker's processor for
    /// tenths of a second: a worker that is not back by then is stuck.
    pub lease: Duration,
}

impl Default for PolicyLimits {
    /// Everything, and 4096 pages: enough for seven queues of our frontend, and a
    /// sixteenth of the mappings that Xen allows a domain by default where it
    /// counts each twice; for all vifs three quarters of these, and of the areas that
    /// Linux allows a process. A second for a turn.
    fn default() -> Self {
        let all = Mapped { pages: 98_304, areas: 49_152 };
        Self { most: Policy::Staging, pages: 4096, all, lease: Duration::from_secs(1) }
    }
}
