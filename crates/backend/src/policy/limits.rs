//! Limits of a backend for each of its vifs.

use super::quota::Mapped;
use grantway_netif::Policy;
use std::time::Duration;

/// Limits of a backend for each of its vifs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyLimits {
    /// The best policy that the backend offers.
    pub most: Policy,
    /// Most pages of one vif's guest that are mapped at once, without the rings. Packets in other
    /// pages are copied.
    pub pages: usize,
    /// Memory that all vifs together may have mapped, without the rings. No vif may
    /// have more than it leaves free.
    pub all: Mapped,
    /// Time for which a change of a guest's staged pages waits for a turn that uses them. A turn is
    /// far shorter, even if other processes take the worker's processor for tenths of a second. A
    /// worker that takes longer is stuck.
    pub lease: Duration,
}

impl Default for PolicyLimits {
    /// Returns limits that allow every policy, 4096 pages for each vif, and a second for a turn.
    ///
    /// 4096 pages are enough for seven queues of Grantway's frontend. If Xen counts each mapped
    /// page twice, a domain may have 131,072 of them by default. 4096 are a thirty-second of these.
    /// All vifs together may have three quarters of them, and three quarters of the areas that
    /// Linux allows a process.
    fn default() -> Self {
        let all = Mapped { pages: 98_304, areas: 49_152 };
        Self { most: Policy::Staging, pages: 4096, all, lease: Duration::from_secs(1) }
    }
}
