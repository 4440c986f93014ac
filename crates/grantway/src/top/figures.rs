//! Two samples of a backend, and what went on between them.

use crate::sample::{Queue, Sample, Vif, Worker};
use crate::shares::{Part, Parts};
use serde::Serialize;
use std::collections::BTreeMap;

/// Activity of a backend between two samples. Rates are per second unless the field says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Kind of host that the backend runs on.
    pub host: String,
    /// Mode in which the backend waits.
    pub mode: String,
    /// Seconds between the samples.
    pub seconds: f64,
    /// Vifs of the backend, the busiest first.
    pub vifs: Vec<VifFigures>,
    /// Uplink of the backend's own bridge.
    pub uplink: Option<UplinkFigures>,
    /// Workers of the backend.
    pub workers: Vec<WorkerFigures>,
    /// Operations that the backend asked of the hypervisor, per second and by name.
    pub platform: BTreeMap<String, f64>,
    /// Grants that are mapped, rings included.
    pub mapped: u64,
    /// Used and largest amount of each resource that all vifs share.
    pub budget: Parts,
    /// Longest round of a worker so far and its limit, in nanoseconds.
    pub rounds: Part,
    /// Pages that the longest step of the control thread so far mapped or unmapped for requests of
    /// guests, and the limit of a step.
    pub control: Part,
}

/// One vif.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VifFigures {
    /// Name of the vif.
    pub vif: String,
    /// True if packets may flow.
    pub connected: bool,
    /// Policy by which buffers cross.
    pub policy: String,
    /// Checksums of the vif's frames: `full` or `offload`.
    pub checksum: String,
    /// Packets per second from the guest.
    pub tx_pps: f64,
    /// Bits of layer 2 per second from the guest, without FCS.
    pub tx_bps: f64,
    /// Packets per second to the guest.
    pub rx_pps: f64,
    /// Bits of layer 2 per second to the guest, without FCS.
    pub rx_bps: f64,
    /// Packets per interrupt; none without interrupts.
    pub ppi: Option<f64>,
    /// Slots per interrupt; none without interrupts.
    pub spi: Option<f64>,
    /// Packets per turn that moved any; none without turns.
    pub ppn: Option<f64>,
    /// Slots per turn that moved any; none without turns.
    pub spn: Option<f64>,
    /// Signals per second from the guest.
    pub interrupts: f64,
    /// Signals per second to the guest.
    pub notifies: f64,
    /// Pages of the guest that are mapped.
    pub mapped: u64,
    /// Drops per second, for all reasons together.
    pub drops_rate: f64,
    /// Drops by reason: the number of all time, and the number per second.
    pub drops: BTreeMap<String, (u64, f64)>,
    /// Queues of the vif.
    pub queues: Vec<QueueFigures>,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueFigures {
    /// Number of the queue in its vif.
    pub queue: u16,
    /// Number of the worker that serves the queue.
    pub worker: usize,
    /// Packets per second from the guest.
    pub tx_pps: f64,
    /// Packets per second to the guest.
    pub rx_pps: f64,
    /// Signals per second from the guest.
    pub interrupts: f64,
    /// Signals per second to the guest.
    pub notifies: f64,
    /// Requests that wait now.
    pub tx_waiting: u32,
    /// Pages that are posted now.
    pub rx_posted: u32,
}

/// The uplink.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UplinkFigures {
    /// Name of the port.
    pub name: String,
    /// State of the interface behind the port, or of the port.
    pub state: String,
    /// Frames sent per second.
    pub tx_pps: f64,
    /// Frames received per second.
    pub rx_pps: f64,
    /// Frames per second that did not cross.
    pub drops_rate: f64,
    /// Drops of all time, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerFigures {
    /// Number of the worker.
    pub worker: usize,
    /// Share of a processor that the worker used, spinning included.
    pub busy: f64,
    /// Number of queues that the worker serves.
    pub queues: usize,
}

/// Order of vifs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Most packets first, both ways together.
    #[default]
    Packets,
    /// Most drops first.
    Drops,
    /// By domain and number.
    Name,
}

impl Order {
    /// Returns the next order.
    pub fn next(self) -> Self {
        match self {
            Self::Packets => Self::Drops,
            Self::Drops => Self::Name,
            Self::Name => Self::Packets,
        }
    }

    /// Returns the name of the order.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Drops => "drops",
            Self::Name => "name",
        }
    }
}

impl Figures {
    /// Sorts the vifs.
    pub fn sort(&mut self, order: Order) {
        match order {
            Order::Packets => self.vifs.sort_by(|a, b| b.pps().total_cmp(&a.pps())),
            Order::Drops => self.vifs.sort_by(|a, b| b.drops_rate.total_cmp(&a.drops_rate)),
            // By length first, so that vif10.0 comes behind vif9.0.
            Order::Name => self
                .vifs
                .sort_by(|a, b| (a.vif.len(), a.vif.as_str()).cmp(&(b.vif.len(), b.vif.as_str()))),
        }
    }

    /// Returns the activity between two samples. A vif, queue, worker or operation that `before`
    /// does not have is compared with itself, so its rates are zero. A counter that is less than
    /// before began anew, and counts from zero.
    pub fn between(before: &Sample, after: &Sample) -> Self {
        let seconds = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        let rate =
            |from: u64, to: u64| if seconds > 0.0 { grown(from, to) as f64 / seconds } else { 0.0 };
        // A new vif is compared with its own counters.
        let vifs: Vec<_> = after
            .vifs
            .iter()
            .map(|vif| {
                let (stats, port) = (vif.stats.clone(), vif.port.clone());
                let new = Vif { stats, port, ..Vif::default() };
                let old = before.vifs.iter().find(|old| old.name == vif.name);
                VifFigures::of(old.unwrap_or(&new), vif, rate)
            })
            .collect();
        let uplink = after.uplink.as_ref().map(|uplink| {
            let old = before.uplink.as_ref().unwrap_or(uplink);
            UplinkFigures {
                name: uplink.name.clone(),
                state: uplink.state.clone(),
                tx_pps: rate(old.sent, uplink.sent),
                rx_pps: rate(old.received, uplink.received),
                drops_rate: rate(old.lost(), uplink.lost()),
                drops: uplink.drops.clone(),
            }
        });
        // A worker's share of a processor is its used time per time that passed.
        let workers = after.workers.iter().map(|worker| {
            let old = before.workers.iter().find(|old| old.worker == worker.worker);
            let Worker { used_ns, .. } = old.unwrap_or(worker);
            let busy = rate(*used_ns, worker.used_ns) / 1e9;
            WorkerFigures { worker: worker.worker, busy, queues: worker.queues }
        });
        // A gauge has no rate.
        let gauges = ["mapped", "granted", "deferred"];
        let counts = after.platform.iter().filter(|(name, _)| !gauges.contains(&name.as_str()));
        let platform = counts.map(|(name, &n)| {
            let old = before.platform.get(name).copied().unwrap_or(n);
            (name.clone(), rate(old, n))
        });
        let mut figures = Self {
            host: after.host.clone(),
            mode: after.mode.clone(),
            seconds,
            vifs,
            uplink,
            workers: workers.collect(),
            platform: platform.collect(),
            mapped: after.platform.get("mapped").copied().unwrap_or(0),
            budget: after.budget.clone(),
            rounds: Part {
                used: after.workers.iter().map(|worker| worker.longest_round_ns).max().unwrap_or(0),
                limit: after.workers.first().map_or(0, |worker| worker.round_limit_ns),
            },
            control: after.control,
        };
        figures.sort(Order::Packets);
        figures
    }
}

impl VifFigures {
    fn of(before: &Vif, after: &Vif, rate: impl Fn(u64, u64) -> f64) -> Self {
        // Ratios are of both directions together, since turns and interrupts serve both.
        let since = |name: &str| grown(before.count(name), after.count(name));
        let a_second = |name: &str| rate(before.count(name), after.count(name));
        let packets = since("tx_packets") + since("rx_packets");
        let slots = since("tx_slots") + since("rx_slots");
        let per = |n: u64, of: u64| (of > 0).then(|| n as f64 / of as f64);
        // Only reasons that ever occurred are shown.
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
            checksum: after.checksum.clone(),
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

    /// Returns the packets per second, both ways.
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

/// Returns by how much a counter grew. A counter that is less than before began anew, from zero.
fn grown(from: u64, to: u64) -> u64 {
    to.checked_sub(from).unwrap_or(to)
}
