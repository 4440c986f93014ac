//! `grantway bench scale`: one backend with many vifs.
//!
//! - [`args`]: the command lines; [`rig`]: processes, and the measurements of them.
//! - [`guests`]: the process that has all guests, by [`crowd`].

pub mod args;
mod crowd;
pub mod guests;
mod rig;

use super::document::{self, Column, Document, Shown};
use super::probe::{self, Machine, State};
use super::progress::Progress;
use super::slices::{self, Timing};
use super::stats::Ratio;
use args::ScaleArgs;
use grantway_command::args::BufferPolicy;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::process::Memory;
use rig::{Plan, Rig, count};
use serde::Serialize;
use std::time::Duration;

/// Default set-ups: number of vifs, number of vifs that send, and policy.
const CASES: [(u16, u16, BufferPolicy); 2] =
    [(300, 300, BufferPolicy::Copy), (1000, 8, BufferPolicy::Staging)];

/// Figures of one set-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    /// Number of guests, each with a vif.
    vifs: u16,
    /// Number of vifs that sent.
    active: u16,
    /// Number of queues of each vif.
    queues: u16,
    /// The buffer policy.
    policy: &'static str,
    /// Number of event channels of the backend.
    event_channels: u64,
    /// Seconds from the first guest that opened its vif to the last that was connected.
    connect_s: f64,
    /// Memory of the backend per vif, including pages shared with guests.
    rss_bytes_per_vif: u64,
    /// Memory of the backend per vif, without pages shared with guests.
    private_bytes_per_vif: u64,
    /// Percent of a processor that the backend used while the guests were held still.
    idle_percent: f64,
    /// Millions of frames per second, of all vifs together.
    mpps: f64,
    /// Number of vifs of the reference, all of them active.
    reference_vifs: u16,
    /// Millions of frames per second of the reference.
    reference_mpps: f64,
    /// Ratio to the reference; `None` if no pair of slices was in one state.
    ratio: Option<Ratio>,
    /// Host that the row was measured on.
    host: String,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    machine: Machine,
    /// Number of slices that the figures are from.
    n: usize,
}

impl document::Row for Row {
    fn host(&self) -> &str {
        &self.host
    }

    fn state(&self) -> State {
        self.machine.state
    }
}

const COLUMNS: [Column<Row>; 15] = {
    use Shown::{Always, Varying};
    [
        Column::of("vifs#", Always, |r| r.vifs.to_string()),
        Column::of("active#", Always, |r| r.active.to_string()),
        Column::of("queues#", Varying, |r| r.queues.to_string()),
        Column::of("policy", Always, |r| r.policy.into()),
        Column::of("ports#", Always, |r| r.event_channels.to_string()),
        Column::of("connect s#", Always, |r| format!("{:.2}", r.connect_s)),
        Column::of("RSS KiB/vif#", Always, |r| kib(r.rss_bytes_per_vif)),
        Column::of("private#", Always, |r| kib(r.private_bytes_per_vif)),
        Column::of("idle %#", Always, |r| format!("{:.2}", r.idle_percent)),
        Column::of("Mpps#", Always, |r| format!("{:.3}", r.mpps)),
        Column::of("reference#", Always, |r| r.reference_vifs.to_string()),
        Column::of("its Mpps#", Always, |r| format!("{:.3}", r.reference_mpps)),
        Column::of("ratio#", Always, |r| r.ratio.map_or("-".into(), |ratio| ratio.text())),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

fn kib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1024.0)
}

/// Cost of a set-up, determined before its rate is measured.
struct Cost {
    connect: Duration,
    memory: Memory,
    idle: f64,
    host: String,
}

impl Cost {
    fn of(rig: &Rig, idle: Duration) -> Result<Self, CommandError> {
        let idle = rig.idle(idle);
        let memory = rig.memory();
        let (guests, backend) = rig.reports()?;
        Ok(Self {
            connect: Duration::from_nanos(count(&guests["connected_in_ns"])),
            memory,
            idle,
            host: backend["host"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

/// Returns the set-up that is measured, and the reference.
fn plans(case: (u16, u16, BufferPolicy), queues: u16) -> [Plan; 2] {
    let (vifs, active, policy) = case;
    let alone = if active < vifs { active } else { 1 };
    [(vifs, active), (alone, alone)].map(|(vifs, active)| Plan {
        vifs,
        active,
        queues,
        policy,
        cpus: probe::processors(),
    })
}

/// Runs the command.
///
/// # Errors
///
/// More vifs are to be active than there are, or a part of a set-up failed.
pub fn run(args: &ScaleArgs) -> Result<(), CommandError> {
    let timing = Timing::short(args.seconds, args.pairs)?;
    let cases = match args.vifs {
        None => CASES.to_vec(),
        Some(vifs) => {
            let active = args.active.unwrap_or(vifs);
            if active > vifs {
                return Err(CommandError::Usage(format!(
                    "--active {active}: found more than --vifs {vifs}, expected at most as many"
                )));
            }
            vec![(vifs, active, args.policy)]
        }
    };
    let progress = Progress::new(cases.len(), args.json);
    let mut rows = Vec::new();
    for (number, case) in cases.into_iter().enumerate() {
        let [plan, reference] = plans(case, args.queues);
        let what = format!("{} vifs, {} active, {}", plan.vifs, plan.active, plan.policy.kind());
        let mut show = |part| progress.show(number, &what, part);
        rows.push(row(&plan, &reference, args, timing, &mut show)?);
    }
    progress.done();
    match args.json {
        true => Document::new("scale", &rows).print(),
        false => output::line(text(&rows)),
    }
}

fn row(
    plan: &Plan,
    reference: &Plan,
    args: &ScaleArgs,
    timing: Timing,
    progress: &mut dyn FnMut(f64),
) -> Result<Row, CommandError> {
    let rigs = [Rig::start(plan)?, Rig::start(reference)?];
    let [rig, _] = &rigs;
    let cost = Cost::of(rig, Duration::from_secs_f64(args.idle))?;
    let series = slices::in_turns(rigs.len(), timing, progress, |subject| {
        rigs[subject].slice(timing.slice)
    })?;
    let [(rate, machine, n), (reference_rate, ..)] = [0, 1].map(|subject| series.typical(subject));
    let each = |bytes: u64| bytes / u64::from(plan.vifs);
    Ok(Row {
        vifs: plan.vifs,
        active: plan.active,
        queues: plan.queues,
        policy: plan.policy.kind().as_str(),
        event_channels: plan.ports(),
        connect_s: cost.connect.as_secs_f64(),
        rss_bytes_per_vif: each(cost.memory.resident),
        private_bytes_per_vif: each(cost.memory.private),
        idle_percent: cost.idle * 100.0,
        mpps: rate / 1e6,
        reference_vifs: reference.vifs,
        reference_mpps: reference_rate / 1e6,
        ratio: Ratio::of(&series.ratios(0, 1, |&rate| rate)),
        host: cost.host,
        machine,
        n,
    })
}

/// Returns the conditions, and the table under them.
fn text(rows: &[Row]) -> String {
    let host = rows.first().map_or("", |row| row.host.as_str());
    let place = document::processes(host, "host, backend with one worker, all guests");
    let conditions = document::conditions(rows, &COLUMNS);
    format!(
        "{place}\n64 bytes, guest transmit, {conditions}\nratio: to as many vifs as `reference`, \
         alone, median of pairs [95 % interval]; memory and idle are of the backend\n\n{}",
        document::table(rows, &COLUMNS)
    )
}
