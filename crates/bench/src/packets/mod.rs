//! `grantway bench packets`: packets per second, policy against policy.
//!
//! - [`end`]: one half of a set-up; [`page`]: the report.

mod end;
mod page;

use super::args::{List, PacketsArgs};
use super::contest::{self, Outcome, Point};
use super::document::{self, Column, Document, Shown};
use super::probe::{Machine, State};
use super::progress::Progress;
use super::rig::Direction;
use super::slices::Timing;
use super::stats::Ratio;
use super::tally::Tally;
use grantway_backend::policy::Policy;
use grantway_command::args::Api;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::Destination;
use serde::{Deserialize, Serialize};

/// Figures of one policy on one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The buffer policy.
    pub policy: String,
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Number of queues of each vif.
    pub queues: u16,
    /// Frames that the generator makes at a time.
    pub burst: u32,
    /// Wait mode of the ends: `busy`, `adaptive` or `interrupt`.
    pub mode: String,
    /// Way of frames from and to a frontend's buffers.
    pub api: Api,
    /// Packets per second that were offered; `None` if as many as were accepted.
    pub offered_pps: Option<u64>,
    /// Seconds that the figures are from: slices during which the state did not change.
    pub seconds: f64,
    /// Packets received in these seconds.
    pub packets: u64,
    /// Packets lost in these seconds, by their sequence numbers.
    pub lost: u64,
    /// Millions of packets per second.
    pub mpps: f64,
    /// Gbit/s at layer 2, FCS not counted.
    pub gbps: f64,
    /// The policy that this row is compared with.
    pub reference: String,
    /// Ratio of this row's rate to the reference's. `None` for the reference itself, and if no pair
    /// of slices was in one state.
    pub ratio: Option<Ratio>,
    /// Packets per interrupt of the receiving end; `None` if it was never interrupted, since it
    /// never slept.
    pub ppi: Option<f64>,
    /// Slots per interrupt of the receiving end.
    pub spi: Option<f64>,
    /// Packets per turn of the receiving end that found packets.
    pub ppn: Option<f64>,
    /// Slots per turn that found packets.
    pub spn: Option<f64>,
    /// Packets that the backend took from guests in these seconds, including dropped ones.
    pub taken: u64,
    /// Packets that the backend gave to guests in these seconds.
    pub given: u64,
    /// Grant copies, maps and unmaps of each end per packet that this end handled, added over all
    /// ends. A backend handles the packets that it takes from guests or, if guests only receive,
    /// those that it gives.
    pub grant_ops_per_packet: f64,
    /// Grant copies per packet.
    pub copies_per_packet: f64,
    /// Grants mapped per packet.
    pub maps_per_packet: f64,
    /// Grants unmapped per packet.
    pub unmaps_per_packet: f64,
    /// Bytes that grant copies moved per packet. Bytes that a processor moved in mapped pages are
    /// not counted.
    pub copied_bytes_per_packet: f64,
    /// Notifications per packet, added over all ends.
    pub notifies_per_packet: f64,
    /// Sleeps that an event ended, per packet, added over all ends.
    pub wakeups_per_packet: f64,
    /// Sleeps that an event ended, per second, added over all ends.
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
    /// Makes the row of one policy from an outcome. The first policy is the reference.
    pub fn of(point: &Point, policies: &[Policy], subject: usize, outcome: &Outcome) -> Self {
        // Figures are sums over slices of one state; ratios are of pairs of slices.
        let total = outcome.total(subject);
        let tally = &total.tally;
        let ratios = outcome.series.ratios(subject, 0, Tally::rate);
        let rate = tally.rate();
        // A counter that stayed 0 makes no quotient.
        let per = |count: u64, of: u64| (of != 0).then(|| count as f64 / of as f64);
        let name = |at: usize| policies.get(at).map_or("", |policy| policy.as_str()).to_owned();
        Self {
            policy: name(subject),
            direction: point.direction,
            size: point.size,
            queues: point.queues,
            burst: point.burst,
            mode: outcome.mode.clone(),
            api: point.api,
            offered_pps: point.rate,
            seconds: tally.seconds,
            packets: tally.packets,
            lost: tally.lost,
            mpps: rate / 1e6,
            gbps: rate * point.size as f64 * 8.0 / 1e9,
            reference: name(0),
            ratio: if subject == 0 { None } else { Ratio::of(&ratios) },
            ppi: per(tally.packets, tally.interrupts),
            spi: per(tally.slots, tally.interrupts),
            ppn: per(tally.packets, tally.turns),
            spn: per(tally.slots, tally.turns),
            taken: tally.taken,
            given: tally.given,
            grant_ops_per_packet: tally.per_packet(|end| end.copies + end.maps + end.unmaps),
            copies_per_packet: tally.per_packet(|end| end.copies),
            maps_per_packet: tally.per_packet(|end| end.maps),
            unmaps_per_packet: tally.per_packet(|end| end.unmaps),
            copied_bytes_per_packet: tally.per_packet(|end| end.copied_bytes),
            notifies_per_packet: tally.per_packet(|end| end.notifies),
            wakeups_per_packet: tally.per_packet(|end| end.wakeups),
            wakeups_per_second: tally.of_all(|end| end.wakeups) as f64 / tally.seconds,
            host: outcome.host.clone(),
            machine: total.machine,
            n: total.slices,
        }
    }
}

/// Columns of the table.
const COLUMNS: [Column<Row>; 22] = {
    use Shown::{Always, Filled, Varying};
    [
        Column::of("direction", Varying, |r| r.direction.words().into()),
        Column::of("bytes#", Always, |r| r.size.to_string()),
        Column::of("queues#", Varying, |r| r.queues.to_string()),
        Column::of("burst#", Varying, |r| r.burst.to_string()),
        Column::of("mode", Varying, |r| r.mode.clone()),
        Column::of("api", Varying, |r| r.api.name().into()),
        Column::of("offered/s#", Filled, |r| {
            r.offered_pps.map(|n| n.to_string()).unwrap_or_default()
        }),
        Column::of("policy", Always, |r| r.policy.clone()),
        Column::of("Mpps#", Always, |r| format!("{:.3}", r.mpps)),
        Column::of("Gbit/s#", Always, |r| format!("{:.2}", r.gbps)),
        Column::of("ratio#", Filled, |r| r.ratio.map(|ratio| ratio.text()).unwrap_or_default()),
        Column::of("lost#", Always, |r| r.lost.to_string()),
        Column::of("copies#", Always, |r| format!("{:.2}", r.copies_per_packet)),
        Column::of("maps#", Always, |r| format!("{:.2}", r.maps_per_packet)),
        Column::of("unmaps#", Always, |r| format!("{:.2}", r.unmaps_per_packet)),
        Column::of("B copied#", Always, |r| format!("{:.0}", r.copied_bytes_per_packet)),
        Column::of("notifies#", Always, |r| format!("{:.4}", r.notifies_per_packet)),
        Column::of("wake-ups#", Always, |r| format!("{:.4}", r.wakeups_per_packet)),
        Column::of("wake-ups/s#", Filled, |r| match r.offered_pps {
            Some(_) => format!("{:.0}", r.wakeups_per_second),
            None => String::new(),
        }),
        Column::of("PPN#", Always, |r| r.ppn.map_or("-".into(), |ppn| format!("{ppn:.1}"))),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// Returns the place of the set-up in words.
fn place(rows: &[Row]) -> String {
    let host = rows.first().map_or("", |row| row.host.as_str());
    document::place(host, rows.iter().map(|row| row.direction.guests()).max().unwrap_or(1))
}

/// Number of columns of [`brief`], which ends with copies.
const BRIEF: usize = 13;

/// Returns the conditions, and the table under them.
pub fn text(rows: &[Row]) -> String {
    let conditions = document::conditions(rows, &COLUMNS);
    with_heading(rows, &conditions, "copies to wake-ups: per packet", &COLUMNS)
}

/// Returns the same without the columns on the right, for a terminal of 80 columns. The state is
/// among the conditions.
pub fn brief(rows: &[Row]) -> String {
    let states = document::different(rows, |row| row.machine.state.as_str().to_owned());
    let conditions = document::conditions(rows, &COLUMNS);
    let conditions = format!("{conditions}, state {}", states.join(" or "));
    with_heading(rows, &conditions, "copies: per packet", &COLUMNS[..BRIEF])
}

fn with_heading(rows: &[Row], conditions: &str, counts: &str, columns: &[Column<Row>]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let place = place(rows);
    let ratio = match rows.iter().any(|row| row.ratio.is_some()) {
        true => format!("ratio: to {}, the median of pairs [95 % interval]; ", first.reference),
        false => String::new(),
    };
    let table = document::table(rows, columns);
    format!("{place}\n{conditions}\n{ratio}{counts}\n\n{table}")
}

/// Measures all policies on all points, one point after the other. Returns the rows.
///
/// # Errors
///
/// A part of a rig failed.
pub fn measure(
    points: &[Point],
    policies: &[Policy],
    timing: Timing,
    quiet: bool,
) -> Result<Vec<Row>, CommandError> {
    let progress = Progress::new(points.len(), quiet);
    let mut rows = Vec::new();
    for (number, point) in points.iter().enumerate() {
        let mut show = |part| progress.show(number, &point.words(), part);
        let outcome = contest::run(point, policies, timing, &mut show)?;
        let subjects = 0..policies.len();
        rows.extend(subjects.map(|subject| Row::of(point, policies, subject, &outcome)));
    }
    progress.done();
    Ok(rows)
}

/// Runs the command.
///
/// # Errors
///
/// The command line asks for something impossible, or a part of a rig failed.
pub fn run(args: &PacketsArgs) -> Result<(), CommandError> {
    if let Some(end) = args.end.end {
        return end::run(args, end);
    }
    let timing = match args.rate {
        None => Timing::short(args.seconds, args.pairs)?,
        Some(_) => Timing::long(args.seconds, args.pairs)?,
    };
    let page = args.output.report.as_deref().map(Destination::at).transpose()?;
    let rows = measure(&points(args), &args.policy.0, timing, args.output.json)?;
    if let Some(page) = page {
        page.write(&page::of(&rows))?;
    }
    match args.output.json {
        true => Document::new("packets", &rows).print(),
        false => output::line(text(&rows)),
    }
}

/// Returns all combinations of the command line's values.
fn points(args: &PacketsArgs) -> Vec<Point> {
    let rates = match &args.rate {
        None => vec![None],
        Some(List(rates)) => rates.iter().copied().map(Some).collect(),
    };
    let mut points = Vec::new();
    for &direction in &args.direction.0 {
        for &size in &args.size.0 {
            for &queues in &args.queues.0 {
                for &burst in &args.burst.0 {
                    for &mode in &args.mode.0 {
                        for &api in &args.api.0 {
                            points.extend(rates.iter().map(|&rate| Point {
                                direction,
                                size,
                                queues,
                                burst,
                                mode,
                                api,
                                rate,
                                timed: 0,
                            }));
                        }
                    }
                }
            }
        }
    }
    points
}
