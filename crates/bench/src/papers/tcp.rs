//! Rows that the papers measured by TCP, by TCP here, too: iperf3 through TAPs, and stacks in user
//! space from guest to guest.

use super::change;
use super::figures::{Entry, Paper, Unit};
use crate::probe::Machine;
use crate::progress::Progress;
use crate::rig::Direction;
use crate::slices::Series;
use crate::stats::{Ratio, median};
use crate::stream::link::{Link, Settings};
use crate::stream::transfers;
use crate::tcp::in_turns;
use crate::tcp::ways::{Guests, How, Way};
use crate::tools::{Watch, check_programs, check_rights};
use grantway_backend::policy::Policy;
use grantway_command::args::Switch;
use grantway_command::error::CommandError;
use grantway_command::table::Table;
use serde::Serialize;

/// Heading of [`table`].
pub const HEADING: &str = "By TCP itself: Gbit/s of payload";
/// Conditions of [`table`].
pub const NOTE: &str = "Guest transmit and receive: iperf3 through the TAPs of both ends, with eight\n\
                        flows for each of several queues. Guest to guest: two stacks in user space\n\
                        on the backend's bridge, with offloads, one flow.";

/// A side of a row: a policy, and if a reader of the flows listens.
type Side = (Policy, bool);

/// A set of measurements that run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Links with this number of queues, in a direction.
    Taps(u16, Direction),
    /// Guests on the bridge.
    Bridge,
}

/// A row of a paper: conditions, direction, queues, figures before and after, and our sides.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    paper: &'static str,
    conditions: &'static str,
    direction: Direction,
    queues: u16,
    before: Option<f64>,
    after: f64,
    sides: [Side; 2],
}

impl Wanted {
    fn group(&self) -> Group {
        match self.direction {
            Direction::GuestToGuest => Group::Bridge,
            direction => Group::Taps(self.queues, direction),
        }
    }
}

/// Rows of paper 003, which has one queue and no proposal: conditions, and Gbit/s.
const MIRAGE: [(&str, f64); 3] = [
    ("guest to guest, SCHEDOP_poll with masked events", 2.75),
    ("guest to guest, SCHEDOP_block, i7-3770 (2.45 to 2.6)", 2.6),
    ("mirage-iperf, SCHEDOP_block, another machine", 1.64),
];
/// The row of paper 003 on its log of TCP: conditions, and Gbit/s without the log and with it.
const LOGGED: (&str, [f64; 2]) = ("txqueuelen 500, log of TCP off and on", [2.5, 2.1]);

/// A paper's row, and ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tcp {
    /// Number of the paper.
    pub paper: &'static str,
    /// Program, software and hardware of the paper's measurement.
    pub conditions: &'static str,
    /// Direction of the stream.
    pub direction: Direction,
    /// Number of queues.
    pub queues: u16,
    /// The paper's Gbit/s before its proposal, if it has them.
    pub paper_before: Option<f64>,
    /// The paper's Gbit/s with its proposal.
    pub paper_after: f64,
    /// Our sides: the policies, and "traced" if a reader of flows listens.
    pub sides: [String; 2],
    /// Our Gbit/s of the sides.
    pub gbps: [f64; 2],
    /// Ratio of after to before; `None` if both sides are the same, and if no pair of slices was in
    /// one state.
    pub factor: Option<Ratio>,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    pub machine: Machine,
    /// Number of slices of one second.
    pub n: usize,
}

/// Returns the rows of the papers that are measured by TCP.
fn wanted(papers: &[&Paper], entries: &[Entry]) -> Vec<Wanted> {
    // Guests have one queue for the stack in user space.
    let is_ours = |entry: &&Entry| entry.direction != Direction::GuestToGuest || entry.queues == 1;
    let by_tcp = entries.iter().filter(|entry| entry.unit == Unit::Gbps).filter(is_ours);
    let mut rows: Vec<Wanted> = by_tcp
        .map(|entry| Wanted {
            paper: entry.paper,
            conditions: entry.conditions,
            direction: entry.direction,
            queues: entry.queues,
            before: entry.before,
            after: entry.after,
            sides: entry.policies.map(|policy| match (entry.direction, policy) {
                // On the bridge nothing is mapped.
                (Direction::GuestToGuest, Policy::Map) => (Policy::Copy, false),
                (_, policy) => (policy, false),
            }),
        })
        .collect();
    if papers.iter().any(|paper| paper.number == "003") {
        let row = |conditions, before, after, traced| Wanted {
            paper: "003",
            conditions,
            direction: Direction::GuestToGuest,
            queues: 1,
            before,
            after,
            sides: [(Policy::Staging, false), (Policy::Staging, traced)],
        };
        rows.extend(MIRAGE.map(|(conditions, gbps)| row(conditions, None, gbps, false)));
        let (conditions, [off, on]) = LOGGED;
        rows.push(row(conditions, Some(off), on, true));
    }
    rows
}

/// The measurements of some rows, each with its sides.
fn groups(rows: &[Wanted]) -> Vec<(Group, Vec<Side>)> {
    let mut groups: Vec<(Group, Vec<Side>)> = Vec::new();
    for row in rows {
        let at = groups.iter().position(|(group, _)| *group == row.group());
        let at = at.unwrap_or_else(|| {
            groups.push((row.group(), Vec::new()));
            groups.len() - 1
        });
        for side in row.sides {
            if !groups[at].1.contains(&side) {
                groups[at].1.push(side);
            }
        }
    }
    groups
}

/// Checks that this machine has what the measurements need.
///
/// # Errors
///
/// The process is not root's, or a program is missing.
pub fn check() -> Result<(), CommandError> {
    check_rights()?;
    check_programs(&[("iperf3", "iperf3"), ("ip", "iproute2")])
}

/// Measures all rows of the papers that they measured by TCP, `seconds` slices of a second for each
/// side.
///
/// # Errors
///
/// A part failed, or a signal asked this process to end. Nothing of the set-up is left then.
pub fn measure(
    papers: &[&Paper],
    entries: &[Entry],
    seconds: u32,
    quiet: bool,
) -> Result<Vec<Tcp>, CommandError> {
    let rows = wanted(papers, entries);
    let groups = groups(&rows);
    let watch = Watch::start()?;
    let progress = Progress::new(groups.len(), quiet);
    let mut found = Vec::new();
    for (number, (group, sides)) in groups.iter().enumerate() {
        let mut show = |part| progress.show(number, &words(*group), part);
        let series = match *group {
            Group::Taps(queues, direction) => {
                taps(queues, direction, sides, seconds, &watch, &mut show)?
            }
            Group::Bridge => bridge(sides, seconds, &watch, &mut show)?,
        };
        found.push((*group, sides, series));
    }
    progress.done();
    let of = |row: &Wanted| {
        let (_, sides, series) = found.iter().find(|(group, ..)| *group == row.group())?;
        Some(Tcp::of(row, sides, series))
    };
    Ok(rows.iter().filter_map(of).collect())
}

fn words(group: Group) -> String {
    match group {
        Group::Taps(queues, direction) => format!("TCP, {}, queues: {queues}", direction.words()),
        Group::Bridge => "TCP, guest to guest".to_owned(),
    }
}

/// Measures links between TAPs.
fn taps(
    queues: u16,
    direction: Direction,
    sides: &[Side],
    seconds: u32,
    watch: &Watch,
    show: &mut dyn FnMut(f64),
) -> Result<Series<f64>, CommandError> {
    let start = |&(policy, _): &Side| {
        Link::start(Settings { policy, gso: Switch::On, merge: Switch::On }, queues, watch)
    };
    let mut links = sides.iter().map(start).collect::<Result<Vec<Link>, _>>()?;
    let series = transfers(&mut links, direction, seconds, watch, show)?;
    Ok(series.map(|transfer| transfer.gbps))
}

/// Measures guests on the bridge.
fn bridge(
    sides: &[Side],
    seconds: u32,
    watch: &Watch,
    show: &mut dyn FnMut(f64),
) -> Result<Series<f64>, CommandError> {
    let mut ways: Vec<Box<dyn Way>> = Vec::new();
    for &(policy, traced) in sides {
        let how = How { offloads: true, copies: true, traced };
        ways.push(Box::new(Guests::start(policy, how, watch)?));
    }
    in_turns(&mut ways, seconds, watch, show)
}

impl Tcp {
    fn of(row: &Wanted, sides: &[Side], series: &Series<f64>) -> Self {
        // Each side of a row is among those that were measured.
        let place = |side: Side| sides.iter().position(|other| *other == side).unwrap_or(0);
        let [before, after] = row.sides.map(place);
        let gbps = [before, after].map(|side| {
            let rates: Vec<f64> = series.counted(side).1.into_iter().copied().collect();
            median(&rates).unwrap_or(0.0)
        });
        let (machine, kept) = series.counted(after);
        let name = |(policy, traced): Side| {
            format!("{}{}", policy.as_str(), if traced { ", traced" } else { "" })
        };
        Self {
            paper: row.paper,
            conditions: row.conditions,
            direction: row.direction,
            queues: row.queues,
            paper_before: row.before,
            paper_after: row.after,
            sides: row.sides.map(name),
            gbps,
            factor: match before == after {
                true => None,
                false => Ratio::of(&series.ratios(after, before, |&gbps| gbps)),
            },
            machine,
            n: kept.len(),
        }
    }
}

/// Returns the table of these rows.
pub fn table(rows: &[&Tcp]) -> Table {
    let headings = [
        "conditions",
        "direction",
        "queues#",
        "paper#",
        "factor#",
        "ours#",
        "factor#",
        "policies",
        "state ns",
        "n#",
    ];
    let mut table = Table::new(&headings);
    for row in rows {
        let paper = row.paper_before.map(|before| row.paper_after / before);
        let [before, after] = row.gbps;
        let same = row.sides[0] == row.sides[1];
        table.row([
            row.conditions.to_owned(),
            row.direction.words().to_owned(),
            row.queues.to_string(),
            change(row.paper_before, row.paper_after),
            paper.map_or("-".to_owned(), |factor| format!("{factor:.2}")),
            change((!same).then_some(before), after),
            row.factor.map_or("-".to_owned(), |factor| factor.text()),
            if same { row.sides[1].clone() } else { row.sides.join(" > ") },
            row.machine.words(),
            row.n.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::figures::{PAPERS, entries};
    use super::*;

    #[test]
    fn each_row_by_tcp_has_its_measurement_and_its_sides() {
        let papers: Vec<&Paper> = PAPERS.iter().collect();
        let all = entries(&["000", "001", "002", "003", "004"]);
        let rows = wanted(&papers, &all);
        let of = |paper| rows.iter().filter(|row| row.paper == paper).count();
        // Two of the thirteen rows of bulk B are from guest to guest by several queues.
        assert_eq!((of("000"), of("003"), of("004")), (7 + 11, 4, 8));
        let groups = groups(&rows);
        for row in &rows {
            let (_, sides) = groups.iter().find(|(group, _)| *group == row.group()).unwrap();
            assert!(row.sides.iter().all(|side| sides.contains(side)), "{row:?}");
        }
        let bridge = groups.iter().find(|(group, _)| *group == Group::Bridge).unwrap();
        let staging = (Policy::Staging, false);
        let expected =
            [(Policy::Copy, false), (Policy::Persistent, false), staging, (Policy::Staging, true)];
        assert_eq!(bridge.1, expected, "nothing is mapped on the bridge");
    }
}
