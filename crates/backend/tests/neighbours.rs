//! A vif that floods costs another at most a tenth of its fair share, which is
//! what it has beside a neighbour as greedy as itself: half of their worker.
//!
//! The worker has no thread: guests fill their rings, then it takes a round, and so on.
//! What a turn cost is counted by a price list, so each run is the same on any machine.
//! (`make measure` has the same with threads and their processor time.)

#[path = "neighbours/hoards.rs"]
mod hoards;
mod support;

use grantway_backend::Meter;
use grantway_embedded::Domain;
use grantway_hypervisor::{CounterSnapshot, Platform};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;
use support::flood::{ETHERNET, Guest, Habit, LARGEST, SMALL, SPLINTERED};
use support::world::World;

/// A slice of the worker's time, and what comes before it: then requests of the
/// slice before are served.
const SLICE: Duration = Duration::from_millis(40);
const SETTLE: Duration = Duration::from_millis(4);
/// Smallest allowed part of the fair share.
const LEAST: f64 = 0.9;

/// Prices of work in nanoseconds, similar to those on the embedded host.
const A_TURN: u64 = 300;
const A_BATCH: u64 = 1300;
const A_COPY: u64 = 400;
const A_KILOBYTE: u64 = 60;
const A_SIGNAL: u64 = 200;
/// Time for which another thread has the worker's processor, and the readings of the clock from one
/// such time to the next. A round has two or three, so each queue's turns are met alike.
const AWAY: Duration = Duration::from_micros(600);
const AWAY_EVERY: u32 = 7;

thread_local! {
    /// Readings of the clock that passes while the worker is away.
    static READ: Cell<u32> = const { Cell::new(0) };
    /// Nanoseconds of the worker's turns so far. `PLATFORM` is the backend's domain. Both are
    /// values of the control thread.
    static USED: Cell<u64> = const { Cell::new(0) };
    static PLATFORM: RefCell<Option<Arc<Domain>>> = const { RefCell::new(None) };
}

/// Returns the price of the worker's work so far, by the price list. Each reading counts as a
/// turn.
fn meter() -> Duration {
    USED.set(USED.get() + A_TURN);
    let asked = PLATFORM.with_borrow(|platform| match platform {
        Some(platform) => platform.counters(),
        None => CounterSnapshot::default(),
    });
    let CounterSnapshot { copy_batches, copies, copy_bytes, notifies, .. } = asked;
    let work = copy_batches * A_BATCH + copies * A_COPY + notifies * A_SIGNAL;
    Duration::from_nanos(USED.get() + work + copy_bytes * A_KILOBYTE / 1024)
}

/// Returns the time that passed so far. This clock also runs while another thread has the
/// processor.
fn passed() -> Duration {
    READ.set(READ.get() + 1);
    meter() + AWAY * (READ.get() / AWAY_EVERY)
}

/// A worker's guests: the victim and its neighbour, each of which comes first once, then
/// others.
struct Scene {
    world: World,
    guests: Vec<Guest>,
}

impl Scene {
    fn new(bridged: bool, guests: u16) -> Self {
        Self::by(Meter::counted(meter), bridged, guests)
    }

    fn by(meter: Meter, bridged: bool, guests: u16) -> Self {
        let mut scene = Self::over(World::counted(bridged, meter));
        scene.guests = (1..=guests).map(|number| Guest::boot(&mut scene.world, number)).collect();
        scene
    }

    /// Makes a scene without guests.
    fn over(world: World) -> Self {
        let platform = world.control().platform();
        world.control().with(move |_| PLATFORM.set(Some(platform)));
        Self { world, guests: Vec::new() }
    }

    /// Lets each guest act, then the worker for one round. Returns the price of the worker's
    /// work so far.
    fn act(&mut self) -> Duration {
        for guest in &mut self.guests {
            guest.sends();
            guest.receives();
        }
        self.world.control().with(|backend| {
            let _ = backend.serve().unwrap();
            meter()
        })
    }

    /// Returns the number of slots of each guest that are served per second of the worker's
    /// time.
    fn run(&mut self, time: Duration) -> Vec<f64> {
        let served = |scene: &Self| scene.guests.iter().map(Guest::served).collect::<Vec<_>>();
        let (before, start) = (served(self), self.act());
        loop {
            let used = self.act().saturating_sub(start);
            if used >= time {
                let slots = served(self).into_iter().zip(before);
                let rate = |(now, before): (u32, u32)| f64::from(now.wrapping_sub(before));
                return slots.map(|slots| rate(slots) / used.as_secs_f64()).collect();
            }
        }
    }

    /// Checks the victim's share beside a flood against its share beside an equal neighbour,
    /// and that the two equal guests have equal shares.
    fn left(&mut self, own: Habit, equal: Habit, flood: Habit) {
        for victim in [0, 1] {
            let neighbour = 1 - victim;
            self.guests[victim].takes_up(own);
            let mut beside = |habit| {
                self.guests[neighbour].takes_up(habit);
                self.run(SETTLE);
                self.run(SLICE)
            };
            let [fair, left] = [beside(equal), beside(flood)];
            let (like, share) = (fair[victim] / fair[neighbour], left[victim] / fair[victim]);
            let what = format!("{own:?} as guest {victim} beside {flood:?}");
            println!("{what}: {share:.3} of its fair share, {like:.3} of its equal's");
            assert!((LEAST..=1.0 / LEAST).contains(&like), "{what}: {like:.3} of its equal's");
            assert!(share >= LEAST, "{what}: {share:.3} of its fair share");
        }
    }

    fn ends(self) {
        self.world.control().with(|_| PLATFORM.set(None));
        drop(self.guests);
        self.world.bridge_stands();
    }
}

#[test]
fn a_vif_that_floods_costs_another_no_more_than_a_tenth_of_its_share() {
    let mut scene = Scene::new(false, 2);
    for own in [SMALL, ETHERNET, LARGEST] {
        let floods = [SMALL, LARGEST, SPLINTERED];
        let storms = [Habit::SendsAndSignals, Habit::Signals];
        let nothing = [Habit::SendsNothing, Habit::SplintersNothing];
        let all = floods.into_iter().chain(storms).chain(nothing);
        for flood in all.filter(|flood| *flood != own) {
            scene.left(own, own, flood);
        }
    }
    scene.ends();
}

#[test]
fn a_worker_that_is_not_alone_on_its_processor_shares_its_own_time() {
    let mut scene = Scene::by(Meter::new(meter, passed), false, 2);
    // Where turns are short, there are many, and others take the processor in many of them.
    for (own, flood) in [(SMALL, LARGEST), (LARGEST, SMALL), (SMALL, SPLINTERED)] {
        scene.left(own, own, flood);
    }
    scene.ends();
}

#[test]
fn a_guest_that_floods_a_bridge_costs_another_no_more_than_a_tenth_of_its_share() {
    let mut scene = Scene::new(true, 4);
    // The bridge learns where the receivers are.
    for receiver in [2, 3] {
        scene.guests[receiver].takes_up(Habit::SendsTo(99));
    }
    scene.run(SETTLE);
    for receiver in [2, 3] {
        scene.guests[receiver].takes_up(Habit::Rests);
    }
    // What is served counts: what a receiver that is given too much has to drop is
    // another matter, and bounded by what may wait (`waiting.rs`).
    for flood in [Habit::Broadcasts, Habit::SendsToNobody, Habit::Signals] {
        scene.left(Habit::SendsTo(3), Habit::SendsTo(4), flood);
    }
    scene.ends();
}
