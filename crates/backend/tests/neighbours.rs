//! A vif that floods costs another at most a tenth of its fair share, which is
//! what it has beside a neighbour as greedy as itself: half of their worker.
//!
//! The worker has no thread: guests fill their rings, then it takes a round, and so on.
//! What a turn cost is counted by a price list, so each run is the same on any machine.
//! (`make measure` has the same with threads and their processor time.)

mod support;

use grantway_backend::VifId;
use grantway_embedded::Domain;
use grantway_hypervisor::{Access, CounterSnapshot, DomId, GrantRef, Granted, Platform};
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::TxFlags;
use grantway_ring::{Index, RingMemory, RingPage};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Duration;
use support::hostile::{Hostile, frame};
use support::port::Flow;
use support::rings::{Rings, SLOTS, page, slot};
use support::world::World;

/// A slice of the worker's time, and what comes before it: then requests of the
/// slice before are served.
const SLICE: Duration = Duration::from_millis(40);
const SETTLE: Duration = Duration::from_millis(4);
/// What must be left of the fair share.
const LEAST: f64 = 0.9;

/// What work costs, in nanoseconds: about what it does on the embedded host.
const A_TURN: u64 = 300;
const A_BATCH: u64 = 1300;
const A_COPY: u64 = 400;
const A_KILOBYTE: u64 = 60;
const A_SIGNAL: u64 = 200;

thread_local! {
    /// What the worker used so far, and the backend's domain, of the control thread.
    static USED: Cell<u64> = const { Cell::new(0) };
    static PLATFORM: RefCell<Option<Arc<Domain>>> = const { RefCell::new(None) };
}

/// What the worker was asked for so far, by the price list.
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

/// Pages to send from.
const PAGES: usize = 18;
const BROADCAST: [u8; 6] = [0xff; 6];

/// What a guest does all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Its ring is full of packets of so many bytes in so many slots each.
    Sends { bytes: usize, slots: usize },
    /// Its ring is full of small packets, and it signals as fast as it can.
    SendsAndSignals,
    /// Its ring is full of packets whose pages are not there.
    SendsNothing,
    /// Its ring is empty, and it signals as fast as it can.
    Signals,
    /// Its ring is empty.
    Rests,
    /// Its ring is full of small packets to another guest on the bridge.
    SendsTo(u16),
    /// Its ring is full of small packets to all of them.
    Broadcasts,
    /// Its ring is full of packets from and to addresses that nobody knows.
    SendsToNobody,
}

const SMALL: Habit = Habit::Sends { bytes: 64, slots: 1 };
const ETHERNET: Habit = Habit::Sends { bytes: 1514, slots: 1 };
const LARGEST: Habit = Habit::Sends { bytes: 65_535, slots: 16 };
const SPLINTERED: Habit = Habit::Sends { bytes: 72, slots: 18 };

fn address(number: u16) -> [u8; 6] {
    [2, 0, 0, 0, 0, number as u8]
}

struct Guest {
    hostile: Hostile,
    rings: Rings,
    own: [u8; 6],
    out: Granted,
    into: Granted,
    /// What its ring is filled with, again and again.
    offers: Vec<[u32; 3]>,
    signals: bool,
}

impl Guest {
    fn boot(world: &mut World, number: u16) -> Self {
        let vif = VifId { domain: DomId(20 + number), devid: 0 };
        let mut hostile = world.guest_of(vif);
        // Frames are counted and forgotten.
        world.behind(vif).look().flow = Some(Flow::new(64));
        let rings = hostile.connect();
        let out = hostile.pages(PAGES, Access::ReadOnly);
        let into = hostile.pages(SLOTS as usize, Access::ReadWrite);
        let (own, offers) = (address(number), Vec::new());
        Self { hostile, rings, own, out, into, offers, signals: false }
    }

    fn takes_up(&mut self, habit: Habit) {
        self.signals = matches!(habit, Habit::Signals | Habit::SendsAndSignals);
        let small = |guest: &Self, n| slot(page(&guest.out, n).1, 0, 64, 1, TxFlags::empty());
        self.offers = match habit {
            Habit::Signals | Habit::Rests => Vec::new(),
            Habit::SendsNothing => vec![slot(GrantRef(30_000), 0, 64, 1, TxFlags::empty())],
            Habit::Sends { bytes, slots } => self.packet(bytes, slots),
            Habit::SendsAndSignals => self.packet(64, 1),
            Habit::SendsTo(number) => {
                self.writes(0, address(number), self.own);
                vec![small(self, 0)]
            }
            Habit::Broadcasts => {
                self.writes(0, BROADCAST, self.own);
                vec![small(self, 0)]
            }
            Habit::SendsToNobody => {
                for n in 0..PAGES {
                    self.writes(n, [2, 1, 0, 0, 0, n as u8], [2, 2, 0, 0, 0, n as u8]);
                }
                (0..PAGES).map(|n| small(self, n)).collect()
            }
        };
    }

    fn packet(&self, bytes: usize, slots: usize) -> Vec<[u32; 3]> {
        for n in 0..slots {
            page(&self.out, n).0.write(0, &frame(4096)).unwrap();
        }
        let size = bytes.div_ceil(slots);
        let part = |n| match n {
            0 => bytes,
            _ if n + 1 == slots => bytes - size * n,
            _ => size,
        };
        let more = |n| if n + 1 < slots { TxFlags::MORE_DATA } else { TxFlags::empty() };
        (0..slots).map(|n| slot(page(&self.out, n).1, 0, part(n) as u16, 1, more(n))).collect()
    }

    fn writes(&self, n: usize, to: [u8; 6], from: [u8; 6]) {
        let mut bytes = frame(64);
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&from);
        page(&self.out, n).0.write(0, &bytes).unwrap();
    }

    /// Fills its ring, and signals where the backend asked for it, or anyway.
    fn sends(&mut self) {
        let old = self.rings.tx_prod;
        let mut room = SLOTS - old.wrapping_sub(self.served());
        while !self.offers.is_empty() && room as usize >= self.offers.len() {
            for &words in &self.offers {
                self.rings.tx.write_slot(self.rings.tx_prod, words);
                self.rings.tx_prod = self.rings.tx_prod.wrapping_add(1);
                room -= 1;
            }
        }
        if shows(&self.rings.tx, old, self.rings.tx_prod) || self.signals {
            self.hostile.kick(self.rings.tx_event);
        }
        if self.signals {
            self.hostile.kick(self.rings.rx_event);
        }
    }

    /// Posts all pages again that it was given frames in.
    fn receives(&mut self) {
        let old = self.rings.rx_prod;
        let end = self.rings.rx.load(Index::RspProd);
        self.rings.rx_cons = end;
        while self.rings.rx_prod.wrapping_sub(self.rings.rx_cons) < SLOTS {
            let index = self.rings.rx_prod;
            let gref = self.into.grefs[(index % SLOTS) as usize].0;
            self.rings.rx.write_slot(index, RxRequest { id: index as u16, gref }.to_words());
            self.rings.rx_prod = index.wrapping_add(1);
        }
        if shows(&self.rings.rx, old, self.rings.rx_prod) {
            self.hostile.kick(self.rings.rx_event);
        }
    }

    /// Slots of its own that were answered so far.
    fn served(&self) -> u32 {
        self.rings.tx.load(Index::RspProd)
    }
}

/// Publishes requests; whether the backend asked to be told.
fn shows<const W: usize>(ring: &RingPage<W>, old: u32, new: u32) -> bool {
    if new == old {
        return false;
    }
    fence(SeqCst);
    ring.store(Index::ReqProd, new);
    fence(SeqCst);
    let event = ring.load(Index::ReqEvent);
    new.wrapping_sub(event) < new.wrapping_sub(old)
}

/// A worker's guests: the victim first, then its neighbour, then others.
struct Scene {
    world: World,
    guests: Vec<Guest>,
}

impl Scene {
    fn new(bridged: bool, guests: u16) -> Self {
        let mut world = World::counted(bridged, meter);
        let platform = world.control().platform();
        world.control().with(move |_| PLATFORM.set(Some(platform)));
        let guests = (1..=guests).map(|number| Guest::boot(&mut world, number)).collect();
        Self { world, guests }
    }

    /// What each guest does, and then a round of the worker; what that has used so far.
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

    /// Slots of the victim's that are served in a second of the worker's time.
    fn run(&mut self, time: Duration) -> f64 {
        let (before, start) = (self.guests[0].served(), self.act());
        loop {
            let used = self.act().saturating_sub(start);
            if used >= time {
                let served = self.guests[0].served().wrapping_sub(before);
                return f64::from(served) / used.as_secs_f64();
            }
        }
    }

    /// What is left of the victim's share beside a flood, compared with what it
    /// has beside an equal neighbour.
    fn left(&mut self, own: Habit, equal: Habit, flood: Habit) {
        self.guests[0].takes_up(own);
        let mut beside = |habit| {
            self.guests[1].takes_up(habit);
            self.run(SETTLE);
            self.run(SLICE)
        };
        let [fair, left] = [beside(equal), beside(flood)];
        let share = left / fair;
        println!("{own:?} beside {flood:?}: {share:.3} of its fair share");
        assert!(share >= LEAST, "{own:?} beside {flood:?}: {share:.3} of its fair share");
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
        let storms = [Habit::SendsAndSignals, Habit::SendsNothing, Habit::Signals];
        for flood in floods.into_iter().chain(storms).filter(|flood| *flood != own) {
            scene.left(own, own, flood);
        }
    }
    scene.ends();
}

#[test]
fn on_the_bridge_a_guest_that_floods_all_costs_another_no_more_either() {
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
