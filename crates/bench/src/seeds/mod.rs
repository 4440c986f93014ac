//! `grantway bench seeds`: the papers' tables beside our figures.
//!
//! - [`page`]: the report.

mod page;

use super::args::SeedsArgs;
use super::contest::{self, Point};
use super::document::{self, Column, Document, Shown};
use super::packets;
use super::papers::{self, Entry, Unit};
use super::probe::{Machine, State};
use super::progress::Progress;
use super::rig::Direction;
use super::slices::Timing;
use super::stats::Ratio;
use grantway_backend::policy::Policy;
use grantway_command::args::{Api, WaitModeArg};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::Destination;
use grantway_command::table::Table;
use serde::{Deserialize, Serialize};

/// Figures of one of our policies on a row's point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The buffer policy.
    pub policy: String,
    /// Figure in the row's unit.
    pub value: f64,
    /// Packets per interrupt of the receiving end; `None` if it never slept.
    pub ppi: Option<f64>,
    /// Slots per interrupt of the receiving end.
    pub spi: Option<f64>,
}

/// A paper's row, and our row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The paper: `000`, `001` or `004`.
    pub seed: String,
    /// Program, software and hardware of the paper's measurement.
    pub conditions: String,
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted; for a bulk transfer, the size of our frames.
    pub size: usize,
    /// Number of queues.
    pub queues: u16,
    /// Unit of `seed_before`, `seed_after` and both `value` fields.
    pub unit: Unit,
    /// The paper's figure before its proposal.
    pub seed_before: f64,
    /// The paper's figure with its proposal.
    pub seed_after: f64,
    /// Ratio of `seed_after` to `seed_before`.
    pub seed_factor: f64,
    /// The paper's packets per interrupt, before and after.
    pub seed_ppi: Option<[f64; 2]>,
    /// The paper's slots per interrupt, before and after.
    pub seed_spi: Option<[f64; 2]>,
    /// Our figures before.
    pub before: Side,
    /// Our figures after.
    pub after: Side,
    /// Ratio of our rate after to before; `None` if no pair of slices was in one state.
    pub factor: Option<Ratio>,
    /// Packets per second that a link of 10 Gbit/s would carry, in millions.
    pub wire_10g_mpps: f64,
    /// Frames that our generator makes at a time.
    pub burst: u32,
    /// Host that our figures were measured on.
    pub host: String,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    pub machine: Machine,
    /// Number of slices that our figures `after` are from.
    pub n: usize,
}

impl document::Row for Row {
    fn host(&self) -> &str {
        &self.host
    }

    fn state(&self) -> State {
        self.machine.state
    }
}

impl Row {
    fn of(entry: &Entry, [before, after]: &[packets::Row; 2]) -> Self {
        let side = |row: &packets::Row| Side {
            policy: row.policy.clone(),
            value: match entry.unit {
                Unit::Mpps => row.mpps,
                Unit::Gbps => row.gbps,
            },
            ppi: row.ppi,
            spi: row.spi,
        };
        Self {
            seed: entry.seed.to_owned(),
            conditions: entry.conditions.to_owned(),
            direction: entry.direction,
            size: entry.size,
            queues: entry.queues,
            unit: entry.unit,
            seed_before: entry.figures[0],
            seed_after: entry.figures[1],
            seed_factor: entry.factor(),
            seed_ppi: entry.ppi_spi.map(|[ppi, _]| ppi),
            seed_spi: entry.ppi_spi.map(|[_, spi]| spi),
            before: side(before),
            after: side(after),
            factor: after.ratio,
            wire_10g_mpps: papers::wire_pps(10.0, entry.size) / 1e6,
            burst: after.burst,
            host: after.host.clone(),
            machine: after.machine,
            n: after.n,
        }
    }

    fn change(before: f64, after: f64) -> String {
        format!("{before:.1} > {after:.1}")
    }
}

const COLUMNS: [Column<Row>; 15] = {
    use Shown::{Always, Filled};
    [
        Column::of("direction", Always, |r| r.direction.words().into()),
        Column::of("bytes#", Always, |r| r.size.to_string()),
        Column::of("queues#", Always, |r| r.queues.to_string()),
        Column::of("paper#", Always, |r| {
            format!("{} > {}", figure(r.seed_before), figure(r.seed_after))
        }),
        Column::of("factor#", Always, |r| format!("{:.2}", r.seed_factor)),
        Column::of("ours#", Always, |r| {
            format!("{} > {}", figure(r.before.value), figure(r.after.value))
        }),
        Column::of("factor#", Always, |r| r.factor.map_or("-".into(), |ratio| ratio.text())),
        Column::of("policies", Always, |r| format!("{} > {}", r.before.policy, r.after.policy)),
        Column::of("PPI#", Filled, |r| {
            r.seed_ppi.map_or(String::new(), |[a, b]| Row::change(a, b))
        }),
        Column::of("SPI#", Filled, |r| {
            r.seed_spi.map_or(String::new(), |[a, b]| Row::change(a, b))
        }),
        Column::of("our PPI#", Filled, |r| interrupts(r, r.before.ppi, r.after.ppi)),
        Column::of("our SPI#", Filled, |r| interrupts(r, r.before.spi, r.after.spi)),
        Column::of("of 10 Gbit/s wire#", Filled, |r| match (r.unit, r.seed.as_str()) {
            (Unit::Mpps, "004") => format!("{:.0} %", 100.0 * r.after.value / r.wire_10g_mpps),
            _ => String::new(),
        }),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// Returns a figure with three digits, as the papers print it.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// Returns our figures per interrupt if the paper has such figures. An end that never slept has a
/// dash.
fn interrupts(row: &Row, before: Option<f64>, after: Option<f64>) -> String {
    let one = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    match row.seed_ppi {
        Some(_) => format!("{} > {}", one(before), one(after)),
        None => String::new(),
    }
}

/// Returns the place of our set-up in words.
fn place(rows: &[Row]) -> String {
    let host = rows.first().map_or("", |row| row.host.as_str());
    document::place(host, rows.iter().map(|row| row.direction.guests()).max().unwrap_or(1))
}

/// Iterates over the papers' own tables, each as its rows.
fn tables(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| a.conditions == b.conditions)
}

/// Heading of [`wire`].
const WIRE: &str = "Mpps that a wire carries";

/// Returns true if the paper with the table [`wire`] is among these rows.
fn has_wire(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.seed == "004")
}

/// Returns a table for each of the papers' own tables, with its conditions above it.
fn text(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let place = place(rows);
    let mut text = format!(
        "ours: {place}\nburst {}, mode {}; the factors are this host's, not Xen's\n",
        first.burst,
        WaitModeArg::Adaptive.name()
    );
    for rows in tables(rows) {
        let Some(first) = rows.first() else { continue };
        let (seed, unit) = (&first.seed, first.unit.as_str());
        let table = document::table(rows, &COLUMNS);
        text += &format!("\nseed {seed}, {unit}: {}\n{table}", first.conditions);
    }
    if has_wire(rows) {
        text += &format!("\nseed 004, {WIRE}\n{}", wire());
    }
    text
}

/// Returns the paper's table of the packets that a wire carries.
fn wire() -> Table {
    let mut table = Table::new(&["packet + FCS#", "10 Gbit/s#", "40 Gbit/s#", "100 Gbit/s#"]);
    for bytes in [64, 128, 256, 1500, 65_535] {
        let rates = [10.0, 40.0, 100.0].map(|gbps| papers::wire_pps(gbps, bytes - 4) / 1e6);
        let rates =
            rates.map(|mpps| if mpps < 1.0 { format!("{mpps:.4}") } else { format!("{mpps:.2}") });
        table.row([bytes.to_string()].into_iter().chain(rates));
    }
    table
}

/// The measurement that a row needs: direction, frame size, queues, and both policies.
type Key = (Direction, usize, u16, [Policy; 2]);

fn key(entry: &Entry) -> Key {
    (entry.direction, entry.size, entry.queues, entry.policies)
}

/// Runs the command.
///
/// # Errors
///
/// The command line asks for something impossible, or a part of a rig failed.
pub fn run(args: &SeedsArgs) -> Result<(), CommandError> {
    let timing = Timing::short(args.seconds, None)?;
    let page = args.output.report.as_deref().map(Destination::at).transpose()?;
    let entries = papers::entries(&args.seed.0);
    let mut keys: Vec<Key> = Vec::new();
    for key in entries.iter().map(key) {
        // Rows of several papers may need the same measurement.
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    // Each measurement is a contest of the two policies.
    let progress = Progress::new(keys.len(), args.output.json);
    let mut measured: Vec<(Key, [packets::Row; 2])> = Vec::new();
    for (number, &key) in keys.iter().enumerate() {
        let (direction, size, queues, policies) = key;
        let mode = WaitModeArg::Adaptive;
        let burst = args.burst;
        let api = Api::Copy;
        let point = Point { direction, size, queues, burst, mode, api, rate: None, timed: 0 };
        let what = format!("{} by {queues} queues", point.words());
        let mut show = |part| progress.show(number, &what, part);
        let outcome = contest::run(&point, &policies, timing, &mut show)?;
        let rows = [0, 1].map(|at| packets::Row::of(&point, &policies, at, &outcome));
        measured.push((key, rows));
    }
    progress.done();
    // Each row of a paper then finds its measurement.
    let found = |entry: &Entry| measured.iter().find(|(other, _)| *other == key(entry));
    let rows = |entry: &Entry| found(entry).map(|(_, rows)| Row::of(entry, rows));
    let rows: Vec<Row> = entries.iter().filter_map(rows).collect();
    if let Some(page) = page {
        page.write(&page::of(&rows))?;
    }
    match args.output.json {
        true => Document::new("seeds", &rows).print(),
        false => output::line(text(&rows)),
    }
}
