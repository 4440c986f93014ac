//! Rows of each subject, as a table of 80 columns and as JSON.

use super::ends::{Backend, Ends, frontend_vif};
use crate::sample::Worker;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::table::{Table, scaled};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Most characters of a port's name in a table.
const PORT_MAX: usize = 12;

/// Most characters of a reason in a table.
const REASON_MAX: usize = 40;

/// A row of a table.
pub trait Row: Serialize {
    /// Headings of the table.
    const HEADINGS: &'static [&'static str];
    /// Text if there is no row.
    const NONE: &'static str;

    /// Returns the cells.
    fn cells(&self) -> Vec<String>;
}

/// Prints rows.
///
/// # Errors
///
/// No row belongs to the vif that was asked for, or standard output cannot be written.
pub fn show<R: Row>(rows: &[R], vif: Option<&str>, json: bool) -> Result<(), CommandError> {
    if json {
        return output::line(json!(rows).to_string());
    }
    if rows.is_empty() {
        return output::line(
            vif.map_or_else(|| R::NONE.into(), |vif| format!("{vif}: {}", R::NONE)),
        );
    }
    let mut table = Table::new(R::HEADINGS);
    rows.iter().for_each(|row| table.row(row.cells()));
    output::line(table.to_string())
}

/// One end of a vif.
#[derive(Debug, Serialize)]
pub struct VifRow {
    vif: String,
    /// Name of the program's socket.
    end: String,
    connected: bool,
    policy: String,
    queues: usize,
    port: Option<String>,
    tx_packets: u64,
    rx_packets: u64,
    dropped: u64,
    /// Pages of the guest that the backend has mapped, or that the frontend has staged.
    pages: u64,
}

impl Row for VifRow {
    const HEADINGS: &'static [&'static str] =
        &["vif", "end", "state", "policy", "q#", "tx#", "rx#", "dropped#", "pages#", "port"];
    const NONE: &'static str = "no vif; a vif appears when its guest has one (xl, grantway attach)";

    fn cells(&self) -> Vec<String> {
        vec![
            self.vif.clone(),
            self.end.clone(),
            if self.connected { "up".into() } else { "down".into() },
            if self.connected { self.policy.clone() } else { "-".into() },
            self.queues.to_string(),
            count(self.tx_packets),
            count(self.rx_packets),
            count(self.dropped),
            count(self.pages),
            self.port
                .as_ref()
                .map_or_else(|| "-".into(), |port| port.chars().take(PORT_MAX).collect()),
        ]
    }
}

/// Returns the ends of vifs.
pub fn vifs(ends: &Ends, only: Option<&str>) -> Vec<VifRow> {
    let counter = |of: &BTreeMap<String, u64>, name: &str| of.get(name).copied().unwrap_or(0);
    let backends = ends.backends.iter().flat_map(|(end, backend)| {
        backend.sample.vifs.iter().map(move |vif| VifRow {
            vif: vif.name.clone(),
            end: end.clone(),
            connected: vif.connected,
            policy: vif.policy.clone(),
            queues: vif.queues.len(),
            port: vif.port.as_ref().map(|port| port.name.clone()),
            tx_packets: vif.count("tx_packets"),
            rx_packets: vif.count("rx_packets"),
            dropped: vif.drops().values().sum(),
            pages: vif.mapped,
        })
    });
    let frontends = ends.frontends.iter().map(|(end, frontend)| VifRow {
        vif: frontend_vif(end),
        end: end.clone(),
        connected: frontend.connected,
        policy: frontend.policy.clone(),
        queues: frontend.queues.len(),
        port: frontend.port.as_ref().map(|port| port.name.clone()),
        tx_packets: counter(&frontend.stats, "tx_packets"),
        rx_packets: counter(&frontend.stats, "rx_packets"),
        dropped: frontend_drops(end, ends).map(|(_, n)| n).sum(),
        pages: frontend.staged,
    });
    backends.chain(frontends).filter(|row| is_wanted(&row.vif, only)).collect()
}

/// A queue at one end.
#[derive(Debug, Serialize)]
pub struct QueueRow {
    vif: String,
    end: String,
    queue: u16,
    /// Worker of a backend that serves the queue.
    worker: Option<usize>,
    tx_packets: u64,
    rx_packets: u64,
    /// Signals to this end, and from it.
    interrupts: u64,
    notifies: u64,
    /// Requests of the guest that wait for the backend.
    tx_waiting: Option<u32>,
    /// Pages that the guest posted and that have no frame.
    rx_posted: Option<u32>,
}

impl Row for QueueRow {
    const HEADINGS: &'static [&'static str] =
        &["vif", "end", "q#", "worker#", "tx#", "rx#", "int#", "notify#", "waiting#", "posted#"];
    const NONE: &'static str = "no queue in service; a vif has queues while it is connected";

    fn cells(&self) -> Vec<String> {
        let or_dash = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        vec![
            self.vif.clone(),
            self.end.clone(),
            self.queue.to_string(),
            self.worker.map_or_else(|| "-".to_owned(), |worker| worker.to_string()),
            count(self.tx_packets),
            count(self.rx_packets),
            count(self.interrupts),
            count(self.notifies),
            or_dash(self.tx_waiting),
            or_dash(self.rx_posted),
        ]
    }
}

/// Returns the queues of both ends.
pub fn queues(ends: &Ends, only: Option<&str>) -> Vec<QueueRow> {
    let backends = ends.backends.iter().flat_map(|(end, backend)| {
        backend.sample.vifs.iter().flat_map(move |vif| {
            vif.queues.iter().map(move |queue| QueueRow {
                vif: vif.name.clone(),
                end: end.clone(),
                queue: queue.queue,
                worker: Some(queue.worker),
                tx_packets: queue.tx_packets,
                rx_packets: queue.rx_packets,
                interrupts: queue.interrupts,
                notifies: queue.notifies,
                tx_waiting: Some(queue.tx_waiting),
                rx_posted: Some(queue.rx_posted),
            })
        })
    });
    let frontends = ends.frontends.iter().flat_map(|(end, frontend)| {
        frontend.queues.iter().map(move |queue| {
            let counter = |name: &str| queue.stats.get(name).copied().unwrap_or(0);
            QueueRow {
                vif: frontend_vif(end),
                end: end.clone(),
                queue: queue.queue,
                worker: None,
                tx_packets: counter("tx_packets"),
                rx_packets: counter("rx_packets"),
                interrupts: counter("interrupts"),
                notifies: counter("notifies"),
                tx_waiting: None,
                rx_posted: None,
            }
        })
    });
    backends.chain(frontends).filter(|row| is_wanted(&row.vif, only)).collect()
}

/// Dropped packets of one reason.
#[derive(Debug, Serialize)]
pub struct DropRow {
    /// Name of the vif, or `uplink`, or `rules` for drops by a backend's graph.
    vif: String,
    end: String,
    reason: String,
    packets: u64,
}

impl Row for DropRow {
    const HEADINGS: &'static [&'static str] = &["vif", "end", "dropped", "packets#"];
    const NONE: &'static str = "nothing was dropped";

    fn cells(&self) -> Vec<String> {
        vec![
            self.vif.clone(),
            self.end.clone(),
            self.reason.chars().take(REASON_MAX).collect(),
            self.packets.to_string(),
        ]
    }
}

/// Returns the drops of both ends, for reasons that occurred. Drops by the graph of a backend are
/// also in `tx rules` and `rx rules` of its vifs.
pub fn drops(ends: &Ends, only: Option<&str>) -> Vec<DropRow> {
    let mut rows = Vec::new();
    let mut add = |vif: &str, end: &str, reason: String, packets: u64| {
        if packets > 0 && is_wanted(vif, only) {
            rows.push(DropRow { vif: vif.to_owned(), end: end.to_owned(), reason, packets });
        }
    };
    for (end, backend) in &ends.backends {
        for vif in &backend.sample.vifs {
            vif.drops().into_iter().for_each(|(reason, n)| add(&vif.name, end, reason, n));
        }
        if let Some(uplink) = &backend.sample.uplink {
            add("uplink", end, "busy".into(), uplink.busy);
            uplink.drops.iter().for_each(|(reason, n)| add("uplink", end, reason.clone(), *n));
        }
        backend.graph.drops.iter().for_each(|(reason, n)| add("rules", end, reason.clone(), *n));
    }
    for (end, _) in &ends.frontends {
        frontend_drops(end, ends).for_each(|(reason, n)| add(&frontend_vif(end), end, reason, n));
    }
    rows
}

/// Returns the drops of a frontend by reason. A reason of its port begins with `port: `.
fn frontend_drops<'e>(end: &str, ends: &'e Ends) -> impl Iterator<Item = (String, u64)> + 'e {
    let frontend = ends.frontends.iter().find(|(name, _)| name == end).map(|(_, found)| found);
    frontend.into_iter().flat_map(|frontend| {
        let own = frontend.drops.iter().map(|(reason, &n)| (reason.replacen('_', " ", 1), n));
        let port = frontend.port.iter().flat_map(|port| &port.drops);
        own.chain(port.map(|(reason, &n)| (format!("port: {reason}"), n)))
    })
}

/// A worker of a backend.
#[derive(Debug, Serialize)]
pub struct WorkerRow {
    end: String,
    worker: usize,
    queues: usize,
    /// Processor time so far, in nanoseconds.
    used_ns: u64,
    longest_round_ns: u64,
    round_limit_ns: u64,
}

impl Row for WorkerRow {
    const HEADINGS: &'static [&'static str] =
        &["end", "worker#", "queues#", "used s#", "longest round ms#", "limit ms#"];
    const NONE: &'static str = "no worker; only backends have workers";

    fn cells(&self) -> Vec<String> {
        let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
        vec![
            self.end.clone(),
            self.worker.to_string(),
            self.queues.to_string(),
            format!("{:.2}", self.used_ns as f64 / 1e9),
            ms(self.longest_round_ns),
            ms(self.round_limit_ns),
        ]
    }
}

/// Returns the workers of backends.
pub fn workers(ends: &Ends) -> Vec<WorkerRow> {
    let of = |(end, backend): &(String, Backend)| {
        let row = |worker: &Worker| WorkerRow {
            end: end.clone(),
            worker: worker.worker,
            queues: worker.queues,
            used_ns: worker.used_ns,
            longest_round_ns: worker.longest_round_ns,
            round_limit_ns: worker.round_limit_ns,
        };
        backend.sample.workers.iter().map(row).collect::<Vec<_>>()
    };
    ends.backends.iter().flat_map(of).collect()
}

fn is_wanted(vif: &str, only: Option<&str>) -> bool {
    only.is_none_or(|only| only == vif)
}

/// Returns a counter in at most six characters.
fn count(n: u64) -> String {
    if n < 1000 { n.to_string() } else { scaled(n as f64) }
}
