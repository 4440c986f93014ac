//! `grantway bench tcp`: stacks in user space against the kernel's stack over a veth.
//!
//! - [`args`]: the command line; [`ways`]: the paths of the streams.

pub mod args;
pub mod ways;

use super::document::{self, Column, Document, Shown};
use super::probe::{self, Machine, State};
use super::progress::Progress;
use super::slices::{self, Series};
use super::stats::Ratio;
use super::tools::{Watch, check_programs, check_rights};
use args::TcpArgs;
use grantway_command::error::CommandError;
use grantway_command::output;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use ways::{Guests, How, Veth, Way};

/// Length of a probe of the machine between two slices.
const PROBE: Duration = Duration::from_millis(100);

/// Figures of one path, with or without offloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Path of the stream: `veth`, or the policy between two guests.
    pub over: String,
    /// True if checksums and segmentation were left to others.
    pub offloads: bool,
    /// True if the programs copied the data, as iperf3 does by its system calls; false if sockets'
    /// buffers were sent as they are, and what came was not read.
    pub copies: bool,
    /// Gbit/s of payload: the median of the slices with its interval.
    pub gbps: Ratio,
    /// True if a reader of the flows listened to the backend.
    pub traced: bool,
    /// Ratio of this row's rate to the veth's with the same offloads; for a traced row, to the same
    /// guests without a reader. `None` for the veth itself, and if no pair of slices was in one
    /// state.
    pub ratio: Option<Ratio>,
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
const COLUMNS: [Column<Row>; 8] = {
    use Shown::{Always, Filled};
    [
        Column::of("over", Always, |r| r.over.clone()),
        Column::of("offloads", Always, |r| if r.offloads { "on" } else { "off" }.into()),
        Column::of("programs copy", Always, |r| if r.copies { "yes" } else { "no" }.into()),
        Column::of("traced", Filled, |r| if r.traced { "yes" } else { "" }.into()),
        Column::of("Gbit/s#", Always, |r| r.gbps.text()),
        Column::of("ratio#", Filled, |r| r.ratio.map(|ratio| ratio.text()).unwrap_or_default()),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// A path that is measured.
#[derive(Clone, Copy)]
struct Subject {
    guests: bool,
    how: How,
    /// Number of the subject that this one is compared with.
    beside: Option<usize>,
}

const SUBJECTS: [Subject; 8] = {
    const fn veth(offloads: bool) -> Subject {
        let how = How { offloads, copies: true, traced: false };
        Subject { guests: false, how, beside: None }
    }
    const fn guests(offloads: bool, copies: bool, traced: bool, beside: usize) -> Subject {
        Subject { guests: true, how: How { offloads, copies, traced }, beside: Some(beside) }
    }
    [
        veth(false),
        guests(false, true, false, 0),
        guests(false, false, false, 0),
        veth(true),
        guests(true, true, false, 3),
        guests(true, false, false, 3),
        guests(false, true, true, 1),
        guests(true, true, true, 4),
    ]
};

/// Runs the command.
///
/// # Errors
///
/// Something is missing on this machine, a part failed, or a signal asked this process to end.
/// Nothing of the set-up is left then.
pub fn run(args: &TcpArgs) -> Result<(), CommandError> {
    // All that may be missing is told before anything is started.
    check_rights()?;
    if !args.without_veth {
        check_programs(&[("iperf3", "iperf3"), ("ip", "iproute2"), ("ethtool", "ethtool")])?;
    }
    let watch = Watch::start()?;
    let progress = Progress::new(1, args.json);
    let policy = args.policy.kind();
    let mut host = String::new();
    let mut ways: Vec<Box<dyn Way>> = Vec::new();
    let subjects = subjects(args);
    // Each subject has processes of its own, which stay until the end.
    for &Subject { guests, how, .. } in &subjects {
        ways.push(match guests {
            true => {
                let guests = Guests::start(policy, how, &watch)?;
                host.clone_from(&guests.host);
                Box::new(guests)
            }
            false => Box::new(Veth::start(how.offloads, &watch)?),
        });
    }
    let mut show = |part| progress.show(0, "guest to guest, and veth", part);
    let series = in_turns(&mut ways, args.seconds, &watch, &mut show)?;
    progress.done();
    let rows = subjects.iter().enumerate().filter_map(|(number, subject)| {
        let over = if subject.guests { policy.as_str() } else { "veth" };
        row(number, subject, over, &host, &series)
    });
    let rows: Vec<Row> = rows.collect();
    match args.json {
        true => Document::new("tcp", &rows).print(),
        false => output::line(text(&rows)),
    }
}

/// Measures ways in turns, a slice of a second each, with a probe of the machine after it. Calls
/// `progress` with the part that is done.
///
/// # Errors
///
/// A part failed, or a signal asked this process to end.
pub fn in_turns(
    ways: &mut [Box<dyn Way>],
    seconds: u32,
    watch: &Watch,
    progress: &mut dyn FnMut(f64),
) -> Result<Series<f64>, CommandError> {
    let mut series = Series::new();
    let mut before = probe::look(PROBE);
    for round in 0..seconds as usize {
        progress(round as f64 / f64::from(seconds));
        for subject in slices::order(round, ways.len()) {
            let Some(way) = ways.get_mut(subject) else { continue };
            let rate = way.second(watch)?;
            let after = probe::look(PROBE);
            series.add(subject, round, slices::between(before, after), rate);
            before = after;
        }
    }
    Ok(series)
}

/// Returns the subjects that are asked for. Each is compared with one of them, or with none.
fn subjects(args: &TcpArgs) -> Vec<Subject> {
    let wanted = |subject: &Subject| {
        let Subject { guests, how, .. } = *subject;
        (args.traced || !how.traced) && (!args.without_veth || (guests && how.copies))
    };
    let place = |number: usize| {
        SUBJECTS.get(number).filter(|other| wanted(other))?;
        Some(SUBJECTS.iter().take(number).filter(|before| wanted(before)).count())
    };
    let chosen = SUBJECTS.iter().filter(|subject| wanted(subject));
    chosen.map(|subject| Subject { beside: subject.beside.and_then(place), ..*subject }).collect()
}

/// Makes the row of one subject from its slices; `None` if there is no slice.
fn row(
    number: usize,
    subject: &Subject,
    over: &str,
    host: &str,
    series: &Series<f64>,
) -> Option<Row> {
    let (machine, rates) = series.counted(number);
    let rates: Vec<f64> = rates.into_iter().copied().collect();
    let ratio = |beside| Ratio::of(&series.ratios(number, beside, |&rate| rate));
    let ratio = subject.beside.and_then(ratio);
    Some(Row {
        over: over.to_owned(),
        offloads: subject.how.offloads,
        copies: subject.how.copies,
        traced: subject.how.traced,
        gbps: Ratio::of(&rates)?,
        ratio,
        host: host.to_owned(),
        machine,
        n: rates.len(),
    })
}

/// Returns the conditions, and the table under them.
fn text(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    format!(
        "{}; one stream of TCP, Gbit/s of payload, 95 % interval; ratio: to the veth of the same \
         kind, or untraced, the median of pairs\n{}",
        document::place(&first.host, 2),
        document::table(rows, &COLUMNS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_command::args::BufferPolicy;

    #[test]
    fn each_subject_is_compared_with_one_of_its_kind() {
        let chosen = |traced, without_veth| {
            let policy = BufferPolicy::Staging;
            let args = TcpArgs { policy, traced, without_veth, seconds: 1, json: false };
            let chosen = subjects(&args);
            for subject in &chosen {
                let Some(beside) = subject.beside.map(|number| chosen[number]) else { continue };
                assert_eq!(beside.how.offloads, subject.how.offloads);
                assert_eq!(beside.guests, subject.how.traced);
                assert!(!beside.how.traced && beside.how.copies);
            }
            (chosen.len(), chosen.iter().filter(|subject| subject.beside.is_some()).count())
        };
        assert_eq!(chosen(false, false), (6, 4));
        assert_eq!(chosen(true, false), (8, 6));
        assert_eq!(chosen(false, true), (2, 0));
        assert_eq!(chosen(true, true), (4, 2));
    }
}
