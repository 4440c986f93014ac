//! A backend that does anything: random answers, indices, states and keys, and pages that it writes
//! to while the frontend reads them. The frontend must neither panic nor hang nor lose the store.
//! It keeps to the pages of its queues, and holds nothing more once the connection is over.
//! Afterwards it works with a backend that keeps to the rules. Another vif of the same guest loses
//! nothing meanwhile.
//!
//! A run is a fixed number of connections from a fixed seed. `GRANTWAY_FUZZ_ROUNDS` sets another
//! number. `GRANTWAY_FUZZ_SECONDS` lets it go on for that time from a seed of its own.
//! `GRANTWAY_FUZZ_SEED` repeats an earlier run (as far as threads allow).

#[path = "../support/mod.rs"]
mod support;

mod beside;
mod hammer;

use beside::Beside;
use grantway_frontend::VifStatus;
use grantway_hypervisor::Platform;
use grantway_netif::extra::{Extra, has_more};
use grantway_netif::rx::RxFlags;
use grantway_netif::tx::{TxFlags, TxRequest, status};
use grantway_netif::{Checksum, Gso, GsoKind, Offload, XenbusState};
use grantway_ring::{Index, RingMemory, SharedRun};
use grantway_testkit::Numbers;
use hammer::Hammer;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::server::Rings;
use support::world::World;
use support::{GUARD, frame};

/// Queues that the frontend wishes for.
const QUEUES: u16 = 3;
/// Pages of a queue: two rings, and the pages of frames.
const PAGES: u64 = 402;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The backend's side of one queue.
struct Queue {
    rings: Rings,
    /// Slots sent and not answered: an id, or none for an extra.
    out: Vec<Option<u16>>,
    answered: u32,
}

/// Answers some of the requests, most often by the rules.
fn answer(numbers: &mut Numbers, queue: &mut Queue) {
    let Queue { rings, out, answered: at } = queue;
    // Absurd indices of ours make no more than absurd answers.
    let Ok(requests) = rings.sane_requests() else { return };
    let mut extra = false;
    for words in requests {
        let request = TxRequest::from_words(words);
        out.push((!extra).then_some(request.id));
        extra = match extra {
            true => has_more([words[0], words[1]]),
            false => request.flags.contains(TxFlags::EXTRA_INFO),
        };
    }
    for _ in 0..numbers.below(40) {
        if out.is_empty() {
            break;
        }
        let (mut id, mut status) = match out.swap_remove(numbers.below(out.len())) {
            Some(id) => (id, status::OKAY),
            None => (0, status::NULL),
        };
        if numbers.once_in(4000) {
            id ^= 1 << numbers.below(16);
        }
        if numbers.once_in(1000) {
            status = numbers.half() as i16;
        }
        rings.tx_put(*at, id, status);
        *at = at.wrapping_add(1);
    }
    rings.tx_publish(*at);
}

/// Fills some of the posted pages, most often by the rules: a burst ends with a frame.
fn fill(numbers: &mut Numbers, rings: &mut Rings) {
    let posted = rings.posted();
    let count = numbers.below(30).min(if posted > 256 { 0 } else { posted as usize });
    let end = rings.rx_cons.wrapping_add(count as u32);
    let mut first = true;
    while rings.rx_cons != end {
        let left = end.wrapping_sub(rings.rx_cons) - 1;
        let index = rings.rx_cons;
        let mut request = rings.take();
        let mut flags = RxFlags::from_bits_retain(numbers.half() & 3);
        flags.set(RxFlags::MORE_DATA, numbers.once_in(if left > 0 { 5 } else { 2000 }));
        flags.set(RxFlags::EXTRA_INFO, numbers.once_in(if first && left > 1 { 50 } else { 4000 }));
        first = !flags.contains(RxFlags::MORE_DATA);
        if numbers.once_in(4000) {
            request.id ^= 1 << numbers.below(16);
        }
        let offset = if numbers.once_in(50) { numbers.half() } else { 0 };
        let status = match numbers.below(40) {
            0 => numbers.half() as i16,
            1 => -1,
            _ => numbers.below(4097) as i16,
        };
        rings.rx_put(index, request.id, offset, flags, status);
        if numbers.once_in(4000) {
            rings.rx.write_slot(index, [numbers.word(), numbers.word()]);
        }
        if flags.contains(RxFlags::EXTRA_INFO) && left > 0 {
            let kind = if numbers.once_in(2) { GsoKind::Tcpv4 } else { GsoKind::Tcpv6 };
            let gso = Extra::Gso(Gso { kind, size: numbers.half() | 1 }.try_into().unwrap(), 0);
            rings.rx.write_slot(rings.rx_cons, gso.to_rx_words(numbers.once_in(200)));
            rings.take();
        }
    }
    rings.rx_publish(rings.rx_cons);
}

/// Plays the application: a burst each way.
fn use_it(numbers: &mut Numbers, world: &mut World, buffer: &mut [u8]) {
    for _ in 0..numbers.below(30) {
        let most = if numbers.once_in(20) { 65_000 } else { 2000 };
        let len = 14 + numbers.below(most);
        let gso = Gso { kind: GsoKind::Tcpv4, size: 1448 };
        let offload = match numbers.once_in(5) {
            true => Offload { checksum: Checksum::Partial, gso: Some(gso) },
            false => Offload::default(),
        };
        if world.vif.send(&frame(len, numbers.next() as u8), offload).is_err() {
            break;
        }
    }
    for _ in 0..300 {
        match world.vif.recv(buffer).unwrap() {
            Some(received) => assert!((14..=19 * 4096).contains(&received.len)),
            None => break,
        }
    }
    world.vif.flush().unwrap();
    world.vif.reap().unwrap();
    world.vif.repost().unwrap();
    world.vif.arm().unwrap();
    world.vif.take_events().unwrap();
}

/// Negotiates with random keys, and attaches the queues.
fn connect(numbers: &mut Numbers, world: &mut World) -> Vec<Queue> {
    world.begins_anew();
    let back = world.server.back.clone();
    for _ in 0..numbers.below(20) {
        hammer::store(world.server.store.as_mut(), &back, numbers);
    }
    let most: [&[u8]; 6] = [b"1", b"2", b"3", b"4000000000", b"-1", b"\xff"];
    world.server.key("multi-queue-max-queues", numbers.one_of(&most));
    match numbers.once_in(2) {
        true => world.server.offer(),
        false => world.server.state(XenbusState::InitWait),
    }
    world.until_shown(XenbusState::Connected);
    let count = world.server.front_key("multi-queue-num-queues");
    let rings = match count.map(|count| count.parse().unwrap()) {
        None => vec![world.server.attach()],
        Some(count) => (0..count).map(|number| world.server.attach_queue(number)).collect(),
    };
    assert!((1..=usize::from(QUEUES)).contains(&rings.len()));
    world.server.state(XenbusState::Connected);
    world.until(VifStatus::Connected);
    let queue = |rings: Rings| Queue { answered: rings.tx_cons, out: Vec::new(), rings };
    rings.into_iter().map(queue).collect()
}

/// Does one thing that a backend may do at any time.
fn act(numbers: &mut Numbers, world: &mut World, queues: &mut [Queue]) {
    let at = numbers.below(queues.len());
    let rings = &queues[at].rings;
    match numbers.below(1000) {
        0 | 1 => {
            let all = [Index::ReqEvent, Index::RspProd, Index::ReqProd, Index::RspEvent];
            let index = numbers.one_of(&all);
            let value = match numbers.once_in(2) {
                true => numbers.word(),
                false => rings.rx.load(Index::RspProd).wrapping_add(numbers.below(300) as u32),
            };
            match numbers.once_in(2) {
                true => rings.tx.store(index, value),
                false => rings.rx.store(index, value),
            }
        }
        2 => {
            let states: [&[u8]; 6] = [b"1", b"2", b"5", b"6", b"", b"\xff"];
            world.server.key("state", numbers.one_of(&states));
        }
        3..6 => {
            let back = world.server.back.clone();
            hammer::store(world.server.store.as_mut(), &back, numbers);
        }
        _ => {}
    }
    let queue = &mut queues[at];
    answer(numbers, queue);
    fill(numbers, &mut queue.rings);
    if numbers.once_in(3) {
        world.server.kick(queue.rings.tx_event);
        world.server.kick(queue.rings.rx_event);
    }
}

/// Ends the threads beside a test, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

struct Fuzz {
    world: World,
    beside: Beside,
    numbers: Numbers,
    steps: AtomicU64,
    /// Pages that the backend does not let go of.
    kept: Vec<SharedRun>,
}

impl Fuzz {
    /// Abuses a connection until it ends, or for `most` steps.
    fn abuse(&mut self, most: u32, buffer: &mut [u8]) {
        let Self { world, beside, numbers, steps, kept } = self;
        let mut queues = connect(numbers, world);
        let rings: Vec<_> = queues.iter_mut().map(|queue| &mut queue.rings).collect();
        let (hammer, runs) = Hammer::new(Numbers::new(numbers.next()), &world.server, &rings);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&stop);
            scope.spawn(|| hammer.run(&stop, steps));
            for _ in 0..most {
                if world.vif.status() != VifStatus::Connected {
                    break;
                }
                act(numbers, world, &mut queues);
                use_it(numbers, world, buffer);
                world.vif.store_changed().unwrap();
                let counters = world.guest.counters();
                let most = PAGES * (u64::from(QUEUES) + 1);
                assert!(counters.granted - counters.deferred <= most, "{counters:?}");
                beside.carry();
                steps.fetch_add(1, SeqCst);
            }
        });
        for queue in queues {
            world.server.detach(queue.rings);
        }
        // The pages are not always unmapped with the connection.
        kept.extend(runs);
        if !numbers.once_in(4) {
            kept.clear();
        }
        world.server.state(XenbusState::Closing);
        world.look();
        world.vif.take_failure();
        world.vif.restart().unwrap();
    }

    /// Makes a connection by the rules. Returns the resources held while it is there.
    fn works(&mut self) -> Held {
        let world = &mut self.world;
        world.begins_anew();
        world.server.key("multi-queue-max-queues", b"1");
        let mut rings = world.connect();
        world.works(&mut rings);
        let held = Held::now(world);
        world.server.detach(rings);
        world.server.state(XenbusState::Closing);
        world.look();
        held
    }

    fn run(mut self, work: Work) {
        let mut buffer = vec![0; 65_536];
        // The first connection makes some things for good, which are not counted.
        self.abuse(STEPS, &mut buffer);
        self.kept.clear();
        let mut before = self.works();
        let mut connections = 0;
        while work.goes_on(connections) {
            self.abuse(STEPS, &mut buffer);
            connections += 1;
            if self.kept.is_empty() {
                let start = Instant::now();
                loop {
                    let now = self.works();
                    // A thread that was about to end may have been counted before.
                    if now.threads < before.threads {
                        before.threads = now.threads;
                    }
                    if now == before {
                        break;
                    }
                    assert!(start.elapsed() < GUARD, "{now:?} is held, expected {before:?}");
                }
            }
        }
        let (steps, carried) = (self.steps.load(SeqCst), self.beside.carried);
        let stats = self.world.vif.stats();
        println!("{connections} connections, {steps} steps, {carried} beside, {stats:?}");
        self.kept.clear();
        self.world.begins_anew();
        self.world.server.key("multi-queue-max-queues", b"1");
        let mut rings = self.world.connect();
        self.world.works(&mut rings);
        drop(self.beside);
        self.world.ends(rings);
    }
}

/// Connections, and steps of one at the most: about the work of an idle machine of two processors
/// in twenty seconds.
const CONNECTIONS: u64 = 420;
const STEPS: u32 = 130;
const SEED: u64 = 0x6772_616e_7477_6179;

/// The end of a run: a number of connections, or a time.
#[derive(Debug, Clone, Copy)]
enum Work {
    Connections(u64),
    Until(Instant),
}

impl Work {
    fn goes_on(self, connections: u64) -> bool {
        match self {
            Self::Connections(all) => connections < all,
            Self::Until(end) => Instant::now() < end,
        }
    }
}

/// Resources of the guest and of this process.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    granted: u64,
    deferred: u64,
    ports: [u32; 2],
    watches: u32,
    stores: u32,
    descriptors: usize,
    threads: usize,
}

impl Held {
    fn now(world: &World) -> Self {
        let entries = |path: &str| std::fs::read_dir(path).unwrap().count();
        let (counters, table) = (world.guest.counters(), world.table());
        Self {
            granted: counters.granted,
            deferred: counters.deferred,
            ports: [table.ports_bound, table.ports_unbound],
            watches: table.store_watches,
            stores: table.store_connections,
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
        }
    }
}

#[test]
fn a_backend_that_does_anything() {
    let seconds = setting("GRANTWAY_FUZZ_SECONDS");
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let usual = || if seconds.is_some() { clock() } else { SEED };
    let seed = setting("GRANTWAY_FUZZ_SEED").unwrap_or_else(usual);
    let work = match seconds {
        Some(seconds) => Work::Until(Instant::now() + Duration::from_secs(seconds)),
        None => Work::Connections(setting("GRANTWAY_FUZZ_ROUNDS").unwrap_or(CONNECTIONS)),
    };
    println!("GRANTWAY_FUZZ_SEED={seed}");
    let mut world = World::of_queues(QUEUES);
    let beside = Beside::start(&mut world);
    let (numbers, steps) = (Numbers::new(seed), AtomicU64::new(0));
    Fuzz { world, beside, numbers, steps, kept: Vec::new() }.run(work);
}
