//! Two samples of a backend, and what went on between them.

use super::sample::{Queue, Sample, Vif, Worker};
use crate::shares::{Part, Parts};
use serde::Serialize;
use std::collections::BTreeMap;

/// What went on, a second each where nothing else is said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Which kind of host the backend runs on.
    pub host: String,
    /// How it waits.
    pub mode: String,
    /// Seconds between the samples.
    pub seconds: f64,
    /// Its vifs, the busiest first.
    pub vifs: Vec<VifFigures>,
    /// Its workers.
    pub workers: Vec<WorkerFigures>,
    /// What it asked of the hypervisor.
    pub platform: BTreeMap<String, f64>,
    /// Grants that are mapped, rings and all.
    pub mapped: u64,
    /// What all vifs share.
    pub budget: Parts,
    /// Nanoseconds that the longest round of a worker took so far, and may take.
    pub rounds: Part,
    /// Pages that the longest step of the control thread mapped or unmapped for requests of
    /// guests so far, and may.
    pub control: Part,
}

/// One vif.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VifFigures {
    /// Its name.
    pub vif: String,
    /// Whether packets may flow.
    pub connected: bool,
    /// How buffers cross.
    pub policy: String,
    /// Packets and bits of the guest's transmit.
    pub tx_pps: f64,
    /// Bits of layer 2, without FCS.
    pub tx_bps: f64,
    /// Packets to the guest.
    pub rx_pps: f64,
    /// Bits to the guest.
    pub rx_bps: f64,
    /// Packets per interrupt.
    pub ppi: Option<f64>,
    /// Slots per interrupt.
    pub spi: Option<f64>,
    /// Packets per turn that moved any.
    pub ppn: Option<f64>,
    /// Slots per such turn.
    pub spn: Option<f64>,
    /// Signals from the guest.
    pub interrupts: f64,
    /// Signals to the guest.
    pub notifies: f64,
    /// Pages of the guest that are mapped.
    pub mapped: u64,
    /// Drops.
    pub drops_rate: f64,
    /// Drops of all time by reason, and how many came a second.
    pub drops: BTreeMap<String, (u64, f64)>,
    /// Its queues.
    pub queues: Vec<QueueFigures>,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueFigures {
    /// Which of its vif's.
    pub queue: u16,
    /// Who serves it.
    pub worker: usize,
    /// Packets taken from the guest.
    pub tx_pps: f64,
    /// Packets to the guest.
    pub rx_pps: f64,
    /// Signals from the guest.
    pub interrupts: f64,
    /// Signals to the guest.
    pub notifies: f64,
    /// Requests that wait now.
    pub tx_waiting: u32,
    /// Pages that are posted now.
    pub rx_posted: u32,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerFigures {
    /// Which.
    pub worker: usize,
    /// The share of a processor that it used, spinning included.
    pub busy: f64,
    /// Queues that it serves.
    pub queues: usize,
}

impl Figures {
    /// What went on from one sample to the next. What was not there before, or begins
    /// anew, counts from nothing.
    pub fn between(before: &Sample, after: &Sample) -> Self {
        let seconds = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        let rate =
            |from: u64, to: u64| if seconds > 0.0 { grown(from, to) as f64 / seconds } else { 0.0 };
        let mut vifs: Vec<_> = after
            .vifs
            .iter()
            .map(|vif| {
                let new = Vif { stats: vif.stats.clone(), ..Vif::default() };
                let old = before.vifs.iter().find(|old| old.name == vif.name);
                VifFigures::of(old.unwrap_or(&new), vif, rate)
            })
            .collect();
        vifs.sort_by(|a, b| b.pps().total_cmp(&a.pps()));
        let workers = after.workers.iter().map(|worker| {
            let old = before.workers.iter().find(|old| old.worker == worker.worker);
            let Worker { used_ns, .. } = old.unwrap_or(worker);
            let busy = rate(*used_ns, worker.used_ns) / 1e9;
            WorkerFigures { worker: worker.worker, busy, queues: worker.queues }
        });
        let gauges = ["mapped", "granted", "deferred"];
        let counts = after.platform.iter().filter(|(name, _)| !gauges.contains(&name.as_str()));
        let platform = counts.map(|(name, &n)| {
            let old = before.platform.get(name).copied().unwrap_or(n);
            (name.clone(), rate(old, n))
        });
        Self {
            host: after.host.clone(),
            mode: after.mode.clone(),
            seconds,
            vifs,
            workers: workers.collect(),
            platform: platform.collect(),
            mapped: after.platform.get("mapped").copied().unwrap_or(0),
            budget: after.budget.clone(),
            rounds: Part {
                used: after.workers.iter().map(|worker| worker.longest_round_ns).max().unwrap_or(0),
                limit: after.workers.first().map_or(0, |worker| worker.round_limit_ns),
            },
            control: after.control,
        }
    }
}

impl VifFigures {
    fn of(before: &Vif, after: &Vif, rate: impl Fn(u64, u64) -> f64) -> Self {
        let since = |name: &str| grown(before.count(name), after.count(name));
        let a_second = |name: &str| rate(before.count(name), after.count(name));
        let packets = since("tx_packets") + since("rx_packets");
        let slots = since("tx_slots") + since("rx_slots");
        let per = |n: u64, of: u64| (of > 0).then(|| n as f64 / of as f64);
        let old = before.drops();
        let drops: BTreeMap<_, _> = after
            .drops()
            .into_iter()
            .filter(|&(_, n)| n > 0)
            .map(|(reason, n)| {
                let a_second = rate(old.get(&reason).copied().unwrap_or(0), n);
                (reason, (n, a_second))
            })
            .collect();
        Self {
            vif: after.name.clone(),
            connected: after.connected,
            policy: after.policy.clone(),
            tx_pps: a_second("tx_packets"),
            tx_bps: a_second("tx_bytes") * 8.0,
            rx_pps: a_second("rx_packets"),
            rx_bps: a_second("rx_bytes") * 8.0,
            ppi: per(packets, since("interrupts")),
            spi: per(slots, since("interrupts")),
            ppn: per(packets, since("turns")),
            spn: per(slots, since("turns")),
            interrupts: a_second("interrupts"),
            notifies: a_second("notifies"),
            mapped: after.mapped,
            // A sum of nothing would be -0.
            drops_rate: drops.values().fold(0.0, |sum, (_, rate)| sum + rate),
            drops,
            queues: after
                .queues
                .iter()
                .map(|queue| {
                    let old = before.queues.iter().find(|old| old.queue == queue.queue);
                    QueueFigures::of(old.unwrap_or(queue), queue, &rate)
                })
                .collect(),
        }
    }

    /// Packets both ways.
    fn pps(&self) -> f64 {
        self.tx_pps + self.rx_pps
    }
}

impl QueueFigures {
    fn of(before: &Queue, after: &Queue, rate: impl Fn(u64, u64) -> f64) -> Self {
        Self {
            queue: after.queue,
            worker: after.worker,
            tx_pps: rate(before.tx_packets, after.tx_packets),
            rx_pps: rate(before.rx_packets, after.rx_packets),
            interrupts: rate(before.interrupts, after.interrupts),
            notifies: rate(before.notifies, after.notifies),
            tx_waiting: after.tx_waiting,
            rx_posted: after.rx_posted,
        }
    }
}

/// By how much a counter grew; one that is less than before began anew.
fn grown(from: u64, to: u64) -> u64 {
    to.checked_sub(from).unwrap_or(to)
}
