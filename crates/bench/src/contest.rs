//! Policies against each other on one point, in turns.

use super::probe::{self, Machine};
use super::rig::{Direction, PATIENCE, Plan, Rig, Sample};
use super::slices::{self, Series, Timing};
use super::tally::Tally;
use grantway_backend::policy::Policy;
use grantway_command::args::{Api, WaitModeArg};
use grantway_command::error::CommandError;
use std::time::{Duration, Instant};

/// Time that a rig runs before its first slice.
const WARM_UP: Duration = Duration::from_millis(100);
/// Time that a rig that was held still runs before a slice.
const STRIDE: Duration = Duration::from_millis(20);

/// The conditions of a measurement, equal for all policies.
#[derive(Debug, Clone)]
pub struct Point {
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Number of queues of each vif.
    pub queues: u16,
    /// Frames that the generator makes at a time.
    pub burst: u32,
    /// Wait mode of the ends.
    pub mode: WaitModeArg,
    /// Way of frames from and to a frontend's buffers.
    pub api: Api,
    /// Frames per second in all; `None` for as many as are accepted.
    pub rate: Option<u64>,
    /// One frame in `timed` is timed; none if 0.
    pub timed: u32,
}

impl Point {
    /// Returns the point in words, for progress.
    pub fn words(&self) -> String {
        let rate = self.rate.map(|rate| format!(", {rate} per second")).unwrap_or_default();
        let (direction, mode) = (self.direction.words(), self.mode.name());
        format!("{direction}, {} bytes, {mode}{rate}", self.size)
    }

    fn plan(&self, policy: Policy) -> Plan {
        let mut generator = format!("generator:size={},burst={}", self.size, self.burst);
        if let Some(rate) = self.rate {
            generator += &format!(",rate={}", rate.div_ceil(self.queues.into()));
        }
        if self.timed > 0 {
            generator += &format!(",timed={}", self.timed);
        }
        Plan {
            direction: self.direction,
            policy,
            mode: self.mode,
            api: self.api,
            generator,
            sink: "check",
            queues: self.queues,
            cpus: probe::processors(),
        }
    }
}

/// Result of a contest.
pub struct Outcome {
    /// The slices of each policy.
    pub series: Series<Tally>,
    /// Host that the rigs ran on.
    pub host: String,
    /// Wait mode of the ends.
    pub mode: String,
}

/// The slices of one policy together.
pub struct Total {
    /// Sum of the slices.
    pub tally: Tally,
    /// Number of slices.
    pub slices: usize,
    /// The machine in these slices.
    pub machine: Machine,
}

/// The rigs of a contest. A generator without a schedule is held still between its slices. A
/// generator with a schedule would have to catch up afterwards, so each slice has a rig of its own.
enum Rigs {
    Held(Vec<Rig>),
    Fresh(Vec<Plan>),
}

impl Rigs {
    fn of(point: &Point, policies: &[Policy]) -> Result<Self, CommandError> {
        let plans = policies.iter().map(|&policy| point.plan(policy));
        if point.rate.is_some() {
            return Ok(Self::Fresh(plans.collect()));
        }
        let start = |plan: Plan| {
            let rig = Rig::start(&plan)?;
            std::thread::sleep(WARM_UP);
            rig.pause();
            Ok(rig)
        };
        plans.map(start).collect::<Result<_, CommandError>>().map(Self::Held)
    }

    /// Runs a slice of one policy. Returns the samples before and after it.
    fn slice(
        &self,
        what: (Direction, bool),
        subject: usize,
        slice: Duration,
    ) -> Result<(Sample, Sample), CommandError> {
        match self {
            Self::Held(rigs) => {
                let rig = &rigs[subject];
                rig.resume();
                std::thread::sleep(STRIDE);
                let samples = around(what, rig, slice);
                rig.pause();
                samples
            }
            Self::Fresh(plans) => {
                let rig = Rig::start(&plans[subject])?;
                std::thread::sleep(WARM_UP);
                around(what, &rig, slice)
            }
        }
    }
}

/// Lets a rig run for a slice. Returns the samples before and after it. The slice is extended until
/// each end handled a packet and, if packets are timed, a timed one arrived: a rate without packets
/// means nothing. The limit is [`PATIENCE`].
fn around(
    (direction, timed): (Direction, bool),
    rig: &Rig,
    slice: Duration,
) -> Result<(Sample, Sample), CommandError> {
    let before = rig.sample()?;
    let since = Instant::now();
    loop {
        std::thread::sleep(slice);
        let after = rig.sample()?;
        let tally = Tally::between(direction, &before, &after);
        let arrived = tally.is_any() && (!timed || !tally.latency.is_empty());
        if arrived || since.elapsed() > PATIENCE {
            return Ok((before, after));
        }
    }
}

/// Measures all policies on one point. Calls `progress` with the part that is done, from 0 to 1.
///
/// # Errors
///
/// A part of a rig failed, or no packet came through.
pub fn run(
    point: &Point,
    policies: &[Policy],
    timing: Timing,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, CommandError> {
    let rigs = Rigs::of(point, policies)?;
    let (mut host, mut mode) = (String::new(), String::new());
    let series = slices::in_turns(policies.len(), timing, progress, |subject| {
        let (first, last) =
            rigs.slice((point.direction, point.timed > 0), subject, timing.slice)?;
        (host, mode) = (word(&last, "host"), word(&last, "mode"));
        Ok(Tally::between(point.direction, &first, &last))
    })?;
    progress(1.0);
    let outcome = Outcome { series, host, mode };
    outcome.check(point, policies)?;
    Ok(outcome)
}

fn word(sample: &Sample, key: &str) -> String {
    sample.backend[key].as_str().unwrap_or_default().to_owned()
}

impl Outcome {
    /// Returns the sum of the slices of one policy that count. If none of them was in the state
    /// that most slices were in, returns the sum of all, with `State::Changed`.
    pub fn total(&self, subject: usize) -> Total {
        let (machine, tallies) = self.series.counted(subject);
        Total { slices: tallies.len(), tally: Tally::sum(tallies.into_iter()), machine }
    }

    /// Returns an error if a policy moved no packet: a rate without packets means nothing.
    fn check(&self, point: &Point, policies: &[Policy]) -> Result<(), CommandError> {
        let silent = |&(subject, _): &_| !self.total(subject).tally.is_any();
        let Some((_, policy)) = policies.iter().enumerate().find(silent) else { return Ok(()) };
        Err(CommandError::Failed(format!(
            "{policy}, {}: no packet came through; measure longer with --seconds, or look at \
             `RUST_LOG=info` of a backend and a frontend started by hand",
            point.words()
        )))
    }
}
