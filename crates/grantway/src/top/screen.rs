//! Figures as text of 80 columns.

use super::figures::{Figures, UplinkFigures, VifFigures};
use crate::shares::{self, Part};
use grantway_backend::Checksums;
use grantway_command::table::{Table, scaled};

/// Returns the text for one backend.
pub fn show(name: &str, figures: &Figures) -> String {
    let asked = |name: &str| scaled(figures.platform.get(name).copied().unwrap_or(0.0));
    let mut text = format!(
        "{name} on {}, {}; vifs: {}, grants mapped: {}\n{}\nlongest round {:.2} of {:.2} ms, \
         control step {}\nper second: {} copies, {} maps, {} unmaps, {} notifies, {} wake-ups\n",
        figures.host,
        figures.mode,
        figures.vifs.len(),
        figures.mapped,
        lines(shares::used(&figures.budget).map(|(share, used)| part(share.name, used))),
        figures.rounds.used as f64 / 1e6,
        figures.rounds.limit as f64 / 1e6,
        part("pages", figures.control),
        asked("copies"),
        asked("maps"),
        asked("unmaps"),
        asked("notifies"),
        asked("wakeups"),
    );
    let workers = lines(figures.workers.iter().map(|worker| {
        format!("worker {} {:.0} % ({})", worker.worker, worker.busy * 100.0, worker.queues)
    }));
    text += &format!("{workers}\n");
    text += &figures.uplink.as_ref().map_or_else(String::new, uplink);
    text += &format!("{}\n", full_checksums(&figures.vifs));
    text += &format!("{}\n{}", rates(&figures.vifs), batches(&figures.vifs));
    for table in [queues(&figures.vifs), drops(&figures.vifs)] {
        if !table.rows().is_empty() {
            text += &format!("\n{table}");
        }
    }
    text
}

/// Returns a line for the uplink.
fn uplink(figures: &UplinkFigures) -> String {
    let [tx, rx, lost] = [figures.tx_pps, figures.rx_pps, figures.drops_rate].map(scaled);
    format!("uplink {} {}: tx/s {tx}, rx/s {rx}, drop/s {lost}\n", figures.name, figures.state)
}

/// Returns lines that name the vifs whose checksums are full, if there are any.
fn full_checksums(vifs: &[VifFigures]) -> String {
    let full = vifs.iter().filter(|vif| vif.checksum == Checksums::Full.as_str());
    match lines(full.map(|vif| vif.vif.clone())) {
        names if names.is_empty() => names,
        names => format!("with full checksums:\n{names}\n"),
    }
}

/// Joins the items with commas, on lines of 80 columns.
fn lines(items: impl Iterator<Item = String>) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for item in items {
        let between = match column {
            0 => "",
            _ if column + 2 + item.len() <= 80 => ", ",
            _ => "\n",
        };
        column = item.len() + if between == ", " { column + 2 } else { 0 };
        text += between;
        text += &item;
    }
    text
}

/// Returns the used amount of a shared resource as text, with its limit if the limit is known.
fn part(what: &str, part: Part) -> String {
    let Part { used, limit } = part;
    match part.is_bounded() {
        // A rounded limit is exact enough for a screen.
        true => format!("{used} of {} {what}", scaled(limit as f64)),
        false => format!("{used} {what}"),
    }
}

fn rates(vifs: &[VifFigures]) -> Table {
    let headings =
        ["vif", "policy", "q#", "tx/s#", "tx b/s#", "rx/s#", "rx b/s#", "mapped#", "drop/s#"];
    let mut table = Table::new(&headings);
    for vif in vifs {
        table.row([
            vif.vif.clone(),
            if vif.connected { vif.policy.clone() } else { "-".into() },
            vif.queues.len().to_string(),
            scaled(vif.tx_pps),
            scaled(vif.tx_bps),
            scaled(vif.rx_pps),
            scaled(vif.rx_bps),
            vif.mapped.to_string(),
            scaled(vif.drops_rate),
        ]);
    }
    table
}

fn batches(vifs: &[VifFigures]) -> Table {
    let headings = ["vif", "PPI#", "SPI#", "PPN#", "SPN#", "interrupts/s#", "notifies/s#"];
    let mut table = Table::new(&headings);
    for vif in vifs {
        let per = |n: Option<f64>| n.map_or("-".into(), |n| format!("{n:.1}"));
        table.row([
            vif.vif.clone(),
            per(vif.ppi),
            per(vif.spi),
            per(vif.ppn),
            per(vif.spn),
            scaled(vif.interrupts),
            scaled(vif.notifies),
        ]);
    }
    table
}

/// Returns a table of the queues, for vifs that have more than one.
fn queues(vifs: &[VifFigures]) -> Table {
    let headings = [
        "vif",
        "queue#",
        "worker#",
        "tx/s#",
        "rx/s#",
        "int/s#",
        "notify/s#",
        "waiting#",
        "posted#",
    ];
    let mut table = Table::new(&headings);
    for vif in vifs.iter().filter(|vif| vif.queues.len() > 1) {
        for queue in &vif.queues {
            table.row([
                vif.vif.clone(),
                queue.queue.to_string(),
                queue.worker.to_string(),
                scaled(queue.tx_pps),
                scaled(queue.rx_pps),
                scaled(queue.interrupts),
                scaled(queue.notifies),
                queue.tx_waiting.to_string(),
                queue.rx_posted.to_string(),
            ]);
        }
    }
    table
}

fn drops(vifs: &[VifFigures]) -> Table {
    let mut table = Table::new(&["vif", "dropped", "total#", "per second#"]);
    for vif in vifs {
        for (reason, (all, rate)) in &vif.drops {
            let reason: String = reason.chars().take(40).collect();
            table.row([vif.vif.clone(), reason, scaled(*all as f64), scaled(*rate)]);
        }
    }
    table
}
