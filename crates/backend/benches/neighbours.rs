//! Share of the worker's time that a vif keeps beside a flooding vif, by the processor time of
//! the worker's thread. `make measure` runs this bench and judges the figures.
//! `tests/neighbours.rs` tests the same by counted work.
//!
//! One thread drives all guests. It has far less to do per frame than the worker, and a slice
//! is measured in processor time of the worker. So the worker divides the time, not the
//! kernel's scheduler. The victim's rates beside an equal neighbour and beside a flooding one
//! are measured in short slices, interleaved. Prints a line of JSON for each flood: the ratios.
//! Before these lines comes one for each flood of a bridge with many guests: the longest rounds
//! of the worker, each of a backend that was started for it.

#[path = "../tests/support/mod.rs"]
mod support;

use grantway_backend::WaitMode;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use support::PROMPT;
use support::flood::{ETHERNET, Guest, Habit, LARGEST, SMALL, SPLINTERED};
use support::world::World;

/// A slice of the worker's time, and what comes before it: then requests of the
/// slice before are served.
const SLICE: Duration = Duration::from_millis(6);
const SETTLE: Duration = Duration::from_millis(2);
/// Comparisons, each of four slices, for each flood.
const ROUNDS: usize = 15;

/// Returns the processor time that the worker used: the process's time without this thread's.
/// No other thread has anything to do.
fn workers_time() -> Duration {
    let time = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    time(ClockId::ProcessCPUTime).saturating_sub(time(ClockId::ThreadCPUTime))
}

/// A worker's guests: the victim first, then its neighbour, then others.
struct Scene {
    world: World,
    guests: Vec<Guest>,
}

impl Scene {
    fn new(bridged: bool, guests: u16) -> Self {
        let mut world = World::of_workers(1, WaitMode::Interrupt, bridged);
        let guests = (1..=guests).map(|number| Guest::boot(&mut world, number)).collect();
        Self { world, guests }
    }

    /// A few rounds of what each guest does.
    fn act(&mut self) {
        for _ in 0..8 {
            for guest in &mut self.guests {
                guest.sends();
                guest.receives();
            }
        }
    }

    /// Slots of the victim's that are served in a second of the worker's time.
    fn run(&mut self, time: Duration) -> f64 {
        let (wall, before, start) = (Instant::now(), self.guests[0].served(), workers_time());
        loop {
            self.act();
            let used = workers_time().saturating_sub(start);
            if used >= time {
                let served = self.guests[0].served().wrapping_sub(before);
                return f64::from(served) / used.as_secs_f64();
            }
            assert!(wall.elapsed() < PROMPT, "the worker used {used:?} in {PROMPT:?}");
        }
    }

    /// Prints the victim's rate beside a flood, divided by its rate beside an equal neighbour:
    /// one ratio for each comparison.
    fn left(&mut self, own: Habit, equal: Habit, flood: Habit) {
        self.guests[0].takes_up(own);
        let ratios: Vec<String> = (0..ROUNDS)
            .map(|_| {
                let mut beside = |habit| {
                    self.guests[1].takes_up(habit);
                    self.run(SETTLE);
                    self.run(SLICE)
                };
                let [a, b, c, d] = [beside(equal), beside(flood), beside(flood), beside(equal)];
                format!("{:.4}", (b + c) / (a + d))
            })
            .collect();
        let ratios = ratios.join(",");
        println!("{{\"own\":\"{own:?}\",\"flood\":\"{flood:?}\",\"left\":[{ratios}]}}");
    }

    fn ends(self) {
        drop(self.guests);
        self.world.bridge_stands();
    }
}

/// Number of guests that a flood reaches. None of them accepts large frames of IPv6.
const RECEIVERS: u16 = 16;
const FLOODING: u16 = 2;
/// Backends that are measured, and for how long each.
const TIMES: usize = 9;
const FLOOD: Duration = Duration::from_millis(30);

/// The longest rounds of a worker, in milliseconds of its processor.
fn rounds(flood: Habit) {
    let longest: Vec<String> = (0..TIMES)
        .map(|_| {
            let mut scene = Scene::new(true, RECEIVERS + FLOODING);
            // The bridge learns where the receivers are.
            scene.guests.iter_mut().for_each(|guest| guest.takes_up(Habit::SendsTo(99)));
            scene.run(SETTLE);
            scene.guests.iter_mut().for_each(|guest| guest.takes_up(Habit::Rests));
            let flooding = scene.guests.iter_mut().skip(RECEIVERS.into());
            flooding.for_each(|guest| guest.takes_up(flood));
            scene.run(FLOOD);
            let workers = scene.world.control().with(|backend| backend.workers());
            scene.ends();
            let longest = workers.iter().map(|worker| worker.longest_round).max();
            format!("{:.4}", longest.unwrap_or_default().as_secs_f64() * 1e3)
        })
        .collect();
    let longest = longest.join(",");
    println!("{{\"flood\":\"{flood:?}\",\"rounds\":[{longest}]}}");
}

fn main() {
    for flood in [
        SMALL,
        LARGEST,
        Habit::Broadcasts,
        Habit::SendsToNobody,
        Habit::CutForAll,
        Habit::CutForEach(RECEIVERS),
    ] {
        rounds(flood);
    }
    let mut scene = Scene::new(false, 2);
    for own in [SMALL, ETHERNET, LARGEST] {
        let floods = [SMALL, LARGEST, SPLINTERED];
        let storms = [Habit::SendsAndSignals, Habit::SendsNothing, Habit::Signals];
        for flood in floods.into_iter().chain(storms).filter(|flood| *flood != own) {
            scene.left(own, own, flood);
        }
    }
    scene.ends();
    let mut scene = Scene::new(true, 4);
    // The bridge learns where the receivers are.
    for receiver in [2, 3] {
        scene.guests[receiver].takes_up(Habit::SendsTo(99));
    }
    scene.run(SETTLE);
    for receiver in [2, 3] {
        scene.guests[receiver].takes_up(Habit::Rests);
    }
    for flood in [Habit::Broadcasts, Habit::SendsToNobody, Habit::Signals] {
        scene.left(Habit::SendsTo(3), Habit::SendsTo(4), flood);
    }
    scene.ends();
}
