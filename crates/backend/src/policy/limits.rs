//! Limits of a backend for each of its vifs.

use super::quota::Mapped;
use grantway_netif::Policy;
use std::time::Duration;

/// Limits of a backend for each of its vifs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyLimits {
    /// The most that the backend offers.
    pub most: Policy,
    /// Most pages of a vif's guest that are mapped at once, rings not counted. Packets beyond it
    /// are copied.
    pub pages: usize,
    /// Memory that all vifs may have mapped together, rings not counted. No vif may have more than
    /// it leaves free.
    pub all: Mapped,
    /// Time for which a change of a guest's staged pages waits for a turn that uses them. It is far
    /// longer than a turn takes, even if other processes have the worker's processor for tenths of
    /// a second. A worker that is not back by then is stuck.
    pub lease: Duration,
}

impl Default for PolicyLimits {
    /// Returns limits that allow every policy, 4096 pages for each vif, and a second for a turn.
    ///
    /// 4096 pages are enough for seven queues of our frontend. Xen allows a domain 131072 mapped
    /// pages by default if it counts each twice, of which 4096 are a thirty-second. All vifs may
    /// have three quarters of the 131072, and three quarters of the areas that Linux allows a
    /// process.
    fn default() -> Self {
        let all = Mapped { pages: 98_304, areas: 49_152 };
        Self { most: Policy::Staging, pages: 4096, all, lease: Duration::from_secs(1) }
    }
}
