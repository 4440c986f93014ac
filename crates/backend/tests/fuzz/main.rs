//! A guest that does anything: random words in rings, grant table, store and
//! pages, also while they are read, random signals, and a toolstack that takes
//! the vif away now and then. The honest vifs beside it lose nothing and get
//! nothing that was changed after it was judged; each vif that it leaves
//! behind goes without a trace, and an honest frontend in its place is served.
//!
//! A run is a fixed number of rounds from a fixed seed. `GRANTWAY_FUZZ_ROUNDS` sets another
//! number for each of the two worlds, `GRANTWAY_FUZZ_SECONDS` has it go on for so long from
//! a seed of its own, and `GRANTWAY_FUZZ_SEED` repeats a run that was seen before (as far as
//! threads allow).

#[path = "../support/mod.rs"]
mod support;

mod guest;
mod pair;
mod scribble;
mod table;

use grantway_backend::WaitMode;
use grantway_backend::policy::PolicyKind;
use grantway_hypervisor::{Access, GrantRef, Granted, Platform};
use grantway_netif::{Offload, XenbusState};
use grantway_ring::SharedPage;
use guest::{Acts, mark};
use pair::Pair;
use scribble::Scribbler;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::honest::Honest;
use support::hostile::{Hostile, frame};
use support::numbers::Numbers;
use support::port::Inner;
use support::port::UPLINK;
use support::rings::{Rings, page};
use support::world::{GUEST, World};
use support::{Ends, PROMPT};
use table::Table;

/// Pages that are sent from and received into.
const POOL: usize = 48;
/// Lengths of the frames whose readers know what they must be. They are from
/// this address and of this type, say their length behind it, and hold known
/// bytes up to a place from which on anything may be.
const JUDGED: [u16; 4] = [60, 129, 1514, 4096];
const JUDGED_FROM: [u8; 6] = [2, 0x47, 0x57, 1, 0, 3];
const JUDGED_TYPE: [u8; 2] = [0x88, 0xb7];
const JUDGED_DIRTY: usize = 256;

/// Byte `n` of such a frame.
fn judged_byte(n: usize) -> u8 {
    (n as u8).wrapping_mul(7)
}

/// Rounds of each of two worlds, and actions in a round: about what an idle machine of two
/// processors does in twenty seconds.
const ROUNDS: u64 = 170;
const ACTIONS: usize = 150;
const SEED: u64 = 0x4757;

/// How long a world is fuzzed.
#[derive(Debug, Clone, Copy)]
enum Work {
    Rounds(u64),
    Until(Instant),
}

impl Work {
    fn goes_on(self, rounds: u64) -> bool {
        match self {
            Self::Rounds(all) => rounds < all,
            Self::Until(end) => Instant::now() < end,
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What the guest shares beside its rings.
struct Pages {
    pool: Granted,
    memory: Vec<SharedPage>,
    judged: Vec<SharedPage>,
    judged_grefs: Vec<GrantRef>,
    _judged: Granted,
    /// Who writes slots: the guest's two threads do not make one of two.
    slots: Mutex<()>,
}

impl Pages {
    fn new(guest: &Hostile) -> Self {
        let pool = guest.pages(POOL, Access::ReadWrite);
        let memory: Vec<_> = (0..POOL).map(|n| page(&pool, n).0).collect();
        memory.iter().for_each(|page| page.write(0, &frame(4096)).unwrap());
        let lent = guest.pages(JUDGED.len(), Access::ReadOnly);
        let judged: Vec<_> = (0..JUDGED.len()).map(|n| page(&lent, n).0).collect();
        for (page, len) in judged.iter().zip(JUDGED) {
            let mut bytes: Vec<u8> = (0..4096).map(judged_byte).collect();
            bytes[..6].copy_from_slice(&pair::ADDRESSES[0]);
            bytes[6..12].copy_from_slice(&JUDGED_FROM);
            bytes[12..14].copy_from_slice(&JUDGED_TYPE);
            bytes[14..16].copy_from_slice(&len.to_be_bytes());
            page.write(0, &bytes).unwrap();
        }
        Self {
            pool,
            memory,
            judged,
            judged_grefs: lent.grefs.clone(),
            _judged: lent,
            slots: Mutex::new(()),
        }
    }

    /// Whether this word of a slot names a page of judged frames.
    fn is_judged(&self, word: u32) -> bool {
        self.judged_grefs.contains(&GrantRef(word))
    }
}

/// Who must not notice.
enum Neighbours {
    /// A vif with a port of its own; the world has it.
    Beside,
    /// Two behind the bridge, and the last mark that they were sent.
    Bridged(Pair, u64),
}

impl Neighbours {
    fn bridged(&self) -> bool {
        matches!(self, Self::Bridged(..))
    }

    /// Waits until what was sent to those on the bridge has arrived there, so
    /// that their queues never overflow: then they might lose frames.
    fn catch_up(&mut self, world: &World) {
        let Self::Bridged(pair, number) = self else { return };
        *number += 1;
        let uplink = world.behind(UPLINK);
        pair.have_seen(*number, || uplink.give(mark(*number), Offload::default()));
        pair.looks_well();
    }

    fn are_served(&mut self, world: &World) {
        self.catch_up(world);
        match self {
            Self::Beside => world.honest().carries(8),
            Self::Bridged(pair, _) => pair.carries(8),
        }
    }
}

/// What the backend and the guest hold, and what this process does.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    mapped: u64,
    grants: u32,
    ports: [(u32, u32); 2],
    watches: u32,
    stores: u32,
    descriptors: usize,
    threads: usize,
}

impl Held {
    fn now(world: &World, guest: &Hostile) -> Self {
        // A grant, since with each the platform takes back what was deferred.
        drop(guest.pages(1, Access::ReadOnly));
        let entries = |path: &str| std::fs::read_dir(path).unwrap().count();
        // Without what is mapped for a packet that is on its way just now.
        let mapped = |_| {
            std::thread::sleep(Duration::from_micros(200));
            world.control().counters().mapped
        };
        let backend = world.table(world.setup.domain);
        let guest = world.table(GUEST.domain);
        // The test's own: what was behind each vif.
        let own = world.ports.ever(GUEST).len();
        Self {
            mapped: (0..5).map(mapped).min().unwrap_or_default(),
            grants: guest.grants,
            ports: [&backend, &guest].map(|table| (table.ports_bound, table.ports_unbound)),
            watches: backend.store_watches,
            stores: backend.store_connections,
            descriptors: entries("/proc/self/fd") - own,
            threads: entries("/proc/self/task"),
        }
    }

    /// The lesser of both, one by one.
    fn min(&self, other: &Self) -> Self {
        let ports = [0, 1].map(|n| {
            let (one, other) = (self.ports[n], other.ports[n]);
            (one.0.min(other.0), one.1.min(other.1))
        });
        Self {
            mapped: self.mapped.min(other.mapped),
            grants: self.grants.min(other.grants),
            ports,
            watches: self.watches.min(other.watches),
            stores: self.stores.min(other.stores),
            descriptors: self.descriptors.min(other.descriptors),
            threads: self.threads.min(other.threads),
        }
    }

    /// Waits until no more is held than this. What was about to end when this was
    /// counted, such as a thread, is less by then and stays so: one more a round is found.
    #[track_caller]
    fn is_all(&mut self, world: &World, guest: &Hostile) {
        let start = Instant::now();
        loop {
            let now = Self::now(world, guest);
            let least = self.min(&now);
            if least == now {
                *self = least;
                return;
            }
            assert!(start.elapsed() < PROMPT, "{now:?} is held, expected {self:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Fuzz {
    world: World,
    guest: Hostile,
    table: Table,
    neighbours: Neighbours,
    numbers: Numbers,
    connections: u64,
    actions: u64,
}

impl Fuzz {
    fn new(bridged: bool, mut numbers: Numbers) -> Self {
        let mode = numbers.one_of(&[WaitMode::Interrupt, WaitMode::fitting()]);
        let mut world = World::of_workers(1 + numbers.below(2), mode, bridged);
        if numbers.once_in(2) {
            world.setup.policy.most = PolicyKind::Map;
            world.setup.policy.pages = numbers.one_of(&[30, 4096]);
            world.restart();
        }
        let neighbours = match bridged {
            true => Neighbours::Bridged(Pair::start(&mut world), 0),
            false => {
                world.begins_beside();
                Neighbours::Beside
            }
        };
        let (table, domain) = Table::of(|| world.boot(GUEST.domain));
        let guest = world.vif_of(domain, GUEST);
        Self { world, guest, table, neighbours, numbers, connections: 0, actions: 0 }
    }

    /// A few connections of one vif, and its end.
    fn round(&mut self) {
        let pages = Pages::new(&self.guest);
        let mut rings: Vec<_> = (0..4).map(|_| self.guest.rings()).collect();
        let image = self.table.image();
        for _ in 0..1 + self.numbers.below(3) {
            self.connect(&mut rings, &pages, &image);
        }
        self.world.detaches(GUEST);
        self.table.restore(&image);
        for one in rings {
            self.guest.events.close(one.tx_event);
            self.guest.events.close(one.rx_event);
        }
        drop(pages);
        self.serves_an_honest_frontend();
        self.world.attach(GUEST, &[]);
    }

    /// By the rules, and then not.
    fn connect(&mut self, rings: &mut [Rings], pages: &Pages, image: &[u8]) {
        let Self { world, guest, table, neighbours, numbers, .. } = self;
        let queues = numbers.one_of(&[1, 1, 2, 4]);
        clean(guest);
        world.settle();
        guest.start_anew();
        // Nobody has any of it now.
        table.restore(image);
        rings.iter_mut().for_each(Rings::clear);
        let rings = &mut rings[..queues];
        match queues {
            1 => guest.publish(&rings[0]),
            _ => guest.publish_all(rings),
        }
        guest.state(XenbusState::Connected);
        guest.await_backend(XenbusState::Connected);
        self.connections += 1;

        let stop = AtomicBool::new(false);
        let scribbler = Scribbler {
            numbers: Numbers::new(numbers.next()),
            pages,
            table,
            image,
            store: guest.domain.store().unwrap(),
            front: guest.front(),
            tx: Vec::new(),
            rx: Vec::new(),
            rings: Vec::new(),
        };
        let scribbler = scribbler.of_rings(rings);
        let mut acts = Acts { numbers: numbers.clone(), pages, neighbours, slots: 0 };
        std::thread::scope(|scope| {
            let _ends = Ends(&stop);
            scope.spawn(|| scribbler.run(&stop));
            for _ in 0..ACTIONS {
                acts.act(world, guest, rings);
                self.actions += 1;
                // Some of it comes when the connection is lost already.
                if acts.numbers.once_in(8) && guest.backend_state() != Some(XenbusState::Connected)
                {
                    break;
                }
            }
        });
        *numbers = acts.numbers;
        if !neighbours.bridged() {
            world.behind(GUEST).look().waiting.clear();
        }
        neighbours.are_served(world);
    }

    /// In the place of the hostile one.
    fn serves_an_honest_frontend(&mut self) {
        let Self { world, guest, neighbours, .. } = self;
        world.attach(GUEST, &[]);
        let behind = world.behind(if neighbours.bridged() { UPLINK } else { GUEST });
        let honest = Honest::start(guest.domain.clone(), behind);
        honest.carries(8);
        honest.lost_nothing();
        world.toolstack.ask_to_close(GUEST);
        world.toolstack.await_closed(GUEST);
        world.detaches(GUEST);
        honest.behind.look().flow = None;
        honest.leave();
    }

    fn run(mut self, work: Work) {
        // What the first of all makes for good is not counted.
        self.round();
        self.world.detaches(GUEST);
        let mut before = Held::now(&self.world, &self.guest);
        self.world.attach(GUEST, &[]);
        let mut rounds = 0;
        while work.goes_on(rounds) {
            self.round();
            rounds += 1;
            self.world.detaches(GUEST);
            before.is_all(&self.world, &self.guest);
            self.world.attach(GUEST, &[]);
        }
        let Self { mut world, neighbours, connections, actions, .. } = self;
        let of = if neighbours.bridged() { UPLINK } else { GUEST };
        let ever = world.ports.ever(of);
        let sum = |of: fn(&Inner) -> u64| ever.iter().map(|behind| of(&behind.look())).sum::<u64>();
        let (sent, given) = (sum(|inner| inner.sent), sum(|inner| inner.given));
        println!(
            "{rounds} rounds, {connections} connections, {actions} actions, {sent} frames out, \
             {given} in"
        );
        assert!(connections > rounds, "{connections} connections in {rounds} rounds");
        match neighbours {
            Neighbours::Beside => world.stands(),
            Neighbours::Bridged(pair, _) => {
                println!("{} frames were judged", pair.judged());
                pair.lost_nothing();
                pair.leave(&mut world);
                world.bridge_stands();
            }
        }
    }
}

/// Takes away what the guest wrote.
fn clean(guest: &mut Hostile) {
    let front = guest.front();
    for key in guest.store.list(&front).unwrap() {
        if !["state", "backend", "backend-id", "handle", "mac"].contains(&key.as_str()) {
            let _ = guest.store.remove(&format!("{front}/{key}"));
        }
    }
}

#[test]
fn a_guest_that_does_anything() {
    let seconds = setting("GRANTWAY_FUZZ_SECONDS");
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let usual = || if seconds.is_some() { clock() } else { SEED };
    let seed = setting("GRANTWAY_FUZZ_SEED").unwrap_or_else(usual);
    let rounds = setting("GRANTWAY_FUZZ_ROUNDS").unwrap_or(ROUNDS);
    println!("GRANTWAY_FUZZ_SEED={seed}");
    let mut numbers = Numbers::new(seed);
    let mut bridged = numbers.once_in(2);
    // Worlds of both kinds, whatever the time.
    let worlds = (seconds.unwrap_or(0) / 20).clamp(1, 50) as u32 * 2;
    for _ in 0..worlds {
        let fuzz = Fuzz::new(bridged, Numbers::new(numbers.next()));
        fuzz.run(match seconds {
            Some(seconds) => Work::Until(Instant::now() + Duration::from_secs(seconds) / worlds),
            None => Work::Rounds(rounds),
        });
        bridged = !bridged;
    }
}
