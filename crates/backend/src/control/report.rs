//! Reports of vifs.

use super::link::Link;
use crate::ids::VifId;
use crate::policy::Policy;
use crate::state::checksums::Checksums;
use crate::state::stats::VifStatsSnapshot;
use crate::turn::queue::QueueReport;
use crate::worker::Workers;
use grantway_hypervisor::CounterSnapshot;
use grantway_ports::PortReport;
use std::collections::BTreeMap;
use std::time::Duration;

/// Report of one vif.
#[derive(Debug, Clone)]
pub struct VifReport {
    /// Name of the vif.
    pub vif: VifId,
    /// Report of the vif's port, with its counters.
    pub port: Option<PortReport>,
    /// Queues in service.
    pub queues: Vec<QueueReport>,
    /// True if packets may flow.
    pub connected: bool,
    /// Checksums of the vif's frames, by the toolstack's mark when it was last read, or as they were
    /// handed over.
    pub checksums: Checksums,
    /// The buffer policy.
    pub policy: Policy,
    /// Number of the guest's pages that are mapped now under that policy, on all queues.
    pub mapped: usize,
    /// Counters of the vif.
    pub stats: VifStatsSnapshot,
}

impl VifReport {
    pub(crate) fn of(
        vif: VifId,
        link: &Link,
        workers: &Workers,
        connected: bool,
        checksums: Checksums,
    ) -> Self {
        let (queues, port) = link.inspect(workers);
        let (policy, mapped, stats) = (link.policy(), link.mapped(), link.stats());
        Self { vif, port, queues, connected, checksums, policy, mapped, stats }
    }
}

/// Counters at one moment between the turns of all workers. Either all work for a packet in its
/// turn is counted, or none. On a bridge, a frame may be on its way from one worker to another.
/// Such a frame counts as sent, but not as received.
#[derive(Debug, Clone)]
pub struct Account {
    /// Moment of the counts, as the machine's [`uptime`](grantway_ports::uptime).
    pub at: Duration,
    /// The counters of every vif.
    pub vifs: BTreeMap<VifId, VifStatsSnapshot>,
    /// Counts of the backend's calls to the hypervisor.
    pub platform: CounterSnapshot,
}
