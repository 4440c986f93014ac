//! `grantway bench papers`: the papers' tables beside our figures.
//!
//! - [`figures`]: the papers and their figures; [`batches`]: the table of interrupts and turns;
//!   [`rings`], [`lists`]: rows of the batched path, from end to end and the graph alone;
//!   [`apart`]: rows that this command does not measure.
//! - [`tcp`]: rows by TCP, as root; [`xen`]: the rows of `lab/bench`; [`page`]: the report.

mod apart;
mod batches;
mod figures;
mod lists;
mod page;
mod rings;
mod tcp;
mod xen;

use super::args::PapersArgs;
use super::contest::{self, Point};
use super::document::{self, Column, Document, Shown};
use super::packets;
use super::probe::{Machine, State};
use super::progress::Progress;
use super::rig::Direction;
use super::slices::Timing;
use super::stats::Ratio;
use apart::Apart;
use figures::{Batches, Entry, PAPERS, Paper, Unit};
use grantway_backend::policy::Policy;
use grantway_command::args::{Api, WaitModeArg};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::Destination;
use grantway_command::table::Table;
use lists::Lists;
use rings::Rings;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use tcp::Tcp;

/// Figures of one of our policies on a row's point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The buffer policy.
    pub policy: String,
    /// Figure in the row's unit.
    pub value: f64,
    /// Packets and slots per interrupt and turn of the receiving end, and their counts over the
    /// seconds of the row.
    pub batches: Batches,
}

/// A paper's row, and our row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The paper: `000`, `001` or `004`.
    pub paper: String,
    /// Program, software and hardware of the paper's measurement.
    pub conditions: String,
    /// Difference of our measurement from the paper's, beside host and hardware; empty if none.
    pub apart: String,
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted; for a bulk transfer, the size of our frames.
    pub size: usize,
    /// Number of queues.
    pub queues: u16,
    /// Frames that our generator makes at a time.
    pub burst: u32,
    /// Wait mode of our ends.
    pub mode: String,
    /// Unit of `paper_before`, `paper_after` and both `value` fields.
    pub unit: Unit,
    /// The paper's figure before its proposal, if it has one.
    pub paper_before: Option<f64>,
    /// The paper's figure with its proposal.
    pub paper_after: f64,
    /// Ratio of `paper_after` to `paper_before`.
    pub paper_factor: Option<f64>,
    /// The paper's batches before and after.
    pub paper_batches: Option<[Batches; 2]>,
    /// Our figures before.
    pub before: Side,
    /// Our figures after.
    pub after: Side,
    /// Ratio of our rate after to before; `None` if no pair of slices was in one state.
    pub factor: Option<Ratio>,
    /// Packets per second that a link of 10 Gbit/s would carry, in millions.
    pub wire_10g_mpps: f64,
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
            batches: counted(row),
        };
        Self {
            paper: entry.paper.to_owned(),
            conditions: entry.conditions.to_owned(),
            apart: entry.apart.to_owned(),
            direction: entry.direction,
            size: entry.size,
            queues: entry.queues,
            burst: after.burst,
            mode: after.mode.clone(),
            unit: entry.unit,
            paper_before: entry.before,
            paper_after: entry.after,
            paper_factor: entry.factor(),
            paper_batches: entry.batches,
            before: side(before),
            after: side(after),
            factor: after.ratio,
            wire_10g_mpps: figures::wire_pps(10.0, entry.size) / 1e6,
            host: after.host.clone(),
            machine: after.machine,
            n: after.n,
        }
    }
}

/// Returns the batches of a row of ours, whose counts are those of its quotients.
fn counted(row: &packets::Row) -> Batches {
    let of = |quotient: Option<f64>| {
        quotient.map_or(0, |quotient| (row.packets as f64 / quotient).round() as u64)
    };
    let turns = of(row.ppn);
    let slots = row.spn.map_or(0, |spn| (spn * turns as f64).round() as u64);
    let (ppi, spi, ppn, spn) = (row.ppi, row.spi, row.ppn, row.spn);
    Batches { ppi, spi, ppn, spn, interrupts: of(ppi), turns, packets: row.packets, slots }
}

const COLUMNS: [Column<Row>; 11] = {
    use Shown::{Always, Filled};
    [
        Column::of("direction", Always, |r| r.direction.words().into()),
        Column::of("bytes#", Always, |r| r.size.to_string()),
        Column::of("queues#", Always, |r| r.queues.to_string()),
        Column::of("paper#", Always, |r| change(r.paper_before, r.paper_after)),
        Column::of("factor#", Always, |r| r.paper_factor.map_or("-".into(), |f| format!("{f:.2}"))),
        Column::of("ours#", Always, |r| change(Some(r.before.value), r.after.value)),
        Column::of("factor#", Always, |r| r.factor.map_or("-".into(), |ratio| ratio.text())),
        Column::of("policies", Always, |r| format!("{} > {}", r.before.policy, r.after.policy)),
        Column::of("of 10 Gbit/s wire#", Filled, |r| match (r.unit, r.paper.as_str()) {
            (Unit::Mpps, "004") => format!("{:.0} %", 100.0 * r.after.value / r.wire_10g_mpps),
            _ => String::new(),
        }),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// Returns two figures as tables print them; a figure that does not exist is a dash.
fn change(before: Option<f64>, after: f64) -> String {
    format!("{} > {}", before.map_or("-".to_owned(), figure), figure(after))
}

/// Returns a figure with three digits, as the papers print it.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v if v >= 0.1 => format!("{v:.3}"),
        v => format!("{v:.4}"),
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

/// Returns the conditions of a table: the paper's, then ours.
fn heading(row: &Row) -> String {
    let apart = if row.apart.is_empty() { String::new() } else { format!(", {}", row.apart) };
    let (unit, conditions) = (row.unit.as_str(), &row.conditions);
    format!("{unit}: {conditions}; ours: burst {}, {}{apart}", row.burst, row.mode)
}

/// Heading of [`wire`].
const WIRE: &str = "Mpps at wire speed";

/// Returns true if the paper with the table [`wire`] is among these.
fn has_wire(papers: &[&Paper]) -> bool {
    papers.iter().any(|paper| paper.number == "004")
}

/// All that the command prints about some papers.
struct Findings {
    papers: Vec<&'static Paper>,
    rows: Vec<Row>,
    tcp: Vec<Tcp>,
    rings: Vec<Rings>,
    lists: Vec<Lists>,
    apart: Vec<Apart>,
}

/// JSON of the command: the document of its rows, and what has rows of other kinds.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    document: Document<'a, Row>,
    papers: &'a [&'static Paper],
    tcp: &'a [Tcp],
    rings: &'a [Rings],
    lists: &'a [Lists],
    apart: &'a [Apart],
}

impl Findings {
    /// Returns the papers, each with a table for each of its own, with the conditions above it.
    fn text(&self) -> String {
        let mut text = String::new();
        if !self.rows.is_empty() {
            text +=
                &format!("ours: {}\nthe factors are this host's, not Xen's\n", place(&self.rows));
        }
        for paper in &self.papers {
            let _ = writeln!(text, "\npaper {}", paper.words());
            for rows in tables(&self.rows).filter(|rows| rows[0].paper == paper.number) {
                let _ =
                    write!(text, "\n{}\n{}", heading(&rows[0]), document::table(rows, &COLUMNS));
                if let Some(table) = batches::table(rows) {
                    let _ = write!(text, "\n{}\n{table}", batches::HEADING);
                }
            }
            let tcp = self.tcp_of(paper);
            if !tcp.is_empty() {
                let (heading, note) = (tcp::HEADING, tcp::NOTE);
                let _ = write!(text, "\n{heading}\n{note}\n{}", tcp::table(&tcp));
            }
            if paper.number == lists::PAPER && !self.rings.is_empty() {
                let (heading, table) = (rings::HEADING, rings::table(&self.rings));
                let _ = write!(text, "\n{heading}\n{}\n{table}", rings::note());
            }
            if paper.number == lists::PAPER && !self.lists.is_empty() {
                let _ = write!(text, "\n{}\n{}", lists::HEADING, lists::table(&self.lists));
            }
            if has_wire(&[paper]) {
                let _ = write!(text, "\n{WIRE}\n{}", wire());
            }
            let apart: Vec<_> = self.apart.iter().filter(|row| row.paper == paper.number).collect();
            if !apart.is_empty() {
                let _ = write!(text, "\n{}\n{}", apart::HEADING, apart::table(&apart));
            }
        }
        text.trim_start().to_owned()
    }

    /// Returns the rows of a paper by TCP.
    fn tcp_of(&self, paper: &Paper) -> Vec<&Tcp> {
        self.tcp.iter().filter(|row| row.paper == paper.number).collect()
    }

    /// Returns one JSON document, in one line.
    fn json(&self) -> Result<String, CommandError> {
        let Self { papers, rows, tcp, rings, lists, apart } = self;
        let document = Document::new("papers", rows);
        let whole = Whole { document, papers, tcp, rings, lists, apart };
        serde_json::to_string(&whole).map_err(CommandError::failed)
    }
}

/// Returns the paper's table of the packets that a wire carries.
fn wire() -> Table {
    let mut table = Table::new(&["packet + FCS#", "10 Gbit/s#", "40 Gbit/s#", "100 Gbit/s#"]);
    for bytes in [64, 128, 256, 1500, 65_535] {
        let rates = [10.0, 40.0, 100.0].map(|gbps| figures::wire_pps(gbps, bytes - 4) / 1e6);
        let rates =
            rates.map(|mpps| if mpps < 1.0 { format!("{mpps:.4}") } else { format!("{mpps:.2}") });
        table.row([bytes.to_string()].into_iter().chain(rates));
    }
    table
}

/// The measurement that a row needs: direction, frame size, queues, burst, mode, and both policies.
type Key = (Direction, usize, u16, u32, WaitModeArg, [Policy; 2]);

/// Returns the measurement of a row. `burst` replaces the paper's, if it is given.
fn key(entry: &Entry, burst: Option<u32>) -> Key {
    let burst = burst.unwrap_or(entry.burst);
    (entry.direction, entry.size, entry.queues, burst, entry.mode, entry.policies)
}

fn not_saved(file: &Path, error: &std::io::Error) -> CommandError {
    let file = file.display();
    CommandError::Failed(format!("--save {file}: {error}, expected a file in a writable directory"))
}

/// Runs the command.
///
/// # Errors
///
/// The command line asks for something impossible, a part of a rig failed, or the rows of
/// `lab/bench` cannot be read.
pub fn run(args: &PapersArgs) -> Result<(), CommandError> {
    let papers = PAPERS.iter().filter(|paper| args.paper.0.contains(&paper.number));
    let papers: Vec<&'static Paper> = papers.collect();
    if let Some(file) = &args.on_xen {
        return xen::run(file, &papers, args.output.json);
    }
    let timing = Timing::short(args.seconds, None)?;
    // All that may be missing is told before anything is measured.
    if let Some(file) = &args.save {
        std::fs::File::create(file).map_err(|e| not_saved(file, &e))?;
    }
    args.tcp.map(|_| tcp::check()).transpose()?;
    let page = args.output.report.as_deref().map(Destination::at).transpose()?;
    let entries = figures::entries(&args.paper.0);
    let has_lists = papers.iter().any(|paper| paper.number == lists::PAPER);
    let (rings, lists) = if has_lists { (rings::CASES, lists::CASES) } else { (0, 0) };
    let mut keys: Vec<Key> = Vec::new();
    for key in entries.iter().map(|entry| key(entry, args.burst)) {
        // Rows of several papers may need the same measurement.
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    // Each measurement is a contest of the two policies.
    let progress = Progress::new(keys.len() + rings + lists, args.output.json);
    let mut measured: Vec<(Key, [packets::Row; 2])> = Vec::new();
    for (number, &key) in keys.iter().enumerate() {
        let (direction, size, queues, burst, mode, policies) = key;
        let api = Api::Copy;
        let point = Point { direction, size, queues, burst, mode, api, rate: None, timed: 0 };
        let what = match queues {
            1 => point.words(),
            _ => format!("{} by {queues} queues", point.words()),
        };
        let mut show = |part| progress.show(number, &what, part);
        let outcome = contest::run(&point, &policies, timing, &mut show)?;
        let rows = [0, 1].map(|at| packets::Row::of(&point, &policies, at, &outcome));
        measured.push((key, rows));
    }
    let (mut in_rings, mut in_lists) = (Vec::new(), Vec::new());
    if has_lists {
        in_rings = rings::measure(timing, &mut |number, what, part| {
            progress.show(keys.len() + number, what, part);
        })?;
        in_lists = lists::measure(timing, &mut |number, what, part| {
            progress.show(keys.len() + rings + number, what, part);
        })?;
    }
    progress.done();
    // Each row of a paper then finds its measurement.
    let found = |entry: &Entry| measured.iter().find(|(other, _)| *other == key(entry, args.burst));
    let rows = |entry: &Entry| found(entry).map(|(_, rows)| Row::of(entry, rows));
    let rows: Vec<Row> = entries.iter().filter_map(rows).collect();
    let tcp = match args.tcp {
        Some(seconds) => tcp::measure(&papers, &entries, seconds, args.output.json)?,
        None => Vec::new(),
    };
    let apart = apart::of(&args.paper.0, args.tcp.is_some());
    let findings = Findings { papers, rows, tcp, rings: in_rings, lists: in_lists, apart };
    if let Some(file) = &args.save {
        std::fs::write(file, findings.json()? + "\n").map_err(|e| not_saved(file, &e))?;
    }
    if let Some(page) = page {
        page.write(&page::of(&findings))?;
    }
    match args.output.json {
        true => output::line(findings.json()?),
        false => output::line(findings.text()),
    }
}
