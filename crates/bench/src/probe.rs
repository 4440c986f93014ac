//! Distance of the two processors at this moment.
//!
//! The processors of a virtual machine move under it. A cache line that two pinned threads pass
//! back and forth shows how far apart they are. Figures of one command differ several times between
//! two states. So each figure is printed with its state, and figures of two states are never
//! pooled. Two threads of one core differ from two close cores in that each slows the other.

use grantway_command::process::pin;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Distance of the processors, by the round trip of a cache line.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Two threads of one core: below 80 ns, and each slows the other.
    Smt,
    /// Two cores of one cache: below 200 ns.
    Near,
    /// A distance between near and far: below 400 ns.
    Mid,
    /// Two cores of two caches: 400 ns and more.
    Far,
    /// The bench may use only one processor.
    Single,
    /// The state changed during the measurement.
    Changed,
}

impl State {
    fn of(round_trip_ns: u64, shares_a_core: impl FnOnce() -> bool) -> Self {
        match round_trip_ns {
            0..80 if shares_a_core() => Self::Smt,
            0..200 => Self::Near,
            200..400 => Self::Mid,
            _ => Self::Far,
        }
    }

    /// Returns the name of the state in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Smt => "smt",
            Self::Near => "near",
            Self::Mid => "mid",
            Self::Far => "far",
            Self::Single => "single",
            Self::Changed => "changed",
        }
    }
}

/// The machine during a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// Distance of the processors.
    pub state: State,
    /// Nanoseconds of a cache line's round trip between them: the best that a probe saw, and of
    /// several probes their median. None if there is one processor only.
    pub round_trip_ns: Option<u64>,
}

impl Machine {
    /// Returns a machine of which the bench may use only one processor.
    pub const SINGLE: Self = Self { state: State::Single, round_trip_ns: None };

    /// Returns the state and the round trip, as tables print them.
    pub fn words(self) -> String {
        let name = self.state.as_str();
        self.round_trip_ns.map_or_else(|| name.to_owned(), |ns| format!("{name} {ns}"))
    }
}

/// Returns the processors that a bench may pin its ends to.
pub fn processors() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Returns the processor time that the threads of a process had, without threads that ended.
pub fn time_of(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let nanos = threads.flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// A counter that shares its cache line, and the adjacent one, with nothing else.
#[repr(align(128))]
struct Line(AtomicU64);

/// Passes a cache line between the first two processors for `span`.
pub fn look(span: Duration) -> Machine {
    let &[here, there, ..] = &processors()[..] else { return Machine::SINGLE };
    let line = Line(AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let round_trip = std::thread::scope(|scope| {
        // This thread answers each odd value with the next even one.
        scope.spawn(|| {
            if pin(there).is_err() {
                return;
            }
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                let now = line.0.load(Ordering::Acquire);
                if now % 2 == 1 && now != seen {
                    seen = now;
                    line.0.store(now + 1, Ordering::Release);
                }
                std::hint::spin_loop();
            }
        });
        // This thread counts how many answers it gets, and how long they take.
        let ping = scope.spawn(|| {
            let _ = pin(here);
            // The best of several short runs counts: a run that was preempted measures the
            // scheduler, not the caches.
            let start = Instant::now();
            let mut best = u64::MAX;
            let mut value = 0;
            while start.elapsed() < span {
                let run = Instant::now();
                let mut rounds = 0;
                while rounds < 2000 && start.elapsed() < span {
                    for _ in 0..100 {
                        line.0.store(value + 1, Ordering::Release);
                        while line.0.load(Ordering::Acquire) != value + 2 {
                            if start.elapsed() > span * 4 {
                                return best;
                            }
                            std::hint::spin_loop();
                        }
                        value += 2;
                        rounds += 1;
                    }
                }
                if let Some(mean) = (run.elapsed().as_nanos() as u64).checked_div(rounds) {
                    best = best.min(mean);
                }
            }
            best
        });
        // The answering thread runs until it is told to stop.
        let round_trip = ping.join().unwrap_or(u64::MAX);
        stop.store(true, Ordering::Relaxed);
        round_trip
    });
    let state = State::of(round_trip, || share_a_core(here, there));
    Machine { state, round_trip_ns: (round_trip < u64::MAX).then_some(round_trip) }
}

/// Steps of one piece of work, which takes about 100 us.
const STEPS: u32 = 40_000;

/// Runs four chains that do not wait for each other, so that they keep a core's arithmetic units
/// busy. Returns the time that this took.
fn work() -> Duration {
    let start = Instant::now();
    let mut chains = std::hint::black_box([1u64, 2, 3, 4]);
    for _ in 0..STEPS {
        for x in &mut chains {
            *x ^= *x << 13;
            *x ^= *x >> 7;
            *x ^= *x << 17;
        }
    }
    std::hint::black_box(chains);
    start.elapsed()
}

/// Returns true if work on one processor takes more than 1.3 times as long while the other works,
/// too.
fn share_a_core(here: usize, there: usize) -> bool {
    let (begin, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let best = || (0..5).map(|_| work()).min().unwrap_or_default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if pin(there).is_err() {
                return;
            }
            while !begin.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_micros(50));
            }
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        });
        let judge = scope.spawn(|| {
            let _ = pin(here);
            work();
            let alone = best();
            begin.store(true, Ordering::Relaxed);
            // The other thread is awake by then.
            std::thread::sleep(Duration::from_millis(1));
            let together = best();
            together * 10 > alone * 13
        });
        let shared = judge.join().unwrap_or(false);
        // The other thread must end even if the judge ended early.
        begin.store(true, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        shared
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_has_its_state() {
        let of = |ns, shared| State::of(ns, || shared).as_str();
        assert_eq!([50, 110, 300, 560].map(|ns| of(ns, true)), ["smt", "near", "mid", "far"]);
        assert_eq!([50, 110, 300, 560].map(|ns| of(ns, false)), ["near", "near", "mid", "far"]);
    }

    #[test]
    fn who_works_has_processor_time() {
        // The work is in a process of its own, since threads of other tests end in this one.
        let mut busy = std::process::Command::new("sh");
        let mut busy = busy.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let start = Instant::now();
        let mut time = Duration::ZERO;
        while time.is_zero() && start.elapsed() < Duration::from_secs(120) {
            time = time_of(busy.id());
            std::thread::yield_now();
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(!time.is_zero(), "a busy process without time");
        assert_eq!(time_of(0), Duration::ZERO);
    }

    /// The probe ends, and with two processors it finds a state other than single.
    #[test]
    fn the_probe_ends_and_says_something() {
        let found = look(Duration::from_millis(20));
        let single = found.state == State::Single;
        assert_eq!(single, processors().len() < 2);
        assert!(!single || found == Machine::SINGLE);
    }
}
