//! `grantway bench stream`: TCP through the TAPs of a vif, policy against policy.
//!
//! - [`args`]: the command line; [`link`]: namespaces, the ends, iperf3;
//!   [`page`]: the report.

pub mod args;
pub mod link;
mod page;

use super::document::{self, Column, Document, Shown};
use super::probe::{self, Machine, State};
use super::progress::Progress;
use super::rig::Direction;
use super::slices::{self, Series};
use super::stats::Ratio;
use super::tools::{Watch, check_programs, check_rights};
use args::StreamArgs;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::Destination;
use link::{Counts, Link, Settings, Transfer};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Length of a probe of the machine between two slices.
const PROBE: Duration = Duration::from_millis(100);

/// Figures of one policy in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The buffer policy.
    pub policy: String,
    /// Use of large TCP frames by the frontend: on or off.
    pub gso: String,
    /// Merging of TCP segments by both ends: on or off.
    pub merge: String,
    /// Direction of the stream.
    pub direction: Direction,
    /// Number of queues of the vif.
    pub queues: u16,
    /// Number of TCP flows.
    pub flows: u16,
    /// Wait mode of the backend.
    pub mode: String,
    /// Gbit/s of payload: the median of the slices with its interval.
    pub gbps: Ratio,
    /// Settings that this row is compared with: the first row of its direction and queues.
    pub reference: String,
    /// Ratio of this row's rate to the reference's. `None` for the reference itself, and if no pair
    /// of slices was in one state.
    pub ratio: Option<Ratio>,
    /// Segments that were sent again, in all slices.
    pub retransmits: u64,
    /// Packets that the backend moved, in both directions.
    pub packets: u64,
    /// Bytes of payload per packet.
    pub payload_per_packet: f64,
    /// Grant copies, maps and unmaps of both ends per packet.
    pub grant_ops_per_packet: f64,
    /// Bytes that grant copies moved per packet.
    pub copied_bytes_per_packet: f64,
    /// Notifications of both ends per packet.
    pub notifies_per_packet: f64,
    /// Sleeps that an event ended, per packet.
    pub wakeups_per_packet: f64,
    /// Host that the row was measured on.
    pub host: String,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    pub machine: Machine,
    /// Number of slices of one second that the figures are from.
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

/// Columns of the table.
const COLUMNS: [Column<Row>; 17] = {
    use Shown::{Always, Filled, Varying};
    [
        Column::of("direction", Varying, |r| r.direction.words().into()),
        Column::of("queues#", Varying, |r| r.queues.to_string()),
        Column::of("flows#", Varying, |r| r.flows.to_string()),
        Column::of("mode", Varying, |r| r.mode.clone()),
        Column::of("policy", Always, |r| r.policy.clone()),
        Column::of("gso", Varying, |r| r.gso.clone()),
        Column::of("merge", Varying, |r| r.merge.clone()),
        Column::of("Gbit/s#", Always, |r| r.gbps.text()),
        Column::of("ratio#", Filled, |r| r.ratio.map(|ratio| ratio.text()).unwrap_or_default()),
        Column::of("retransmits#", Always, |r| r.retransmits.to_string()),
        Column::of("B/packet#", Always, |r| format!("{:.0}", r.payload_per_packet)),
        Column::of("grant ops#", Always, |r| format!("{:.2}", r.grant_ops_per_packet)),
        Column::of("B copied#", Always, |r| format!("{:.0}", r.copied_bytes_per_packet)),
        Column::of("notifies#", Always, |r| format!("{:.4}", r.notifies_per_packet)),
        Column::of("wake-ups#", Always, |r| format!("{:.4}", r.wakeups_per_packet)),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// Runs the command.
///
/// # Errors
///
/// Something is missing on this machine, a part failed, or a signal asked this process to end.
/// Nothing of the set-up is left then.
pub fn run(args: &StreamArgs) -> Result<(), CommandError> {
    check_rights()?;
    check_programs(&[("iperf3", "iperf3"), ("ip", "iproute2")])?;
    let page = args.output.report.as_deref().map(Destination::at).transpose()?;
    let watch = Watch::start()?;
    let progress = Progress::new(2 * args.queues.0.len(), args.output.json);
    let subjects = subjects(args);
    let mut rows = Vec::new();
    for &queues in &args.queues.0 {
        let done = rows.len() / subjects.len();
        rows.extend(measure(&subjects, args.seconds, queues, done, &progress, &watch)?);
    }
    progress.done();
    if let Some(page) = page {
        page.write(&page::of(&rows))?;
    }
    match args.output.json {
        true => Document::new("stream", &rows).print(),
        false => output::line(text(&rows)),
    }
}

/// Returns the settings that are compared, the reference first.
fn subjects(args: &StreamArgs) -> Vec<Settings> {
    let policies = args.policy.0.iter();
    let all = policies.flat_map(|&policy| {
        let all = args.gso.0.iter().flat_map(|&gso| args.merge.0.iter().map(move |&m| (gso, m)));
        all.map(move |(gso, merge)| Settings { policy, gso, merge })
    });
    all.collect()
}

/// Measures all subjects with `queues` queues, in both directions. `done` points were measured
/// before. Returns the rows.
fn measure(
    subjects: &[Settings],
    seconds: u32,
    queues: u16,
    done: usize,
    progress: &Progress,
    watch: &Watch,
) -> Result<Vec<Row>, CommandError> {
    let start = |&settings: &Settings| Link::start(settings, queues, watch);
    let mut links: Vec<Link> = subjects.iter().map(start).collect::<Result<_, _>>()?;
    let mut rows = Vec::new();
    for (number, direction) in [Direction::Tx, Direction::Rx].into_iter().enumerate() {
        let what = format!("{}, queues: {queues}", direction.words());
        let mut show = |part| progress.show(done + number, &what, part);
        let series = transfers(&mut links, direction, seconds, watch, &mut show)?;
        for (subject, link) in links.iter().enumerate() {
            let row = row(subjects, subject, direction, queues, link, &series);
            rows.extend(row);
        }
    }
    Ok(rows)
}

/// Measures links in one direction, in turns, a slice of a second each. Calls `progress` with the part
/// that is done.
///
/// # Errors
///
/// A part failed, or a signal asked this process to end.
pub fn transfers(
    links: &mut [Link],
    direction: Direction,
    seconds: u32,
    watch: &Watch,
    progress: &mut dyn FnMut(f64),
) -> Result<Series<Transfer>, CommandError> {
    let mut series = Series::new();
    let mut before = probe::look(PROBE);
    for round in 0..seconds as usize {
        progress(round as f64 / f64::from(seconds));
        for subject in slices::order(round, links.len()) {
            let Some(link) = links.get_mut(subject) else { continue };
            let transfer = link.second(direction, watch)?;
            let after = probe::look(PROBE);
            series.add(subject, round, slices::between(before, after), transfer);
            before = after;
        }
    }
    Ok(series)
}

/// Makes the row of one subject from its slices; `None` if there is no slice.
fn row(
    subjects: &[Settings],
    subject: usize,
    direction: Direction,
    queues: u16,
    link: &Link,
    series: &Series<Transfer>,
) -> Option<Row> {
    let (machine, kept) = series.counted(subject);
    let rates: Vec<f64> = kept.iter().map(|transfer| transfer.gbps).collect();
    let mut counts = Counts::default();
    kept.iter().for_each(|transfer| counts.add(&transfer.counts));
    let per = |n: u64| n as f64 / counts.packets.max(1) as f64;
    // A slice lasts one second.
    let payload = rates.iter().sum::<f64>() * 1e9 / 8.0;
    // The first subject is the reference.
    let ratios = series.ratios(subject, 0, |transfer| transfer.gbps);
    let (first, settings) = (subjects.first()?, subjects.get(subject)?);
    Some(Row {
        policy: settings.policy.as_str().to_owned(),
        gso: settings.gso.as_str().to_owned(),
        merge: settings.merge.as_str().to_owned(),
        direction,
        queues,
        flows: link.flows,
        mode: link.mode.clone(),
        gbps: Ratio::of(&rates)?,
        reference: name(first, subjects),
        ratio: if subject == 0 { None } else { Ratio::of(&ratios) },
        retransmits: kept.iter().map(|transfer| transfer.retransmits).sum(),
        packets: counts.packets,
        payload_per_packet: payload / counts.packets.max(1) as f64,
        grant_ops_per_packet: per(counts.copies + counts.maps),
        copied_bytes_per_packet: per(counts.copied_bytes),
        notifies_per_packet: per(counts.notifies),
        wakeups_per_packet: per(counts.wakeups),
        host: link.host.clone(),
        machine,
        n: kept.len(),
    })
}

/// Returns the name of the reference: its policy, and the switches in which the subjects differ.
fn name(first: &Settings, subjects: &[Settings]) -> String {
    let mut words = vec![first.policy.as_str().to_owned()];
    if subjects.iter().any(|other| other.gso != first.gso) {
        words.push(format!("gso {}", first.gso.as_str()));
    }
    if subjects.iter().any(|other| other.merge != first.merge) {
        words.push(format!("merge {}", first.merge.as_str()));
    }
    words.join(", ")
}

/// Returns the place of the set-up in words, with the name of the tool.
fn place(host: &str) -> String {
    format!("{}, iperf3", document::place(host, 1))
}

/// Returns the conditions, and the table under them.
fn text(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let ratio = match rows.iter().any(|row| row.ratio.is_some()) {
        true => format!("; ratio: to {}, the median of pairs", first.reference),
        false => String::new(),
    };
    format!(
        "{}; {}; Gbit/s of TCP payload, 95 % interval{ratio}; grant ops to wake-ups: per packet \
         that the backend moved\n{}",
        place(&first.host),
        document::conditions(rows, &COLUMNS),
        document::table(rows, &COLUMNS)
    )
}
