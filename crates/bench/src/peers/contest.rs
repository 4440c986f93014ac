//! Grantway and its peers on one point, in turns.

use super::link::{Link, Pair};
use crate::probe;
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

/// Time that a contender runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(100);
/// Time that a contender that was held still runs before a slice.
const STRIDE: Duration = Duration::from_millis(20);
/// Length of a slice in the trial of bursts, and number of slices for each burst.
const TRIAL: (Duration, usize) = (Duration::from_millis(60), 4);
/// One packet of a round trip in this many is timed, since reading the clock takes long.
const TIMED: u32 = 16;

/// A contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Grantway's ends.
    Grantway(Api),
    /// Two programs, and the link between them.
    Peer(Link),
}

impl Contender {
    /// Returns the contender in words, as tables print it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Grantway(Api::Copy) => "grantway, copying API",
            Self::Grantway(Api::Lend) => "grantway, lending API",
            Self::Peer(link) => link.words(),
        }
    }

    /// Returns the bursts that the contender tries on a point.
    fn bursts(self, point: &Point) -> Vec<u32> {
        match self {
            Self::Grantway(_) => point.bursts.clone(),
            Self::Peer(link) => link.bursts(&point.bursts),
        }
    }
}

/// The conditions of a measurement, equal for all contenders.
#[derive(Debug, Clone)]
pub struct Point {
    /// Direction of the packets.
    pub direction: Direction,
    /// Frame size in bytes, FCS not counted.
    pub size: usize,
    /// Bursts, in frames, that are tried.
    pub bursts: Vec<u32>,
    /// Wait mode of Grantway's ends.
    pub mode: WaitModeArg,
}

impl Point {
    /// Returns the point in words, for progress.
    pub fn words(&self) -> String {
        format!("{}, {} bytes", self.direction.words(), self.size)
    }

    /// Returns the APIs of Grantway that are measured. One way a guest makes frames where they are
    /// sent from, and forgets them where they came. What goes round is copied by the guest.
    pub fn apis(&self) -> &'static [Api] {
        match self.direction {
            Direction::RoundTrip => &[Api::Copy],
            _ => &[Api::Copy, Api::Lend],
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

/// Result of a slice.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Packets or round trips per second.
    pub rate: f64,
    /// Processors that the contender's processes had, of the two. If less than two, another process
    /// ran, or they slept.
    pub processors: f64,
    /// Number of packets by the nanoseconds that they took, if packets are timed.
    pub latency: BTreeMap<u64, u64>,
}

/// Returns the number of processors that `time` of processor time since `since` amounts to.
fn share(time: Duration, since: Instant) -> f64 {
    time.as_secs_f64() / since.elapsed().as_secs_f64()
}

/// Processes of a contender, which run or are held still.
enum Side {
    /// Grantway's rigs, one for each burst; `at` is the current one.
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
                let burst = who.bursts(point).first().copied().unwrap_or(1);
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

    /// Lets a contender run for a slice, which is extended until a packet arrived. Returns its
    /// result.
    fn slice(&mut self, span: Duration, watch: &Watch) -> Result<Found, CommandError> {
        match self {
            Self::Grantway { rigs, at, direction, .. } => {
                let rig = &rigs[*at];
                rig.resume();
                std::thread::sleep(STRIDE);
                // Grantway's ends are read by their reports, before and after.
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
                // A peer tells the rate since it was last asked, so it is asked at the beginning,
                // too.
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

    /// Tries each burst, and keeps the best. Returns that burst.
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
        // Of equal bursts the first wins, since a small burst is easier to fill.
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

/// Settings of a contender.
pub struct Standing {
    /// Number of frames at a time.
    pub burst: u32,
    /// Host that the contender ran on.
    pub host: String,
    /// Wait mode of its ends.
    pub mode: String,
    /// Command lines of the backend and of the guest.
    pub commands: [String; 2],
}

/// Result of a contest.
pub struct Outcome {
    /// The slices of each contender.
    pub series: Series<Found>,
    /// The settings of each contender.
    pub standings: Vec<Standing>,
}

/// Measures all contenders on one point. Calls `progress` with the part that is done, from 0 to 1.
///
/// # Errors
///
/// A contender did not start or ended, no packet came through, or a signal asked this process to
/// end.
pub fn run(
    point: &Point,
    contenders: &[Contender],
    timing: Timing,
    watch: &Watch,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, CommandError> {
    progress(0.0);
    let (mut sides, mut standings) = (Vec::new(), Vec::new());
    // Each contender finds its best burst while the others are held still.
    for &who in contenders {
        let mut side = Side::start(who, point, watch)?;
        let burst = side.choose(&who.bursts(point), watch)?;
        standings.push(side.standing(point, burst));
        sides.push(side);
    }
    // Then all are measured in turns, with a probe of the machine after each slice.
    let mut series = Series::new();
    let mut before = probe::look(timing.probe());
    for round in 0..timing.rounds {
        progress((round + 1) as f64 / (timing.rounds + 1) as f64);
        for subject in slices::order(round, sides.len()) {
            watch.check()?;
            let found = sides[subject].slice(timing.slice, watch)?;
            let after = probe::look(timing.probe());
            series.add(subject, round, slices::between(before, after), found);
            before = after;
        }
    }
    progress(1.0);
    let outcome = Outcome { series, standings };
    // A rate without packets means nothing.
    let silent =
        |&(subject, _): &_| outcome.series.counted(subject).1.iter().all(|found| found.rate == 0.0);
    match contenders.iter().enumerate().find(silent) {
        None => Ok(outcome),
        Some((_, who)) => Err(CommandError::Failed(format!(
            "{}, {}: no packet came through; measure longer with --seconds, or leave it out",
            who.words(),
            point.words()
        ))),
    }
}
