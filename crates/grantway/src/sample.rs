//! Report of a backend, as `show` and `top` read it. Two reports make a rate.

use crate::shares::{Part, Parts};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The part of a backend's report that is shown.
#[derive(Debug, Default, Clone, Deserialize)]
pub struct Sample {
    /// Kind of host that the backend runs on.
    pub host: String,
    /// Mode in which the backend waits.
    pub mode: String,
    /// Time of the report, in nanoseconds.
    pub at_ns: u64,
    /// Vifs of the backend.
    pub vifs: Vec<Vif>,
    /// Uplink of the backend's own bridge.
    #[serde(default)]
    pub uplink: Option<Uplink>,
    /// Workers of the backend.
    #[serde(default)]
    pub workers: Vec<Worker>,
    /// Used and largest amount of each resource that all vifs share.
    #[serde(default)]
    pub budget: Parts,
    /// Pages that the longest step of the control thread mapped or unmapped for requests of guests,
    /// and the limit of a step.
    #[serde(default)]
    pub control: Part,
    /// Counters of the hypervisor's operations, and gauges such as `mapped`, by name.
    pub platform: BTreeMap<String, u64>,
}

/// A vif.
#[derive(Debug, Default, Clone, Deserialize)]
pub struct Vif {
    /// Name of the vif.
    #[serde(rename = "vif")]
    pub name: String,
    /// True if packets may flow.
    pub connected: bool,
    /// Policy by which buffers cross.
    pub policy: String,
    /// Checksums of the vif's frames; empty if the backend does not say.
    #[serde(default)]
    pub checksum: String,
    /// Pages of the guest that are mapped.
    pub mapped: u64,
    /// Counters of the vif by name.
    pub stats: BTreeMap<String, u64>,
    /// Counters of the vif's port, if the backend reports any.
    pub port: Option<Port>,
    /// Queues of the vif that are in service.
    #[serde(default)]
    pub queues: Vec<Queue>,
}

/// An uplink. One that was lost has no counters.
#[derive(Debug, Default, Clone, Deserialize)]
pub struct Uplink {
    /// Name of the port.
    pub name: String,
    /// State of the interface behind the port, or of the port.
    pub state: String,
    /// Frames sent.
    #[serde(default)]
    pub sent: u64,
    /// Frames received.
    #[serde(default)]
    pub received: u64,
    /// Frames for which the port had no room.
    #[serde(default)]
    pub busy: u64,
    /// Frames dropped by reason.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
}

/// A port.
#[derive(Debug, Default, Clone, Deserialize)]
pub struct Port {
    /// Name of the port; empty if the backend does not say.
    #[serde(default)]
    pub name: String,
    /// Frames dropped by reason.
    pub drops: BTreeMap<String, u64>,
}

/// A queue.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub struct Queue {
    /// Number of the queue in its vif.
    pub queue: u16,
    /// Number of the worker that serves the queue.
    pub worker: usize,
    /// Packets taken from the guest.
    pub tx_packets: u64,
    /// Packets given to the guest.
    pub rx_packets: u64,
    /// Signals from the guest.
    pub interrupts: u64,
    /// Signals to the guest.
    pub notifies: u64,
    /// Number of requests that wait.
    pub tx_waiting: u32,
    /// Number of pages that are posted.
    pub rx_posted: u32,
}

/// A worker.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub struct Worker {
    /// Number of the worker.
    pub worker: usize,
    /// Processor time that the worker used, in nanoseconds.
    pub used_ns: u64,
    /// Number of queues that the worker serves.
    pub queues: usize,
    /// Processor time that the worker's longest round took, in nanoseconds.
    #[serde(default)]
    pub longest_round_ns: u64,
    /// Processor time that a round may take, in nanoseconds.
    #[serde(default)]
    pub round_limit_ns: u64,
}

impl Uplink {
    /// Returns the number of frames that did not cross.
    pub fn lost(&self) -> u64 {
        self.busy + self.drops.values().sum::<u64>()
    }
}

impl Vif {
    /// Returns a counter of the vif; 0 if the report has none of this name.
    pub fn count(&self, name: &str) -> u64 {
        self.stats.get(name).copied().unwrap_or(0)
    }

    /// Returns the number of drops by reason, of the vif and of its port. A reason of the port
    /// begins with `port: `.
    pub fn drops(&self) -> BTreeMap<String, u64> {
        let own = self.stats.iter().filter(|(name, _)| name.contains("_dropped_"));
        let own = own.map(|(name, &n)| (name.replace("_dropped_", " "), n));
        let port = self.port.iter().flat_map(|port| &port.drops);
        own.chain(port.map(|(reason, &n)| (format!("port: {reason}"), n))).collect()
    }
}
