//! Grantway and its peers on one point, by turns.

use super::link::{Link, Pair};
use crate::probe::{self, State};
use crate::rig::{Direction, PATIENCE, Plan, Rig};
use crate::slices::{self, Series, Timing};
use crate::stats::median;
use crate::tally::Tally;
use crate::tools::Watch;
use grantway_backend::policy::Policy;
use grantway_command::args::{Api, WaitModeArg};
use grantway_command::error::CommandError;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What runs first of all.
const WARM_UP: Duration = Duration::from_millis(100);
/// What runs before a slice of somebody who was held still.
const STRIDE: Duration = Duration::from_millis(20);
/// A slice of the trial of bursts, and how many there are for each.
const TRIAL: (Duration, usize) = (Duration::from_millis(60), 4);
/// One in so many packets of a round trip is timed: reading the clock takes long.
const TIMED: u32 = 16;

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Grantway's ends.
    Grantway(Api),
    /// Two testpmds.
    Peer(Link),
}

impl Contender {
    /// As tables have it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Grantway(Api::Copy) => "grantway, copying API",
            Self::Grantway(Api::Lend) => "grantway, lending API",
            Self::Peer(link) => link.words(),
        }
    }
}

/// What is measured, whoever it is.
#[derive(Debug, Clone)]
pub struct Point {
    /// Which way.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Frames at a time that are tried.
    pub bursts: Vec<u32>,
    /// How Grantway's ends wait.
    pub mode: WaitModeArg,
}

impl Point {
    /// In words, for progress.
    pub fn words(&self) -> String {
        format!("{}, {} bytes", self.direction.words(), self.size)
    }

    /// How Grantway's ends may hand frames over: there is something to lend where a
    /// generator makes them in the guest, and nothing looks at them but their receiver.
    pub fn apis(&self) -> &'static [Api] {
        match self.direction {
            Direction::Tx => &[Api::Copy, Api::Lend],
            _ => &[Api::Copy],
        }
    }

    fn plan(&self, burst: u32, api: Api) -> Plan {
        let mut generator = format!("generator:size={},burst={burst}", self.size);
        if self.direction == Direction::RoundTrip {
            generator += &format!(",window=1,timed={TIMED}");
        }
        Plan {
            direction: self.direction,
            policy: Policy::Staging,
            mode: self.mode,
            generator,
            sink: "null",
            queues: 1,
            api,
            cpus: probe::processors(),
        }
    }
}

/// What a slice came to.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Packets a second, or round trips.
    pub rate: f64,
    /// Processors that its processes had, of the two: with less than two somebody else
    /// was there, or they slept.
    pub processors: f64,
    /// Nanoseconds that packets took, and how many took so long, where it is known.
    pub latency: BTreeMap<u64, u64>,
}

/// Processor time since then as processors.
fn share(time: Duration, since: Instant) -> f64 {
    time.as_secs_f64() / since.elapsed().as_secs_f64()
}

/// Who runs, or is held still.
enum Side {
    /// Grantway, once for each burst.
    Grantway {
        api: Api,
        rigs: Vec<Rig>,
        at: usize,
        direction: Direction,
        host: String,
        mode: String,
    },
    Peer(Pair),
}

impl Side {
    fn start(who: Contender, point: &Point, watch: &Watch) -> Result<Self, CommandError> {
        let direction = point.direction;
        watch.check()?;
        match who {
            Contender::Grantway(api) => {
                let (mut rigs, mut words) = (Vec::new(), [String::new(), String::new()]);
                for &burst in &point.bursts {
                    let rig = Rig::start(&point.plan(burst, api))?;
                    let backend = rig.sample()?.backend;
                    words = ["host", "mode"]
                        .map(|key| backend[key].as_str().unwrap_or_default().to_owned());
                    std::thread::sleep(WARM_UP);
                    rig.pause();
                    rigs.push(rig);
                }
                let [host, mode] = words;
                Ok(Self::Grantway { api, rigs, at: 0, direction, host, mode })
            }
            Contender::Peer(link) => {
                let burst = point.bursts.first().copied().unwrap_or(1);
                let cpus = match probe::processors()[..] {
                    [one, two, ..] => [one, two],
                    [one] => [one, one],
                    [] => [0, 0],
                };
                let pair = Pair::start(link, direction, (point.size, burst), cpus, watch)?;
                std::thread::sleep(WARM_UP);
                pair.pause();
                Ok(Self::Peer(pair))
            }
        }
    }

    /// A slice, which lasts until a packet came.
    fn slice(&mut self, span: Duration, watch: &Watch) -> Result<Found, CommandError> {
        match self {
            Self::Grantway { rigs, at, direction, .. } => {
                let rig = &rigs[*at];
                rig.resume();
                std::thread::sleep(STRIDE);
                let before = rig.sample()?;
                let (since, time) = (Instant::now(), rig.time());
                let timed = *direction == Direction::RoundTrip;
                loop {
                    std::thread::sleep(span);
                    let processors = share(rig.time().saturating_sub(time), since);
                    let after = rig.sample()?;
                    watch.check()?;
                    let tally = Tally::between(*direction, &before, &after);
                    let enough = tally.packets > 0 && (!timed || !tally.latency.is_empty());
                    if enough || since.elapsed() > PATIENCE {
                        rig.pause();
                        let (rate, latency) = (tally.rate(), tally.latency);
                        return Ok(Found { rate, processors, latency });
                    }
                }
            }
            Self::Peer(pair) => {
                pair.resume();
                std::thread::sleep(STRIDE);
                pair.show(watch)?;
                let (since, time) = (Instant::now(), pair.time());
                loop {
                    std::thread::sleep(span);
                    let processors = share(pair.time().saturating_sub(time), since);
                    let rate = pair.show(watch)?.rate as f64;
                    if rate > 0.0 || since.elapsed() > PATIENCE {
                        pair.pause();
                        return Ok(Found { rate, processors, latency: BTreeMap::new() });
                    }
                }
            }
        }
    }

    /// Tries each burst, and keeps the best.
    fn choose(&mut self, bursts: &[u32], watch: &Watch) -> Result<u32, CommandError> {
        let mut rates = vec![Vec::new(); bursts.len()];
        let (span, rounds) = TRIAL;
        let rounds = if bursts.len() > 1 { rounds } else { 0 };
        for round in 0..rounds {
            for at in slices::order(round, bursts.len()) {
                self.set_burst(at, bursts[at], watch)?;
                rates[at].push(self.slice(span, watch)?.rate);
            }
        }
        let medians = rates.iter().map(|rates| median(rates).unwrap_or(0.0)).enumerate();
        // Of equals the first: small bursts are easier to come by.
        let best = medians.rev().max_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(at, _)| at);
        if rounds > 0 {
            self.set_burst(best, bursts[best], watch)?;
        }
        if let Self::Grantway { rigs, at, .. } = self {
            let rig = rigs.swap_remove(*at);
            (*rigs, *at) = (vec![rig], 0);
        }
        Ok(bursts[best])
    }

    fn set_burst(&mut self, number: usize, burst: u32, watch: &Watch) -> Result<(), CommandError> {
        match self {
            Self::Grantway { at, .. } => {
                *at = number;
                Ok(())
            }
            Self::Peer(pair) => pair.set_burst(burst, watch),
        }
    }

    fn standing(&self, point: &Point, burst: u32) -> Standing {
        match self {
            Self::Grantway { api, host, mode, .. } => Standing {
                burst,
                host: host.clone(),
                mode: mode.clone(),
                commands: point.plan(burst, *api).commands(),
            },
            Self::Peer(pair) => Standing {
                burst,
                host: "linux".to_owned(),
                mode: "polled".to_owned(),
                commands: pair.commands.clone(),
            },
        }
    }
}

/// How somebody ran.
pub struct Standing {
    /// Frames at a time.
    pub burst: u32,
    /// Where it ran.
    pub host: String,
    /// What it did when nothing was there.
    pub mode: String,
    /// Command lines of the backend and of the guest.
    pub commands: [String; 2],
}

/// What came of it.
pub struct Outcome {
    /// The slices of each.
    pub series: Series<Found>,
    /// How each of them ran.
    pub standings: Vec<Standing>,
}

impl Outcome {
    /// The slices of one that count, and their state. Where none of its own was in
    /// the state that most were in, all of them, whatever state they were in.
    pub fn kept(&self, subject: usize) -> (State, Vec<&Found>) {
        let kept: Vec<_> = self.series.kept(subject).map(|(_, found)| found).collect();
        match kept.is_empty() {
            true => (State::Changed, self.series.all(subject).collect()),
            false => (self.series.state(), kept),
        }
    }
}

/// Measures all of them on one point; `progress` hears how far it is, from 0 to 1.
///
/// # Errors
///
/// Somebody did not start or came to an end, or somebody asked us to end.
pub fn run(
    point: &Point,
    contenders: &[Contender],
    timing: Timing,
    watch: &Watch,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, CommandError> {
    progress(0.0);
    let (mut sides, mut standings) = (Vec::new(), Vec::new());
    for &who in contenders {
        let mut side = Side::start(who, point, watch)?;
        let burst = side.choose(&point.bursts, watch)?;
        standings.push(side.standing(point, burst));
        sides.push(side);
    }
    let mut series = Series::new();
    let mut before = probe::state(timing.probe());
    for round in 0..timing.rounds {
        progress((round + 1) as f64 / (timing.rounds + 1) as f64);
        for subject in slices::order(round, sides.len()) {
            watch.check()?;
            let found = sides[subject].slice(timing.slice, watch)?;
            let after = probe::state(timing.probe());
            series.add(subject, round, slices::state(before, after), found);
            before = after;
        }
    }
    progress(1.0);
    let outcome = Outcome { series, standings };
    let silent = |&(subject, _): &_| outcome.kept(subject).1.iter().all(|found| found.rate == 0.0);
    match contenders.iter().enumerate().find(silent) {
        None => Ok(outcome),
        Some((_, who)) => Err(CommandError::Failed(format!(
            "{}, {}: no packet came through; measure longer with --seconds, or leave it out",
            who.words(),
            point.words()
        ))),
    }
}
