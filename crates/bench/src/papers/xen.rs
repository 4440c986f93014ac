//! The papers' rows beside those of `lab/bench`: counts of instructions in a real Xen under
//! emulation, one of which is a nanosecond.

use super::apart::{self, Apart};
use super::figures::{self, Entry, Paper, Unit};
use super::{change, figure};
use crate::rig::Direction;
use grantway_command::args::WaitModeArg;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::table::Table;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

/// Document that `lab/bench` writes.
#[derive(Debug, Deserialize)]
struct Lab {
    bench: String,
    clock: String,
    rows: Vec<LabRow>,
}

/// A row of `lab/bench`.
#[derive(Debug, Clone, Deserialize)]
struct LabRow {
    setup: String,
    way: String,
    frames: String,
    mpps: f64,
    gbps: f64,
    #[serde(default)]
    backend: Half,
}

/// Account of the backend by itself.
#[derive(Debug, Clone, Default, Deserialize)]
struct Half {
    burst: Option<u32>,
}

impl LabRow {
    /// Returns the frames in the lab's words, with their number at a time if the row has it.
    fn frames(&self) -> String {
        match self.backend.burst {
            Some(burst) if !self.frames.contains("at once") => {
                format!("{}, {burst} at once", self.frames)
            }
            _ => self.frames.clone(),
        }
    }
}

/// Figures of one set-up of the lab.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Side {
    /// Name of the set-up.
    setup: String,
    /// Figure in the row's unit.
    value: f64,
}

/// A paper's row, and a pair of rows of the lab.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    paper: &'static str,
    conditions: &'static str,
    direction: Direction,
    size: usize,
    queues: u16,
    unit: Unit,
    paper_before: Option<f64>,
    paper_after: f64,
    paper_factor: Option<f64>,
    /// Frames of the lab's rows, in its words.
    frames: Option<String>,
    /// The lab's figures: the kernel's netback or our copying, and the paper's proposal.
    before: Option<Side>,
    after: Option<Side>,
    /// Ratio of `after` to `before`.
    factor: Option<f64>,
    /// Reason for which the lab has no such row.
    reason: Option<String>,
}

/// JSON of the command.
#[derive(Serialize)]
struct Whole<'a> {
    bench: &'static str,
    version: &'static str,
    host: &'static str,
    clock: &'a str,
    papers: &'a [&'static Paper],
    rows: &'a [Row],
    tcp: &'a [Tcp],
    apart: &'a [Apart],
}

/// TCP of stock guests, in one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Tcp {
    /// Direction, in the lab's words.
    way: &'static str,
    /// Set-ups and their Gbit/s.
    sides: Vec<Side>,
}

/// Set-ups of the lab that stock guests send TCP through.
const STOCK: [&str; 3] = ["kernel netback", "our backend, TAP", "our own bridge"];
const TCP: &str = "TCP";

/// Returns the direction in the lab's words.
fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Tx => "guest to dom0",
        Direction::Rx => "dom0 to guest",
        Direction::GuestToGuest | Direction::RoundTrip => "guest to guest",
    }
}

impl Lab {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not of `lab/bench`.
    fn read(file: &Path) -> Result<Self, CommandError> {
        let named = |error: &dyn std::fmt::Display| {
            let file = file.display();
            CommandError::Failed(format!(
                "--on-xen {file}: {error}; `make lab-bench` writes this file"
            ))
        };
        let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
        let lab: Self = serde_json::from_str(&text).map_err(|error| named(&error))?;
        match lab.bench.as_str() {
            "lab" => Ok(lab),
            other => Err(named(&format!("found bench {other:?}, expected \"lab\""))),
        }
    }

    fn row(&self, setup: &str, way: &str, frames: &str) -> Option<&LabRow> {
        let is = |row: &&LabRow| row.setup == setup && row.way == way && row.frames == frames;
        self.rows.iter().find(is)
    }

    /// Returns the rows of the lab that are nearest to a row of a paper: guests that are one
    /// program, with the paper's burst, otherwise our frontend in Linux guests. Each of the
    /// set-ups before the proposal makes one pair.
    fn pairs(&self, entry: &Entry) -> Vec<Row> {
        let way = way(entry.direction);
        let [before, after] = entry.policies.map(|policy| policy.as_str());
        let (wait, first) = match entry.mode {
            WaitModeArg::Busy => ("poll", None),
            _ => ("sleep", Some("kernel netback, sleep".to_owned())),
        };
        let program = |policy: &str| format!("unikernel, {policy}, {wait}");
        let mut bursts = vec![entry.burst, 32];
        bursts.dedup();
        for burst in bursts {
            let frames = format!("{} B, {burst} at once", entry.size);
            if let Some(found) = self.row(&program(after), way, &frames) {
                let befores = first.iter().cloned().chain([program("copy")]);
                let befores = befores.filter_map(|setup| self.row(&setup, way, &frames));
                return befores.map(|before| Row::of(entry, before, found)).collect();
            }
        }
        let frames = format!("{} B", entry.size);
        let linux = |policy: &str| self.row(&format!("our frontend, {policy}"), way, &frames);
        let found = linux(after).filter(|_| entry.mode != WaitModeArg::Busy);
        let mut befores = vec![before, "copy"];
        befores.dedup();
        let befores = befores.into_iter().filter_map(linux);
        found.map_or(Vec::new(), |found| befores.map(|b| Row::of(entry, b, found)).collect())
    }

    /// Returns the rows for a row of a paper; if there is none, one with the reason.
    fn rows(&self, entry: &Entry) -> Vec<Row> {
        let reason = if entry.queues > 1 {
            "our frontend has one queue in lab/bench".to_owned()
        } else {
            let pairs = self.pairs(entry);
            if !pairs.is_empty() {
                return pairs;
            }
            let part = if entry.mode == WaitModeArg::Busy { "image-poll" } else { "image" };
            format!("not in this file: make lab-bench PART={part}")
        };
        vec![Row { reason: Some(reason), ..Row::empty(entry) }]
    }

    /// Returns TCP of stock guests in each direction that the file has.
    fn tcp(&self) -> Vec<Tcp> {
        let ways = Direction::ONE_WAY.map(way);
        let of = |way| {
            let rows = STOCK.into_iter().filter_map(|setup| self.row(setup, way, TCP));
            let side = |row: &LabRow| Side { setup: row.setup.clone(), value: row.gbps };
            Tcp { way, sides: rows.map(side).collect() }
        };
        ways.map(of).into_iter().filter(|tcp| !tcp.sides.is_empty()).collect()
    }
}

impl Row {
    fn empty(entry: &Entry) -> Self {
        Self {
            paper: entry.paper,
            conditions: entry.conditions,
            direction: entry.direction,
            size: entry.size,
            queues: entry.queues,
            unit: entry.unit,
            paper_before: entry.before,
            paper_after: entry.after,
            paper_factor: entry.factor(),
            frames: None,
            before: None,
            after: None,
            factor: None,
            reason: None,
        }
    }

    fn of(entry: &Entry, before: &LabRow, after: &LabRow) -> Self {
        let side = |row: &LabRow| {
            let value = match entry.unit {
                Unit::Mpps => row.mpps,
                Unit::Gbps => row.gbps,
            };
            Side { setup: row.setup.clone(), value }
        };
        let (before, frames) = (side(before), after.frames());
        let after = side(after);
        Self {
            frames: Some(frames),
            factor: Some(after.value / before.value),
            before: Some(before),
            after: Some(after),
            ..Self::empty(entry)
        }
    }

    fn cells(&self) -> [String; 8] {
        let factor = |factor: Option<f64>| factor.map_or("-".to_owned(), |f| format!("{f:.2}"));
        let (ours, setups) = match (&self.before, &self.after) {
            (Some(before), Some(after)) => (
                change(Some(before.value), after.value),
                format!("{} > {}", before.setup, after.setup),
            ),
            _ => ("-".to_owned(), self.reason.clone().unwrap_or_default()),
        };
        [
            self.direction.words().to_owned(),
            self.size.to_string(),
            self.queues.to_string(),
            change(self.paper_before, self.paper_after),
            factor(self.paper_factor),
            ours,
            factor(self.factor),
            match &self.frames {
                Some(frames) => format!("{setups}; {frames}"),
                None => setups,
            },
        ]
    }
}

const HEADINGS: [&str; 8] = [
    "direction",
    "bytes#",
    "queues#",
    "paper#",
    "factor#",
    "ours#",
    "factor#",
    "ours: before > after",
];
const REASON: &str = "lab/bench has no such row; see grantway bench papers without --on-xen";

/// Returns the rows of the papers of which the lab has nothing.
fn rest(papers: &[&'static Paper]) -> Vec<Apart> {
    let numbers: Vec<_> = papers.iter().map(|paper| paper.number).collect();
    let mut rest = apart::of(&numbers, false);
    // Of TCP the lab has a table.
    rest.retain(|row| matches!(row.paper, "002" | "003"));
    rest.iter_mut().for_each(|row| row.reason = REASON);
    if numbers.contains(&"002") {
        let all = Apart {
            paper: "002",
            conditions: "one by one and in lists: four streams, a rule, filters, one queue",
            figure: "+4 to +35.1 %",
            reason: REASON,
        };
        rest.insert(0, all);
    }
    rest
}

/// Returns the tables of these papers.
fn text(clock: &str, papers: &[&Paper], rows: &[Row], tcp: &[Tcp], rest: &[Apart]) -> String {
    let mut text = format!("ours: Xen under emulation, {clock}; generator to checker\n");
    for paper in papers {
        let _ = writeln!(text, "\npaper {}", paper.words());
        let own: Vec<Row> = rows.iter().filter(|row| row.paper == paper.number).cloned().collect();
        for rows in own.chunk_by(|a, b| a.conditions == b.conditions) {
            let mut table = Table::new(&HEADINGS);
            rows.iter().for_each(|row| table.row(row.cells()));
            let _ = write!(text, "\n{}: {}\n{table}", rows[0].unit.as_str(), rows[0].conditions);
        }
        let rest: Vec<_> = rest.iter().filter(|row| row.paper == paper.number).collect();
        if !rest.is_empty() {
            let _ = write!(text, "\n{}\n{}", apart::HEADING, apart::table(&rest));
        }
    }
    if !tcp.is_empty() {
        let mut table = Table::new(&["way", "set-up", "Gbit/s#"]);
        for tcp in tcp {
            for side in &tcp.sides {
                table.row([tcp.way, &side.setup, &figure(side.value)]);
            }
        }
        let _ = write!(text, "\nTCP of stock guests (iperf3), which support only copy\n{table}");
    }
    text
}

/// Runs the command with the rows of `file`.
///
/// # Errors
///
/// The file cannot be read, or is not of `lab/bench`.
pub fn run(file: &Path, papers: &[&'static Paper], json: bool) -> Result<(), CommandError> {
    let lab = Lab::read(file)?;
    let numbers: Vec<_> = papers.iter().map(|paper| paper.number).collect();
    let entries = figures::entries(&numbers);
    let rows: Vec<Row> = entries.iter().flat_map(|entry| lab.rows(entry)).collect();
    let (tcp, rest) = (lab.tcp(), rest(papers));
    if !json {
        return output::line(text(&lab.clock, papers, &rows, &tcp, &rest));
    }
    let whole = Whole {
        bench: "papers",
        version: grantway_command::VERSION,
        host: "xen",
        clock: &lab.clock,
        papers,
        rows: &rows,
        tcp: &tcp,
        apart: &rest,
    };
    output::line(serde_json::to_string(&whole).map_err(CommandError::failed)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures::PAPERS;

    fn row(setup: &str, way: &str, frames: &str, mpps: f64) -> LabRow {
        let [setup, way, frames] = [setup, way, frames].map(str::to_owned);
        LabRow { setup, way, frames, mpps, gbps: 10.0 * mpps, backend: Half::default() }
    }

    fn lab(rows: Vec<LabRow>) -> Lab {
        Lab { bench: "lab".into(), clock: String::new(), rows }
    }

    fn entry(paper: &str, mode: WaitModeArg, direction: Direction, size: usize) -> Entry {
        let is = |entry: &Entry| {
            (entry.mode, entry.direction, entry.size, entry.queues) == (mode, direction, size, 1)
        };
        figures::entries(&[paper]).into_iter().find(is).unwrap()
    }

    #[test]
    fn a_row_has_the_burst_of_its_paper_and_each_set_up_of_before() {
        let lab = lab(vec![
            row("unikernel, copy, sleep", "guest to dom0", "64 B, 32 at once", 0.7),
            row("unikernel, copy, sleep", "guest to dom0", "64 B, 1 at once", 0.4),
            row("unikernel, persistent, sleep", "guest to dom0", "64 B, 32 at once", 1.5),
            row("unikernel, persistent, sleep", "guest to dom0", "64 B, 1 at once", 0.6),
            row("kernel netback, sleep", "guest to dom0", "64 B, 1 at once", 0.2),
            row("our frontend, persistent", "guest to dom0", "64 B", 9.0),
        ]);
        let rows = lab.rows(&entry("000", WaitModeArg::Adaptive, Direction::Tx, 64));
        let factors: Vec<_> = rows.iter().map(|row| row.factor.unwrap()).collect();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!((factors[0] - 3.0).abs() < 1e-9 && (factors[1] - 1.5).abs() < 1e-9, "{rows:?}");
        assert!(rows.iter().all(|row| row.frames.as_deref() == Some("64 B, 1 at once")));
    }

    #[test]
    fn linux_guests_stand_in_and_polling_has_no_substitute() {
        let lab = lab(vec![
            row("our frontend, copy", "dom0 to guest", "64 B", 0.4),
            LabRow {
                backend: Half { burst: Some(32) },
                ..row("our frontend, persistent", "dom0 to guest", "64 B", 1.2)
            },
        ]);
        let rows = lab.rows(&entry("000", WaitModeArg::Adaptive, Direction::Rx, 64));
        let [only] = &rows[..] else { panic!("one pair: {rows:?}") };
        assert_eq!(only.after.as_ref().unwrap().setup, "our frontend, persistent");
        assert_eq!(only.frames.as_deref(), Some("64 B, 32 at once"), "not the paper's burst");
        let minios = lab.rows(&entry("000", WaitModeArg::Busy, Direction::Rx, 64));
        assert!(minios[0].reason.as_ref().unwrap().ends_with("PART=image-poll"), "{minios:?}");
    }

    #[test]
    fn no_row_of_a_paper_is_left_out_in_silence() {
        let numbers = PAPERS.map(|paper| paper.number);
        let lab = lab(Vec::new());
        for entry in figures::entries(&numbers) {
            let rows = lab.rows(&entry);
            let [row] = &rows[..] else { panic!("one row: {rows:?}") };
            let reason = row.reason.as_ref().unwrap();
            let word = if entry.queues > 1 { "one queue" } else { "make lab-bench PART=" };
            assert!(reason.contains(word), "{reason}");
        }
        let papers: Vec<_> = PAPERS.iter().collect();
        for number in ["002", "003"] {
            assert!(rest(&papers).iter().any(|row| row.paper == number), "{number}");
        }
    }
}
