//! Policies against each other on one point, by turns.

use super::probe::{self, State};
use super::rig::{Direction, PATIENCE, Plan, Rig, Sample};
use super::slices::{self, Series, Timing};
use super::tally::Tally;
use grantway_backend::policy::Policy;
use grantway_command::args::{Api, WaitModeArg};
use grantway_command::error::CommandError;
use std::time::{Duration, Instant};

/// What runs before the first slice of a rig.
const WARM_UP: Duration = Duration::from_millis(100);
/// What runs before a slice of a rig that was held still.
const STRIDE: Duration = Duration::from_millis(20);

/// What is measured, whoever it is.
#[derive(Debug, Clone)]
pub struct Point {
    /// Which way.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Queues of each vif.
    pub queues: u16,
    /// Frames that the generator makes at a time.
    pub burst: u32,
    /// How the ends wait.
    pub mode: WaitModeArg,
    /// How frames cross from and to a frontend's buffers.
    pub api: Api,
    /// Frames a second in all; as many as are taken where missing.
    pub rate: Option<u64>,
    /// One frame in so many is timed; none where 0.
    pub timed: u32,
}

impl Point {
    /// In words, for progress.
    pub fn words(&self) -> String {
        let rate = self.rate.map(|rate| format!(", {rate} a second")).unwrap_or_default();
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

/// What came of it.
pub struct Outcome {
    /// The slices of each policy.
    pub series: Series<Tally>,
    /// Where it ran.
    pub host: String,
    /// How the ends waited.
    pub mode: String,
}

/// One policy's slices together.
pub struct Total {
    /// What happened in them.
    pub tally: Tally,
    /// How many they are.
    pub slices: usize,
    /// The state that they were in.
    pub state: State,
}

/// The rigs of a contest. A generator without a schedule is held still between
/// its slices; one with a schedule would have to catch up afterwards, so that each
/// slice has a rig of its own.
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

    /// The samples around a slice of one of them.
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

/// The samples before and after a slice, which lasts until each end handled a packet, and
/// a timed one arrived where some are: a figure of nothing would be no figure.
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

/// Measures all policies on one point; `progress` hears how far it is, from 0
/// to 1.
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
    /// The slices of one policy that count, together. Where none of its own was in
    /// the state that most were in, all of them, whatever state they were in.
    pub fn total(&self, subject: usize) -> Total {
        let add = |state, tallies: Vec<&Tally>| Total {
            slices: tallies.len(),
            tally: Tally::sum(tallies.into_iter()),
            state,
        };
        match self.series.kept(subject).count() {
            0 => add(State::Changed, self.series.all(subject).collect()),
            _ => add(self.series.state(), self.series.kept(subject).map(|(_, t)| t).collect()),
        }
    }

    /// A figure of nothing would be no figure.
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
