//! `grantway bench latency`: the time that packets are under way at a fixed rate. A packet's time
//! counts from the moment at which the packet was due.
//!
//! - [`page`]: the report.

mod page;

use super::args::LatencyArgs;
use super::contest::{self, Outcome, Point};
use super::document::{self, Column, Document, Shown};
use super::probe::{Machine, State};
use super::progress::Progress;
use super::rig::Direction;
use super::slices::Timing;
use grantway_backend::policy::Policy;
use grantway_command::args::Api;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::Destination;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Figures of one policy on one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The buffer policy.
    pub policy: String,
    /// Wait mode of the ends: `busy`, `adaptive` or `interrupt`. The sender never sleeps.
    pub mode: String,
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Packets per second that were offered.
    pub offered_pps: u64,
    /// Packets per second that arrived.
    pub arrived_pps: f64,
    /// Packets that were timed.
    pub timed: u64,
    /// Packets lost, timed or not.
    pub lost: u64,
    /// Nanoseconds that half of the timed packets did not exceed.
    pub p50_ns: u64,
    /// Nanoseconds that 90 % of them did not exceed.
    pub p90_ns: u64,
    /// Nanoseconds that 99 % of them did not exceed.
    pub p99_ns: u64,
    /// Nanoseconds that 99.9 % of them did not exceed.
    pub p999_ns: u64,
    /// Nanoseconds of the slowest timed packet.
    pub max_ns: u64,
    /// The whole distribution: percentile from 0 to 100, and nanoseconds.
    pub curve: Vec<(f64, u64)>,
    /// Sleeps of all ends that an event ended, per second.
    pub wakeups_per_second: f64,
    /// Host that the row was measured on.
    pub host: String,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    pub machine: Machine,
    /// Number of slices that the figures are from.
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
    fn of(
        point: &Point,
        (subject, policy): (usize, Policy),
        outcome: &Outcome,
    ) -> Result<Self, CommandError> {
        let total = outcome.total(subject);
        let histogram = histogram(&total.tally.latency)?;
        let at = |percentile| histogram.value_at_percentile(percentile);
        Ok(Self {
            policy: policy.as_str().to_owned(),
            mode: outcome.mode.clone(),
            direction: point.direction,
            size: point.size,
            offered_pps: point.rate.unwrap_or(0),
            arrived_pps: total.tally.rate(),
            timed: histogram.len(),
            lost: total.tally.lost,
            p50_ns: at(50.0),
            p90_ns: at(90.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            max_ns: histogram.max(),
            curve: curve(&histogram),
            wakeups_per_second: total.tally.of_all(|end| end.wakeups) as f64 / total.tally.seconds,
            host: outcome.host.clone(),
            machine: total.machine,
            n: total.slices,
        })
    }
}

/// Makes a histogram of the numbers of packets by nanoseconds.
///
/// # Errors
///
/// No packet was timed.
pub fn histogram(counts: &BTreeMap<u64, u64>) -> Result<Histogram<u64>, CommandError> {
    // The precision of two digits is that of the recording.
    let mut histogram = Histogram::new(2).map_err(CommandError::failed)?;
    for (&nanos, &packets) in counts {
        histogram.record_n(nanos, packets).map_err(CommandError::failed)?;
    }
    match histogram.is_empty() {
        false => Ok(histogram),
        true => Err(CommandError::Failed(
            "no timed packet arrived; use --every 1 or more --seconds".into(),
        )),
    }
}

/// Returns the distribution in steps. Five steps at a time halve the distance to 100 %.
fn curve(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    let steps = histogram.iter_quantiles(5);
    steps.map(|step| (step.quantile_iterated_to() * 100.0, step.value_iterated_to())).collect()
}

/// Returns a time in words, with a unit that suits it.
pub fn time(nanos: u64) -> String {
    match nanos {
        0..1000 => format!("{nanos} ns"),
        1000..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

const COLUMNS: [Column<Row>; 15] = {
    use Shown::{Always, Varying};
    [
        Column::of("direction", Varying, |r| r.direction.words().into()),
        Column::of("bytes#", Varying, |r| r.size.to_string()),
        Column::of("packets/s#", Varying, |r| r.offered_pps.to_string()),
        Column::of("mode", Varying, |r| r.mode.clone()),
        Column::of("policy", Always, |r| r.policy.clone()),
        Column::of("p50#", Always, |r| time(r.p50_ns)),
        Column::of("p90#", Always, |r| time(r.p90_ns)),
        Column::of("p99#", Always, |r| time(r.p99_ns)),
        Column::of("p99.9#", Always, |r| time(r.p999_ns)),
        Column::of("max#", Always, |r| time(r.max_ns)),
        Column::of("timed#", Always, |r| r.timed.to_string()),
        Column::of("lost#", Always, |r| r.lost.to_string()),
        Column::of("wake-ups/s#", Always, |r| format!("{:.0}", r.wakeups_per_second)),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// Returns the place of the set-up in words.
fn place(rows: &[Row]) -> String {
    let host = rows.first().map_or("", |row| row.host.as_str());
    document::place(host, rows.iter().map(|row| row.direction.guests()).max().unwrap_or(1))
}

/// Returns the conditions, and the table under them.
fn text(rows: &[Row]) -> String {
    let place = place(rows);
    let conditions = document::conditions(rows, &COLUMNS);
    let table = document::table(rows, &COLUMNS);
    format!("{place}\n{conditions}; times count from when a packet was due\n\n{table}")
}

/// Runs the command.
///
/// # Errors
///
/// A part of a rig failed.
pub fn run(args: &LatencyArgs) -> Result<(), CommandError> {
    let (points, policies) = (points(args), &args.policy.0);
    let timing = Timing::long(args.seconds, None)?;
    let page = args.output.report.as_deref().map(Destination::at).transpose()?;
    let progress = Progress::new(points.len(), args.output.json);
    let mut rows = Vec::new();
    for (number, point) in points.iter().enumerate() {
        let mut show = |part| progress.show(number, &point.words(), part);
        let outcome = contest::run(point, policies, timing, &mut show)?;
        for (subject, &policy) in policies.iter().enumerate() {
            rows.push(Row::of(point, (subject, policy), &outcome)?);
        }
    }
    progress.done();
    if let Some(page) = page {
        page.write(&page::of(&rows))?;
    }
    match args.output.json {
        true => Document::new("latency", &rows).print(),
        false => output::line(text(&rows)),
    }
}

/// Returns all combinations of the command line's values.
fn points(args: &LatencyArgs) -> Vec<Point> {
    let mut points = Vec::new();
    for &direction in &args.direction.0 {
        for &size in &args.size.0 {
            for &rate in &args.rate.0 {
                points.extend(args.mode.0.iter().map(|&mode| Point {
                    direction,
                    size,
                    queues: 1,
                    burst: 1,
                    mode,
                    api: Api::Copy,
                    rate: Some(rate),
                    timed: args.every,
                }));
            }
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_counts() {
        let counts = BTreeMap::from([(100, 500), (1000, 480), (10_000, 19), (5_000_000, 1)]);
        let histogram = histogram(&counts).unwrap();
        let at = |percentile| histogram.value_at_percentile(percentile);
        let near = |found: u64, expected: u64| found.abs_diff(expected) <= expected / 64;
        assert!(near(at(50.0), 100) && near(at(90.0), 1000) && near(at(99.0), 10_000));
        assert!(near(histogram.max(), 5_000_000));
        let curve = curve(&histogram);
        assert!(curve.is_sorted() && curve[0].0 == 0.0, "{curve:?}");
        let last = *curve.last().unwrap();
        assert!(last.0 == 100.0 && near(last.1, 5_000_000), "{curve:?}");
    }

    #[test]
    fn nothing_timed_is_told() {
        let refused = histogram(&BTreeMap::new()).unwrap_err().to_string();
        assert!(refused.contains("--every 1"), "{refused}");
    }

    #[test]
    fn times_have_units() {
        assert_eq!([999, 1500, 2_000_000].map(time), ["999 ns", "1.5 us", "2.0 ms"]);
    }
}
