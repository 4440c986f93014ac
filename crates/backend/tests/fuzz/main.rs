//! Two hostile guests that do anything, and help each other. They write random words into
//! rings, grant table, store and pages, also while these are read, and send random signals and
//! control requests. A toolstack removes a vif now and then. The backend is killed and taken
//! over during the run, and its store fails at times. The honest vifs beside them lose no
//! frame, and get none that was changed after it was judged. Each vif that the hostile guests
//! leave behind goes without a trace, and an honest frontend in its place is served.
//!
//! A run is a fixed number of rounds from a fixed seed. `GRANTWAY_FUZZ_ROUNDS` sets another
//! number for each of the four worlds. `GRANTWAY_FUZZ_SECONDS` lets the run go on for this
//! time, from a seed of its own. `GRANTWAY_FUZZ_SEED` repeats an earlier run, as far as threads
//! allow.

#[path = "../support/mod.rs"]
mod support;

mod collusion;
mod guest;
mod pair;
mod scribble;
mod table;
mod witness;

use collusion::Mail;
use grantway_backend::policy::Policy;
use grantway_backend::{VifId, WaitMode};
use grantway_embedded::DomainTable;
use grantway_hypervisor::{Access, DomId, Granted, Platform, StoreErrno};
use grantway_netif::{Offload, XenbusState};
use grantway_ring::SharedPage;
use grantway_testkit::Numbers;
use guest::{Acts, mark};
use pair::Pair;
use scribble::Scribbler;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::control::SECRET;
use support::ctrl::CtrlRing;
use support::faulty::Asked;
use support::honest::Honest;
use support::hostile::{Hostile, frame};
use support::port::Inner;
use support::port::UPLINK;
use support::rings::{Rings, page};
use support::world::{GUEST, World};
use support::{Ends, PROMPT};
use table::Table;
use witness::Witness;

/// Pages that are sent from and received into.
const POOL: usize = 48;

/// The two guests.
const ENEMIES: [VifId; 2] = [GUEST, VifId { domain: DomId(10), devid: 0 }];
/// The guest whose frames are judged.
const WITNESS: VifId = VifId { domain: DomId(13), devid: 0 };

/// Rules that ask all that rules may ask, and let all pass that is in order.
const RULES: &str = "
    flows = true
    [firewall]
    default = \"accept\"
    [[rule]]
    action = \"drop\"
    state = \"invalid\"
    [[rule]]
    action = \"drop\"
    network = \"ipv4\"
    protocol = \"udp\"
    to-ports = 7
";

/// Rounds of each of four worlds, and actions in a connection: about what an idle machine of
/// two processors does in thirty seconds.
const ROUNDS: u64 = 70;
const ACTIONS: usize = 200;
/// One in this number of connections is made while the store fails: it is tried again after a
/// tenth of a second.
const TROUBLED: usize = 16;
const SEED: u64 = 0x4757;

/// Length of a world's fuzzing.
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

/// Pages that a guest shares in addition to its rings.
struct Pages {
    pool: Granted,
    memory: Vec<SharedPage>,
    /// Frames for the other hostile guest. The next field is the page for lists of pages to
    /// stage.
    mail: Mail,
    list: Granted,
    /// Lock for writing slots, so that the guest's two threads do not mix two packets.
    slots: Mutex<()>,
}

impl Pages {
    fn new(guest: &Hostile, number: usize) -> Self {
        let pool = guest.pages(POOL, Access::ReadWrite);
        let memory: Vec<_> = (0..POOL).map(|n| page(&pool, n).0).collect();
        memory.iter().for_each(|page| page.write(0, &frame(4096)).unwrap());
        Self {
            pool,
            memory,
            mail: Mail::new(guest, number),
            list: guest.pages(1, Access::ReadWrite),
            slots: Mutex::new(()),
        }
    }
}

/// One of the hostile guests, while it is connected.
struct Side<'a> {
    guest: &'a mut Hostile,
    rings: &'a mut [Rings],
    pages: &'a Pages,
    ctrl: Option<CtrlRing>,
}

/// Honest vifs, which must not notice the attack.
enum Neighbours {
    /// One vif with a port of its own. The world has it.
    Beside,
    /// Two guests on the bridge, the numbers of the marks that they get, and the witness that
    /// sends them frames to judge.
    Bridged(Pair, Numbers, Box<Witness>),
}

impl Neighbours {
    fn bridged(&self) -> bool {
        matches!(self, Self::Bridged(..))
    }

    /// Waits until what was sent to those on the bridge has arrived there, so
    /// that their queues never overflow: then they might lose frames.
    fn catch_up(&mut self, world: &World) {
        let Self::Bridged(pair, numbers, _) = self else { return };
        let (number, uplink) = (numbers.next(), world.behind(UPLINK));
        pair.have_seen(number, || uplink.give(mark(number), Offload::default()));
        pair.looks_well();
    }

    /// Kills the backend and starts another, while nothing is on its way to or from those
    /// who must not notice: what a killed process held of frames is lost.
    fn rest_while(&mut self, world: &mut World, act: impl FnOnce(&mut World)) {
        match self {
            Self::Beside => {
                // It has to be used beside the world.
                let honest = world.honest.take().unwrap();
                honest.rests_while(|| act(world));
                world.honest = Some(honest);
            }
            Self::Bridged(pair, _, witness) => {
                witness.rests();
                pair.rests_while(&world.behind(UPLINK), || act(world));
            }
        }
    }

    fn are_served(&mut self, world: &World) {
        self.catch_up(world);
        match self {
            Self::Beside => world.honest().carries(8),
            Self::Bridged(pair, ..) => pair.carries(8),
        }
    }

    /// Lets the witness send frames that are judged. Returns their number.
    fn witness_sends(&mut self, numbers: &mut Numbers) -> usize {
        match self {
            Self::Beside => 0,
            Self::Bridged(.., witness) => witness.sends(numbers),
        }
    }

    /// The pages of those frames.
    fn judged(&self) -> Vec<SharedPage> {
        match self {
            Self::Beside => Vec::new(),
            Self::Bridged(.., witness) => witness.pages(),
        }
    }
}

/// Resources that the backend, the hostile guests and this process hold.
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
    fn now(world: &World, enemies: &[Enemy; 2]) -> Self {
        // A grant, since with each the platform takes back what was deferred.
        enemies.iter().for_each(|enemy| drop(enemy.guest.pages(1, Access::ReadOnly)));
        let entries = |path: &str| std::fs::read_dir(path).unwrap().count();
        // Without what is mapped for a packet that is on its way just now.
        let mapped = |_| {
            std::thread::sleep(Duration::from_micros(200));
            world.control().counters().mapped
        };
        let backend = world.table(world.setup.domain);
        let guests = ENEMIES.map(|vif| world.table(vif.domain));
        // The test's own: what was behind each vif.
        let own: usize = ENEMIES.iter().map(|&vif| world.ports.ever(vif).len()).sum();
        let ports = |table: &DomainTable| (table.ports_bound, table.ports_unbound);
        let [one, other] = guests.each_ref().map(ports);
        Self {
            mapped: (0..5).map(mapped).min().unwrap_or_default(),
            grants: guests.iter().map(|table| table.grants).sum(),
            ports: [ports(&backend), (one.0 + other.0, one.1 + other.1)],
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
    fn is_all(&mut self, world: &World, enemies: &[Enemy; 2]) {
        let start = Instant::now();
        loop {
            let now = Self::now(world, enemies);
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

/// One of the hostile guests, and its grant table.
struct Enemy {
    guest: Hostile,
    table: Table,
}

impl Enemy {
    fn boot(world: &mut World, vif: VifId) -> Self {
        let (table, domain) = Table::of(|| world.boot(vif.domain));
        Self { guest: world.vif_of(domain, vif), table }
    }

    /// Connects by the rules, with as many queues as `rings` has.
    fn connects(&mut self, rings: &[Rings], numbers: &mut Numbers) -> Option<CtrlRing> {
        let guest = &mut self.guest;
        let ctrl = numbers.once_in(2).then(|| CtrlRing::publish(guest));
        if numbers.once_in(4) {
            guest.key("request-multicast-control", "1");
        }
        match rings {
            [one] => guest.publish(one),
            all => guest.publish_all(all),
        }
        guest.state(XenbusState::Connected);
        guest.await_backend(XenbusState::Connected);
        ctrl
    }
}

struct Fuzz {
    world: World,
    enemies: [Enemy; 2],
    neighbours: Neighbours,
    numbers: Numbers,
    /// True if the backend is killed during the run.
    kills: bool,
    killed: u64,
    connections: u64,
    actions: u64,
}

impl Fuzz {
    fn new(bridged: bool, by_rules: bool, mut numbers: Numbers) -> Self {
        let mode = numbers.one_of(&[WaitMode::Interrupt, WaitMode::fitting()]);
        let mut world = World::of_workers(1 + numbers.below(2), mode, bridged);
        if numbers.once_in(2) {
            world.setup.policy.most = Policy::Map;
            world.setup.policy.pages = numbers.one_of(&[30, 4096]);
        }
        world.setup.by_rules = by_rules;
        world.restart();
        load(&world);
        // Who is where on the bridge is not known to a successor.
        let kills = !(bridged && by_rules);
        let neighbours = match bridged {
            true => {
                let pair = Pair::start(&mut world);
                let witness = Box::new(Witness::start(&mut world));
                Neighbours::Bridged(pair, numbers.fork(), witness)
            }
            false => {
                world.begins_beside();
                Neighbours::Beside
            }
        };
        let enemies = ENEMIES.map(|vif| Enemy::boot(&mut world, vif));
        let (killed, connections, actions) = (0, 0, 0);
        Self { world, enemies, neighbours, numbers, kills, killed, connections, actions }
    }

    /// A few connections of the two vifs, and their end.
    fn round(&mut self) {
        let (world, enemies) = (&mut self.world, &mut self.enemies);
        let pages = [0, 1].map(|n: usize| Pages::new(&enemies[n].guest, n));
        let mut rings =
            [0, 1].map(|n: usize| -> Vec<_> { (0..4).map(|_| enemies[n].guest.rings()).collect() });
        let images = enemies.each_ref().map(|enemy| enemy.table.image());
        world.settle();
        for _ in 0..1 + self.numbers.below(3) {
            self.connect(&mut rings, &pages, &images);
        }
        ENEMIES.iter().for_each(|&vif| self.world.detaches(vif));
        for ((enemy, image), rings) in self.enemies.iter_mut().zip(&images).zip(rings) {
            enemy.table.restore(image);
            for one in rings {
                enemy.guest.events.close(one.tx_event);
                enemy.guest.events.close(one.rx_event);
            }
        }
        drop(pages);
        self.serves_an_honest_frontend();
        ENEMIES.iter().for_each(|&vif| self.world.attach(vif, &[]));
    }

    /// Connects both guests by the rules, and then lets them break rules.
    fn connect(&mut self, rings: &mut [Vec<Rings>; 2], pages: &[Pages; 2], images: &[Vec<u8>; 2]) {
        let Self { world, enemies, neighbours, numbers, kills, .. } = self;
        enemies.iter_mut().for_each(|enemy| clean(&mut enemy.guest));
        world.settle();
        if numbers.once_in(TROUBLED) {
            trouble(world, numbers);
        }
        let [one, other] = rings;
        let mut sides = Vec::new();
        let mut scribblers = Vec::new();
        for (n, (enemy, rings)) in enemies.iter_mut().zip([one, other]).enumerate() {
            enemy.guest.start_anew();
            // Nobody has any of it now.
            enemy.table.restore(&images[n]);
            rings.iter_mut().for_each(Rings::clear);
            let rings = &mut rings[..numbers.one_of(&[1, 1, 2, 4])];
            let ctrl = enemy.connects(rings, numbers);
            let scribbler = Scribbler {
                numbers: Numbers::new(numbers.next()),
                pages: &pages[n],
                judged: neighbours.judged(),
                table: &enemy.table,
                image: &images[n],
                store: enemy.guest.domain.store().unwrap(),
                front: enemy.guest.front(),
                tx: Vec::new(),
                rx: Vec::new(),
                rings: Vec::new(),
            };
            scribblers.push(scribbler.of_rings(rings));
            sides.push(Side { guest: &mut enemy.guest, rings, pages: &pages[n], ctrl });
        }
        self.connections += 1;

        let stop = AtomicBool::new(false);
        let mut acts = Acts { numbers: numbers.clone(), neighbours, slots: 0, kills: *kills };
        std::thread::scope(|scope| {
            let _ends = Ends(&stop);
            for scribbler in scribblers {
                scope.spawn(|| scribbler.run(&stop));
            }
            for _ in 0..ACTIONS {
                self.killed += u64::from(acts.act(world, &mut sides));
                self.actions += 1;
                // Some of it comes when the connections are lost already.
                let lost = |side: &mut Side<'_>| {
                    side.guest.backend_state() != Some(XenbusState::Connected)
                };
                if acts.numbers.once_in(8) && sides.iter_mut().all(lost) {
                    break;
                }
            }
        });
        *numbers = acts.numbers;
        world.setup.faults.end_row();
        for Side { guest, ctrl, .. } in sides {
            ctrl.into_iter().for_each(|ctrl| guest.events.close(ctrl.event));
        }
        if !neighbours.bridged() {
            ENEMIES.iter().for_each(|&vif| world.behind(vif).look().waiting.clear());
        }
        neighbours.are_served(world);
    }

    /// Checks that an honest frontend in the place of a hostile one is served.
    fn serves_an_honest_frontend(&mut self) {
        let Self { world, enemies, neighbours, numbers, .. } = self;
        let number = numbers.below(ENEMIES.len());
        let vif = ENEMIES[number];
        world.attach(vif, &[]);
        let behind = world.behind(if neighbours.bridged() { UPLINK } else { vif });
        let honest = Honest::start(enemies[number].guest.domain.clone(), behind);
        honest.carries(8);
        honest.lost_nothing();
        world.toolstack.ask_to_close(vif);
        world.toolstack.await_closed(vif);
        world.detaches(vif);
        honest.behind.look().flow = None;
        honest.leave();
    }

    fn run(mut self, work: Work) {
        // What the first of all makes for good is not counted.
        self.round();
        ENEMIES.iter().for_each(|&vif| self.world.detaches(vif));
        let mut before = Held::now(&self.world, &self.enemies);
        ENEMIES.iter().for_each(|&vif| self.world.attach(vif, &[]));
        let (mut rounds, mut calm) = (0, if self.killed > 0 { 0 } else { 2 });
        while work.goes_on(rounds) {
            let killed = self.killed;
            self.round();
            rounds += 1;
            calm = if self.killed > killed { 0 } else { calm + 1 };
            if calm < 2 {
                // A successor opens descriptors that it keeps when it needs them first.
                before.descriptors = usize::MAX;
            }
            ENEMIES.iter().for_each(|&vif| self.world.detaches(vif));
            before.is_all(&self.world, &self.enemies);
            ENEMIES.iter().for_each(|&vif| self.world.attach(vif, &[]));
        }
        let Self { mut world, neighbours, connections, actions, killed, .. } = self;
        let of = if neighbours.bridged() { &[UPLINK][..] } else { &ENEMIES };
        let ever: Vec<_> = of.iter().flat_map(|&vif| world.ports.ever(vif)).collect();
        let sum = |of: fn(&Inner) -> u64| ever.iter().map(|behind| of(&behind.look())).sum::<u64>();
        let (sent, given) = (sum(|inner| inner.sent), sum(|inner| inner.given));
        println!(
            "{rounds} rounds, {connections} connections, {actions} actions, {killed} kills, \
             {sent} frames out, {given} in"
        );
        assert!(connections > rounds, "{connections} connections in {rounds} rounds");
        match neighbours {
            Neighbours::Beside => world.stands(),
            Neighbours::Bridged(pair, _, witness) => {
                let judged = pair.judged();
                println!("{judged} frames were judged");
                assert!(judged > 0);
                pair.lost_nothing();
                witness.leave(&mut world);
                pair.leave(&mut world);
                world.bridge_stands();
            }
        }
    }
}

/// The backend's store has trouble soon, a few times, whomever it is asked about.
fn trouble(world: &World, numbers: &mut Numbers) {
    let all = [Asked::Read, Asked::Write, Asked::Begin, Asked::Commit, Asked::Watch];
    let asked = numbers.one_of(&all);
    let errno = numbers.one_of(&[StoreErrno::Enomem, StoreErrno::Eio, StoreErrno::Enospc]);
    world.setup.faults.plan_store(asked, numbers.below(30), 1 + numbers.below(3), errno);
}

/// Gives a backend its rules, if rules judge the packets.
fn load(world: &World) {
    if world.setup.by_rules {
        world.control().with(|backend| backend.load(RULES, SECRET)).unwrap();
    }
}

/// Takes away what a guest wrote.
fn clean(guest: &mut Hostile) {
    let front = guest.front();
    for key in guest.store.list(&front).unwrap() {
        if !["state", "backend", "backend-id", "handle", "mac"].contains(&key.as_str()) {
            let _ = guest.store.remove(&format!("{front}/{key}"));
        }
    }
}

#[test]
fn hostile_guests_that_do_anything_disturb_no_honest_guest() {
    let seconds = setting("GRANTWAY_FUZZ_SECONDS");
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let usual = || if seconds.is_some() { clock() } else { SEED };
    let seed = setting("GRANTWAY_FUZZ_SEED").unwrap_or_else(usual);
    let rounds = setting("GRANTWAY_FUZZ_ROUNDS").unwrap_or(ROUNDS);
    println!("GRANTWAY_FUZZ_SEED={seed}");
    let mut numbers = Numbers::new(seed);
    let first = numbers.below(4) as u32;
    // Worlds of all kinds, whatever the time.
    let worlds = (seconds.unwrap_or(0) / 40).clamp(1, 25) as u32 * 4;
    for kind in first..first + worlds {
        let (bridged, by_rules) = (kind % 2 == 0, kind / 2 % 2 == 0);
        println!("bridged: {bridged}, by rules: {by_rules}");
        let fuzz = Fuzz::new(bridged, by_rules, Numbers::new(numbers.next()));
        fuzz.run(match seconds {
            Some(seconds) => Work::Until(Instant::now() + Duration::from_secs(seconds) / worlds),
            None => Work::Rounds(rounds),
        });
    }
}
