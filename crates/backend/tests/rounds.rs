//! No guest makes others wait: a round of a worker, in which each queue that has something
//! to do gets a turn, is short whatever guests send. What else the worker has to do waits for
//! the end of a round: signals, commands of the control thread, times.
//!
//! The worker has no thread: guests fill their rings, then it takes one round, and so on.
//! Work is counted by a price list, so each run is the same on any machine. (`make measure`
//! has the same with a thread and its processor time.)

mod support;

use grantway_backend::Meter;
use grantway_embedded::Domain;
use grantway_hypervisor::{CounterSnapshot, GrantRef, Platform};
use grantway_netif::Offload;
use grantway_netif::tx::TxFlags;
use grantway_ring::{Index, RingMemory};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;
use support::flood::{CUT_COUNT, CUT_SIZE, Guest, Habit, LARGEST, SMALL, address};
use support::port::UPLINK;
use support::rings::{SLOTS, slot};
use support::tcp::Tcp;
use support::world::World;

/// Time that a round may take at most.
const BAR: Duration = Duration::from_millis(5);

/// Prices of work in nanoseconds, similar to those on the embedded host.
const A_TURN: u64 = 300;
const A_BATCH: u64 = 1300;
const A_COPY: u64 = 400;
const A_KILOBYTE: u64 = 60;
const A_SIGNAL: u64 = 200;
const A_SEGMENT: u64 = 150;

thread_local! {
    /// Turns of the worker so far. `PLATFORM` is the backend's domain. All three are values of
    /// the control thread.
    static TURNS: Cell<u64> = const { Cell::new(0) };
    /// Price of a turn in nanoseconds, whatever the turn moves.
    static EACH: Cell<u64> = const { Cell::new(A_TURN) };
    static PLATFORM: RefCell<Option<Arc<Domain>>> = const { RefCell::new(None) };
}

/// Returns the price of the worker's work so far without segments, by the price list. Each
/// reading counts as a turn.
fn meter() -> Duration {
    TURNS.set(TURNS.get() + 1);
    let asked = PLATFORM.with_borrow(|platform| match platform {
        Some(platform) => platform.counters(),
        None => CounterSnapshot::default(),
    });
    let CounterSnapshot { copy_batches, copies, copy_bytes, notifies, .. } = asked;
    let work = copy_batches * A_BATCH + copies * A_COPY + notifies * A_SIGNAL;
    Duration::from_nanos(TURNS.get() * EACH.get() + work + copy_bytes * A_KILOBYTE / 1024)
}

/// A bridge with guests that receive, numbered from 1, and those that flood it.
struct Scene {
    world: World,
    receivers: Vec<Guest>,
    floods: Vec<Guest>,
}

impl Scene {
    fn new(receivers: u16, floods: u16) -> Self {
        let mut world = World::counted(true, Meter::counted(meter));
        let platform = world.control().platform();
        world.control().with(move |_| PLATFORM.set(Some(platform)));
        let mut boot = |first: u16, count: u16| -> Vec<Guest> {
            (first..first + count).map(|number| Guest::boot(&mut world, number)).collect()
        };
        let (receivers, floods) = (boot(1, receivers), boot(receivers + 1, floods));
        let mut scene = Self { world, receivers, floods };
        // The bridge learns where the receivers are.
        scene.receivers.iter_mut().for_each(|guest| guest.takes_up(Habit::SendsTo(99)));
        scene.act(4);
        scene.receivers.iter_mut().for_each(|guest| guest.takes_up(Habit::Rests));
        scene.act(20);
        scene
    }

    /// Runs `rounds` rounds. In each, every guest acts, then the worker takes a round. Returns
    /// the price of the longest round.
    fn act(&mut self, rounds: usize) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..rounds {
            for guest in self.receivers.iter_mut().chain(&mut self.floods) {
                guest.sends();
                guest.receives();
            }
            let took = self.world.control().with(|backend| {
                let segments = |backend: &grantway_backend::Backend| -> u64 {
                    backend.account().vifs.values().map(|stats| stats.rx_cut).sum()
                };
                let before = (segments(backend), meter());
                let _ = backend.serve().unwrap();
                let (built, used) = (segments(backend) - before.0, meter() - before.1);
                used + Duration::from_nanos(built * A_SEGMENT)
            });
            longest = longest.max(took);
        }
        longest
    }

    /// Queues that the worker serves.
    fn queues(&self) -> usize {
        self.world.control().with(|backend| backend.workers()[0].queues)
    }

    /// Rounds, until something is so.
    fn rounds_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..10_000 {
            if is_so(self) {
                return;
            }
            self.world.control().rounds(1);
        }
        panic!("not in 10,000 rounds: {what}");
    }

    fn ends(self) {
        self.world.control().with(|_| PLATFORM.set(None));
        drop((self.receivers, self.floods));
        self.world.bridge_stands();
    }
}

/// Slots of a guest's that were answered, and what its packets came to.
fn served(scene: &Scene) -> u32 {
    scene.floods.iter().map(Guest::served).sum()
}

#[test]
fn no_flood_makes_a_round_long() {
    let habits = [
        SMALL,
        LARGEST,
        Habit::Broadcasts,
        Habit::SendsToNobody,
        Habit::CutForAll,
        Habit::CutForEach(16),
    ];
    let mut long = Vec::new();
    for floods in [1, 16, 40] {
        let mut scene = Scene::new(16, floods);
        for habit in habits {
            scene.floods.iter_mut().for_each(|guest| guest.takes_up(habit));
            let before = served(&scene);
            let longest = scene.act(60);
            println!("{floods} of {habit:?}: {longest:?}");
            assert_ne!(served(&scene), before, "{habit:?}: nothing was served");
            if longest > BAR {
                long.push((floods, habit, longest));
            }
            scene.floods.iter_mut().for_each(|guest| guest.takes_up(Habit::Rests));
            scene.act(40);
        }
        let reported = scene.world.control().with(|backend| backend.workers()[0].longest_round);
        assert!((Duration::from_micros(100)..BAR).contains(&reported), "reported: {reported:?}");
        scene.ends();
    }
    assert!(long.is_empty(), "rounds of more than {BAR:?}: {long:?}");
}

/// A frame for all guests, which each of a hundred accepts in segments only. Guests get its
/// segments if their number is allowed (42), and none gets any if there are more (50, 7490).
#[test]
fn no_frame_for_all_makes_a_round_long() {
    let mut scene = Scene::new(100, 1);
    let payload = usize::from(CUT_SIZE) * CUT_COUNT;
    let mut cut = Vec::new();
    for habit in [Habit::CutForAll, Habit::CutForAllBy(1448), Habit::CutForAllBy(1200)] {
        let segments = |scene: &Scene| {
            scene.world.control().with(|backend| {
                backend.account().vifs.values().map(|stats| stats.rx_cut).sum::<u64>()
            })
        };
        scene.floods[0].takes_up(habit);
        let (answered, before) = (served(&scene), segments(&scene));
        let longest = scene.act(60);
        println!("{habit:?}: {longest:?}");
        assert_ne!(served(&scene), answered, "{habit:?}: nothing was served");
        assert!(longest < BAR, "{habit:?}: {longest:?}");
        scene.floods[0].takes_up(Habit::Rests);
        while scene.floods[0].served() != scene.floods[0].rings.tx_prod {
            scene.act(1);
        }
        cut.push(segments(&scene) > before);
    }
    // 7490, 42 and 50 segments; 49 are borne where there are a hundred and one.
    assert_eq!(
        (cut, payload.div_ceil(1448), payload.div_ceil(1200)),
        (vec![false, true, false], 42, 50)
    );
    scene.ends();
}

/// The first turn of a round has nobody to share with, and its frames wake all others, whose
/// rings are full.
#[test]
fn queues_that_a_turn_wakes_share_its_round() {
    let mut scene = Scene::new(0, 17);
    scene.world.control().with(|_| EACH.set(600_000));
    for guest in &mut scene.floods {
        guest.withholds = true;
        guest.takes_up(Habit::Broadcasts);
    }
    // The first one's take all pages that are posted.
    scene.rounds_until("its frames are taken", |scene| {
        scene.floods[0].sends();
        served(scene) >= SLOTS
    });
    scene.world.control().rounds(4);
    // Of the others nobody knows yet: when frames come that wait for pages, their queues look
    // for some.
    scene.floods[1..].iter_mut().for_each(|guest| assert!(guest.fills(), "nobody is asked"));
    scene.floods[0].sends();
    let others = |scene: &Scene| scene.floods[1..].iter().map(Guest::served).collect::<Vec<_>>();
    let (first, before) = (served(&scene), others(&scene));
    scene.rounds_until("one has a turn", |scene| served(scene) != first);
    let mut last = before.clone();
    scene.rounds_until("all have a turn", |scene| {
        let now = others(scene);
        let had_turns = now.iter().zip(&last).filter(|(now, last)| now != last).count();
        assert!(had_turns <= 2, "{had_turns} of 0.6 ms each, in a round of 1 ms");
        last = now;
        last.iter().zip(&before).all(|(now, before)| now != before)
    });
    scene.ends();
}

/// A queue that fails is unmapped and unbound, which takes its time: so it is the last one that
/// has a turn in its round.
#[test]
fn a_round_ends_with_a_queue_that_fails() {
    const GUESTS: u16 = 8;
    let mut scene = Scene::new(0, GUESTS);
    for guest in &mut scene.floods {
        guest.takes_up(Habit::Broadcasts);
        guest.fills();
        // Behind them, a packet of which the rest is missing.
        let more = slot(GrantRef(1), 0, 64, 1, TxFlags::MORE_DATA);
        guest.rings.tx.write_slot(guest.rings.tx_prod - 1, more);
        guest.hostile.kick(guest.rings.tx_event);
    }
    let mut left = scene.queues();
    assert_eq!(left, GUESTS.into());
    scene.rounds_until("all of them failed", |scene| {
        let now = scene.queues();
        assert!(left - now <= 1, "{left} queues before a round, {now} behind it");
        left = now;
        left == 0
    });
    scene.ends();
}

/// One frame finds more broken receivers than one round may take out of service, and there is
/// nothing else to do. The worker goes on until all of them are out of service.
#[test]
fn all_receivers_that_one_frame_finds_broken_are_taken_out_of_service() {
    const GUESTS: u16 = 12;
    let mut scene = Scene::new(GUESTS, 0);
    let uplink = scene.world.behind(UPLINK);
    for guest in &mut scene.receivers {
        guest.rings.rx.store(Index::ReqProd, guest.rings.rx_prod.wrapping_add(10_000));
    }
    assert_eq!(scene.queues(), GUESTS.into());
    let mut frame = vec![0; 60];
    frame[..6].fill(0xff);
    // Their pages are known by now: the frame behind those has the worker look at the ring.
    for _ in 0..SLOTS {
        uplink.give(frame.clone(), Offload::default());
    }
    scene.rounds_until("their pages are used up", |_| uplink.look().waiting.is_empty());
    scene.world.control().rounds(4);
    assert_eq!(scene.queues(), GUESTS.into());
    uplink.give(frame, Offload::default());
    let goes_on = || scene.world.control().with(|backend| backend.serve().unwrap());
    let rounds = (1..1000).find(|_| !goes_on() && uplink.look().waiting.is_empty());
    assert_eq!((scene.queues(), rounds.is_some()), (0, true), "after {rounds:?} rounds");
    scene.ends();
}

/// Work for a burst of the uplink is limited like a turn of a guest. The burst has large
/// frames, which each of 100 guests accepts in segments only: to all guests, and to one after
/// the other.
#[test]
fn no_flood_of_the_uplink_makes_a_round_long() {
    const GUESTS: u16 = 100;
    let mut scene = Scene::new(GUESTS, 0);
    let uplink = scene.world.behind(UPLINK);
    let tcp = Tcp { v6: true };
    let payload = vec![7; usize::from(CUT_SIZE) * CUT_COUNT];
    let to_all = (vec![[0xff; 6]], 1448);
    let to_each = ((1..=GUESTS).map(address).collect(), CUT_SIZE);
    for (stations, size) in [to_all, to_each] {
        let mut stations = stations.iter().cycle();
        let given = uplink.look().given;
        let mut longest = Duration::ZERO;
        for _ in 0..40 {
            while uplink.look().waiting.len() < 16 {
                let to = *stations.next().unwrap();
                uplink.give(tcp.frame(to, address(200), &payload), tcp.offload(size));
            }
            longest = longest.max(scene.act(1));
        }
        println!("segments of {size}: {longest:?}");
        assert!(uplink.look().given >= given + 20, "segments of {size}: nothing was taken");
        assert!(longest < BAR, "segments of {size}: {longest:?}");
        while !uplink.look().waiting.is_empty() {
            scene.act(1);
        }
        scene.act(20);
    }
    scene.ends();
}

#[test]
fn packets_that_a_turn_leaves_are_sent_later_in_order() {
    let mut scene = Scene::new(0, 17);
    let [sender, ..] = &mut scene.floods[..] else { panic!() };
    sender.takes_up(Habit::Counts);
    scene.floods.iter_mut().for_each(Guest::receives);
    let turn = |scene: &Scene| {
        scene.world.control().rounds(1);
        scene.floods[0].served()
    };
    // Not all in one turn: by price, 42 packets go to all.
    let mut first = 0;
    while first == 0 {
        first = turn(&scene);
    }
    assert!((2..128).contains(&first), "{first} slots in the first turn");
    while turn(&scene) < 128 {}
    scene.world.control().rounds(4);
    let all: Vec<u8> = (0..64).collect();
    for receiver in &scene.floods[1..] {
        assert_eq!(receiver.numbers(), all);
    }
    scene.ends();
}
