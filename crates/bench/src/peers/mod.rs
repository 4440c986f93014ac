//! `grantway bench peers`: staging against other ways to carry packets between two processes of one
//! machine. These are memif and vhost-user, by testpmd of DPDK, and the kernel.
//!
//! - [`args`]: the command line.
//! - [`end`]: what one program of a link is asked; [`testpmd`]: a testpmd; [`tap_end`]: a program that
//!   reads and writes a TAP, and [`plain`]: its process; [`link`]: two programs, and the link between.
//! - [`contest`]: Grantway and its peers in turns; [`page`]: the report.

pub mod args;
mod contest;
mod end;
mod link;
mod page;
mod plain;
pub mod tap_end;
mod testpmd;

use super::document::{self, Column, Document, Shown};
use super::latency::{histogram, time};
use super::probe::{Machine, State, processors};
use super::progress::Progress;
use super::rig::Direction;
use super::slices::Timing;
use super::stats::Ratio;
use super::tools::{Watch, check_programs, check_rights};
use args::PeersArgs;
use contest::{Contender, Outcome, Point};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::{self, Destination};
use serde::Serialize;
use std::collections::BTreeMap;

/// Figures of one contender on one point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the contender.
    pub contender: String,
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Burst in frames: the best of those that were tried.
    pub burst: u32,
    /// Behaviour of the contender's ends when there is no work.
    pub mode: String,
    /// Millions of packets or round trips per second: the median of the slices with its interval.
    pub mpps: Ratio,
    /// Gbit/s at layer 2, FCS not counted; for a round trip, those of one direction.
    pub gbps: f64,
    /// Mean nanoseconds of a round trip; `None` for one direction.
    pub mean_ns: Option<f64>,
    /// Nanoseconds that half of the timed round trips did not exceed; `None` if none was timed.
    pub p50_ns: Option<u64>,
    /// Nanoseconds that 99 % of the timed round trips did not exceed.
    pub p99_ns: Option<u64>,
    /// Processors that the contender's two processes had in the mean. If less than two, another
    /// process ran, or they slept.
    pub processors: f64,
    /// Ratios of Grantway's rates to this row's rate; empty for Grantway's own rows.
    pub ratios: Vec<Against>,
    /// Command lines of backend and guest; DIR is a folder.
    pub commands: [String; 2],
    /// Host that the row was measured on: `embedded`, or `linux` for a peer, which needs no Xen.
    pub host: String,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    pub machine: Machine,
    /// Number of slices that the figures are from.
    pub n: usize,
}

/// Comparison of Grantway with a peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// Name of Grantway's contender.
    pub contender: String,
    /// Ratio of its rate to the peer's, by pairs of slices.
    pub ratio: Ratio,
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
    fn of(
        point: &Point,
        contenders: &[Contender],
        subject: usize,
        outcome: &Outcome,
    ) -> Result<Self, CommandError> {
        let (machine, kept) = outcome.series.counted(subject);
        let rates: Vec<f64> = kept.iter().map(|found| found.rate / 1e6).collect();
        let who = contenders.get(subject).copied().map_or("", Contender::words);
        let (Some(mpps), Some(standing)) = (Ratio::of(&rates), outcome.standings.get(subject))
        else {
            return Err(CommandError::Failed(format!("{who}, {}: no slice", point.words())));
        };
        // The distribution of all slices together, if packets are timed.
        let mut latency = BTreeMap::new();
        for (&nanos, &packets) in kept.iter().flat_map(|found| &found.latency) {
            *latency.entry(nanos).or_default() += packets;
        }
        let timed = if latency.is_empty() { None } else { Some(histogram(&latency)?) };
        let at = |percentile| timed.as_ref().map(|timed| timed.value_at_percentile(percentile));
        let is_round = point.direction == Direction::RoundTrip;
        Ok(Self {
            contender: who.to_owned(),
            direction: point.direction,
            size: point.size,
            burst: standing.burst,
            mode: standing.mode.clone(),
            gbps: mpps.median * point.size as f64 * 8.0 / 1e3,
            mean_ns: is_round.then(|| 1e3 / mpps.median),
            mpps,
            p50_ns: at(50.0),
            p99_ns: at(99.0),
            processors: kept.iter().map(|found| found.processors).sum::<f64>() / kept.len() as f64,
            ratios: ratios(contenders, subject, outcome),
            commands: standing.commands.clone(),
            host: standing.host.clone(),
            machine,
            n: kept.len(),
        })
    }

    /// Returns the ratio of Grantway's contender `number` in words; empty if there is none.
    fn ratio(&self, number: usize) -> String {
        self.ratios.get(number).map(|against| against.ratio.text()).unwrap_or_default()
    }
}

/// Returns the ratios of Grantway's rates to a peer's, from pairs of slices that were in one state.
fn ratios(contenders: &[Contender], subject: usize, outcome: &Outcome) -> Vec<Against> {
    let Some(Contender::Peer(_)) = contenders.get(subject) else { return Vec::new() };
    let ours = contenders.iter().enumerate();
    let ours = ours.filter(|(_, who)| matches!(who, Contender::Grantway(_)));
    let against = |(at, who): (usize, &Contender)| {
        let ratios = outcome.series.ratios(at, subject, |found| found.rate);
        Ratio::of(&ratios).map(|ratio| Against { contender: who.words().to_owned(), ratio })
    };
    ours.filter_map(against).collect()
}

/// Columns of the table.
const COLUMNS: [Column<Row>; 15] = {
    use Shown::{Always, Filled, Varying};
    [
        Column::of("direction", Varying, |r| r.direction.words().into()),
        Column::of("bytes#", Always, |r| r.size.to_string()),
        Column::of("contender", Always, |r| r.contender.clone()),
        Column::of("mode", Varying, |r| r.mode.clone()),
        Column::of("burst#", Varying, |r| r.burst.to_string()),
        Column::of("Mpps#", Always, |r| r.mpps.text()),
        Column::of("Gbit/s#", Always, |r| format!("{:.2}", r.gbps)),
        Column::of("mean#", Filled, |r| r.mean_ns.map(|ns| time(ns as u64)).unwrap_or_default()),
        Column::of("p50#", Filled, |r| r.p50_ns.map(time).unwrap_or_default()),
        Column::of("p99#", Filled, |r| r.p99_ns.map(time).unwrap_or_default()),
        Column::of("CPUs#", Always, |r| format!("{:.2}", r.processors)),
        Column::of("ratio#", Filled, |r| r.ratio(0)),
        Column::of("lending#", Filled, |r| r.ratio(1)),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// Runs the command.
///
/// # Errors
///
/// Something is missing on this machine, a contender did not start, or a signal asked this process
/// to end. Nothing of the set-up is left then.
pub fn run(args: &PeersArgs) -> Result<(), CommandError> {
    let timing = Timing::short(args.seconds, args.pairs)?;
    // All that may be missing is told before anything is started.
    if args.peer.0.iter().any(|link| link.has_testpmd()) {
        check_programs(&testpmd::PROGRAMS)?;
    }
    if args.peer.0.iter().any(|link| link.has_interfaces()) {
        let without = |e| {
            let of = "or remove veth, tap and plain-tap from --peer";
            CommandError::Failed(format!("{e}, {of}"))
        };
        check_rights().map_err(without)?;
        check_programs(&[("ip", "iproute2")])?;
    }
    let page = args.output.report.as_deref().map(Destination::at).transpose()?;
    let watch = Watch::start()?;
    let points = points(args);
    let progress = Progress::new(points.len(), args.output.json);
    let mut rows = Vec::new();
    // Grantway's contenders come first, as the columns of ratios expect.
    for (number, point) in points.iter().enumerate() {
        let ours = point.apis().iter().copied().map(Contender::Grantway);
        let peers = args.peer.0.iter().copied().map(Contender::Peer);
        let contenders: Vec<_> = ours.chain(peers).collect();
        let mut show = |part| progress.show(number, &point.words(), part);
        let outcome = contest::run(point, &contenders, timing, &watch, &mut show)
            // Ctrl-C ends Grantway's ends, too. Then the signal is the error, not their end.
            .map_err(|error| watch.check().err().unwrap_or(error))?;
        for subject in 0..contenders.len() {
            rows.push(Row::of(point, &contenders, subject, &outcome)?);
        }
    }
    progress.done();
    if let Some(page) = page {
        page.write(&page::of(&rows))?;
    }
    match args.output.json {
        true => Document::new("peers", &rows).print(),
        false => output::line(text(&rows)),
    }
}

/// Returns all combinations of the command line's values.
fn points(args: &PeersArgs) -> Vec<Point> {
    let mut points = Vec::new();
    for &direction in &args.direction.0 {
        // A round trip has one packet under way, so there is nothing to try.
        let bursts = match direction {
            Direction::RoundTrip => vec![1],
            _ => args.burst.0.clone(),
        };
        points.extend(args.size.0.iter().map(|&size| Point {
            direction,
            size,
            bursts: bursts.clone(),
            mode: args.mode,
        }));
    }
    points
}

/// Returns the place of the set-up in words.
fn place(rows: &[Row]) -> String {
    let host = rows.first().map_or("", |row| row.host.as_str());
    let pinned = if processors().len() > 1 { "pinned to one each" } else { "not pinned" };
    format!(
        "{host} host, {} processors, two processes at a time, {pinned}; one queue of 256 slots, \
         copy mode, no hugepages; Grantway with staging",
        processors().len()
    )
}

/// Explanation of the figures.
const NOTE: &str = "medians of slices [95 % interval]; CPUs: processor time of both processes, \
                    below 2 another program was running; ratio: Grantway's rate divided by this \
                    one's, median of pairs; lending: the ratio with the lending API";

/// Returns the conditions, the table under them, and the command line of this run.
fn text(rows: &[Row]) -> String {
    let again = report::of_this_run();
    let again = again.iter().find(|(name, _)| name == "command line");
    let head = [place(rows), document::conditions(rows, &COLUMNS), NOTE.to_owned()];
    let head: Vec<_> = head.into_iter().filter(|line| !line.is_empty()).collect();
    let (table, again) = (document::table(rows, &COLUMNS), again.map_or("", |(_, line)| line));
    format!("{}\n\n{table}\nagain: {again}", head.join("\n"))
}
