//! Rows of the papers that this command does not measure, each with its reason.

use grantway_command::table::Table;
use serde::Serialize;

/// Heading of [`table`].
pub const HEADING: &str = "Not measured here";

/// A row of a paper without a figure of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Apart {
    /// Number of the paper.
    pub paper: &'static str,
    /// Conditions of the paper's figure.
    pub conditions: &'static str,
    /// The paper's figure, with its unit.
    pub figure: &'static str,
    /// Reason, or the command that measures the nearest of ours.
    pub reason: &'static str,
}

const TCP: &str = "real TCP: add --tcp 4s, which needs root and iperf3";
const STACKS: &str =
    "two stacks in user space: add --tcp 4s, which needs root; or grantway bench tcp";
const TRACED: &str = "with a reader of flows: add --tcp 4s; or grantway bench tcp --traced";

const fn row(
    paper: &'static str,
    conditions: &'static str,
    figure: &'static str,
    reason: &'static str,
) -> Apart {
    Apart { paper, conditions, figure, reason }
}

/// The rows of paper 002 that this build does not have.
const RETPOLINES: (&str, &str, &str) = match crate::rings::RETPOLINES {
    true => ("without retpolines", "in another document", "the usual build: cargo build --release"),
    false => ("with retpolines", "all figures of the paper", "another build: make retpolines"),
};

const ROWS: [Apart; 13] = [
    row("000", "the tables of iperf, by TCP itself", "as above", TCP),
    row(
        "000",
        "guest to guest by TCP itself, two and three queues",
        "as above",
        "our stack in user space has one queue; frames by several queues are above",
    ),
    row("001", "iperf and netperf, by TCP itself", "as above", TCP),
    row("002", RETPOLINES.0, RETPOLINES.1, RETPOLINES.2),
    row(
        "002",
        "lists in the IP layer of the receiving host",
        "in +22.5 %",
        "our receivers are guests: their stacks take frames from a ring, and smoltcp has no lists",
    ),
    row("003", "guest to guest, SCHEDOP_poll with masked events", "2.75 Gbit/s", STACKS),
    row("003", "guest to guest, SCHEDOP_block, i7-3770", "2.45 to 2.6 Gbit/s", STACKS),
    row("003", "mirage-iperf, SCHEDOP_block, another machine", "1.64 Gbit/s", STACKS),
    row("003", "guest to guest, txqueuelen 500, log of TCP off", "2.5 Gbit/s and more", STACKS),
    row("003", "guest to guest, txqueuelen 500, log of TCP on", "2.1 Gbit/s", TRACED),
    row(
        "003",
        "one poll of event channels, and machines on a host",
        "128; 300",
        "grantway bench scale",
    ),
    row("004", "the bulk table, by TCP itself", "as above", TCP),
    row(
        "004",
        "a host behind a card of 100 Gbit/s",
        "as above",
        "no such card; lab/bench has an emulated one for stock guests: make lab-bench PART=nic-tap",
    ),
];

/// Returns the rows of these papers, without those that are measured by TCP if that is done.
pub fn of(papers: &[&str], by_tcp: bool) -> Vec<Apart> {
    let is_measured = |row: &Apart| by_tcp && [TCP, STACKS, TRACED].contains(&row.reason);
    ROWS.into_iter().filter(|row| papers.contains(&row.paper) && !is_measured(row)).collect()
}

/// Returns the table of these rows.
pub fn table(rows: &[&Apart]) -> Table {
    let mut table = Table::new(&["the paper's conditions", "figure", "reason, or command"]);
    for row in rows {
        table.row([row.conditions, row.figure, row.reason]);
    }
    table
}
