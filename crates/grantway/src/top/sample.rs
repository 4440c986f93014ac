//! What a backend's report says, of which two make a rate.

use crate::shares::{Part, Parts};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A backend's report, as far as it is shown.
#[derive(Debug, Default, Clone, Deserialize)]
pub struct Sample {
    /// Which kind of host it runs on.
    pub host: String,
    /// How it waits.
    pub mode: String,
    /// When this was.
    pub at_ns: u64,
    /// Its vifs.
    pub vifs: Vec<Vif>,
    /// Its workers.
    #[serde(default)]
    pub workers: Vec<Worker>,
    /// What all vifs share.
    #[serde(default)]
    pub budget: Parts,
    /// What the longest step of the control thread did for guests' requests: pages mapped or
    /// unmapped.
    #[serde(default)]
    pub control: Part,
    /// What it asked of the hypervisor.
    pub platform: BTreeMap<String, u64>,
}

/// A vif.
#[derive(Debug, Default, Clone, Deserialize)]
pub struct Vif {
    /// Its name.
    #[serde(rename = "vif")]
    pub name: String,
    /// Whether packets may flow.
    pub connected: bool,
    /// How buffers cross.
    pub policy: String,
    /// Pages of the guest that are mapped.
    pub mapped: u64,
    /// Its counters by name.
    pub stats: BTreeMap<String, u64>,
    /// What its port passed.
    pub port: Option<Port>,
    /// Its queues in service.
    #[serde(default)]
    pub queues: Vec<Queue>,
}

/// A port.
#[derive(Debug, Default, Clone, Deserialize)]
pub struct Port {
    /// Frames dropped by reason.
    pub drops: BTreeMap<String, u64>,
}

/// A queue.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub struct Queue {
    /// Which of its vif's.
    pub queue: u16,
    /// Who serves it.
    pub worker: usize,
    /// Packets taken from the guest.
    pub tx_packets: u64,
    /// Packets given to the guest.
    pub rx_packets: u64,
    /// Signals from the guest.
    pub interrupts: u64,
    /// Signals to the guest.
    pub notifies: u64,
    /// Requests that wait.
    pub tx_waiting: u32,
    /// Pages that are posted.
    pub rx_posted: u32,
}

/// A worker.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub struct Worker {
    /// Which.
    pub worker: usize,
    /// What it used of a processor.
    pub used_ns: u64,
    /// Queues that it serves.
    pub queues: usize,
    /// What its longest round took of a processor.
    #[serde(default)]
    pub longest_round_ns: u64,
    /// What a round may take.
    #[serde(default)]
    pub round_limit_ns: u64,
}

impl Vif {
    /// One of its counters.
    pub fn count(&self, name: &str) -> u64 {
        self.stats.get(name).copied().unwrap_or(0)
    }

    /// Everything that was dropped, by reason; the port's own reasons are behind
    /// `port:`.
    pub fn drops(&self) -> BTreeMap<String, u64> {
        let own = self.stats.iter().filter(|(name, _)| name.contains("_dropped_"));
        let own = own.map(|(name, &n)| (name.replace("_dropped_", " "), n));
        let port = self.port.iter().flat_map(|port| &port.drops);
        own.chain(port.map(|(reason, &n)| (format!("port: {reason}"), n))).collect()
    }
}
