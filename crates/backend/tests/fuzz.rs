//! A guest that does anything: random words in rings and pages while they are
//! read, random keys and states, random signals, revoked pages, and a toolstack
//! that takes the vif away now and then. The honest vif beside it loses
//! nothing, and afterwards all is as after any other attack.
//!
//! `GRANTWAY_FUZZ_SECONDS` for longer than 5 s, `GRANTWAY_FUZZ_SEED` for a run
//! that was seen before (as far as threads allow).

mod support;

use grantway_hypervisor::{Access, GrantRef, Granted, Granter};
use grantway_netif::extra::Extra;
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::TxFlags;
use grantway_netif::{Checksum, Gso, GsoKind, Hash, Offload, XenbusState};
use grantway_ring::{Index, RingMemory, RingPage, SharedPage};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::hostile::{Hostile, frame};
use support::numbers::Numbers;
use support::rings::{Rings, slot};
use support::world::{GUEST, World};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Grants that the guest may name: whatever is behind them.
fn gref(numbers: &mut Numbers, pool: &Granted, rings: &Rings) -> GrantRef {
    match numbers.below(40) {
        0 => GrantRef(numbers.word()),
        1 => GrantRef(numbers.below(64) as u32),
        2 => rings.tx_ring.grefs[0],
        3 => rings.rx_ring.grefs[0],
        _ => pool.grefs[numbers.below(pool.grefs.len())],
    }
}

fn extra(numbers: &mut Numbers, more: bool) -> [u32; 3] {
    let kind = if numbers.once_in(2) { GsoKind::Tcpv4 } else { GsoKind::Tcpv6 };
    match numbers.below(8) {
        0 => Extra::McastAdd([numbers.word() as u8; 6]).to_tx_words(more),
        1 => Extra::Hash(Hash { kind: 1, algorithm: 1, value: 3 }).to_tx_words(more),
        2 => Extra::Xdp { headroom: numbers.half() }.to_tx_words(more),
        _ => Extra::Gso(Gso { kind, size: numbers.half() | 1 }, 0).to_tx_words(more),
    }
}

/// The slots of a packet that is right, but once in a while for one word.
fn packet(numbers: &mut Numbers, pool: &Granted, rings: &Rings) -> Vec<[u32; 3]> {
    let fragments = if numbers.once_in(3) { numbers.below(20) } else { 0 };
    let mut extras = if numbers.once_in(8) { 1 + numbers.below(3) } else { 0 };
    let later: Vec<u16> = (0..fragments).map(|_| numbers.half() % 2000).collect();
    let total = later.iter().sum::<u16>() + numbers.half() % 3000;
    let mut flags = TxFlags::from_bits_retain(numbers.half() & 3);
    flags.set(TxFlags::MORE_DATA, fragments > 0);
    flags.set(TxFlags::EXTRA_INFO, extras > 0);
    let offset = numbers.half() % 1000;
    let mut slots = vec![slot(gref(numbers, pool, rings), offset, total, numbers.half(), flags)];
    while extras > 0 {
        extras -= 1;
        slots.push(extra(numbers, extras > 0));
    }
    for (n, &size) in later.iter().enumerate() {
        let more = if n + 1 < fragments { TxFlags::MORE_DATA } else { TxFlags::empty() };
        let offset = numbers.half() % 2000;
        slots.push(slot(gref(numbers, pool, rings), offset, size, numbers.half(), more));
    }
    if numbers.once_in(300) {
        let at = numbers.below(slots.len());
        slots[at][numbers.below(3)] ^= 1 << numbers.below(32);
    }
    slots
}

/// Writes over whatever is in a page, all the while.
fn scribble(seed: u64, tx: &RingPage<3>, pages: &[SharedPage], stop: &AtomicBool) {
    let mut numbers = Numbers::new(seed);
    while !stop.load(SeqCst) {
        let page = &pages[numbers.below(pages.len())];
        let bytes = numbers.next().to_ne_bytes();
        let _ = page.write(numbers.below(4088), &bytes);
        if numbers.once_in(200_000) {
            // A part of a slot, as another word of it is being read.
            let index = numbers.word();
            let mut words = tx.read_slot(index);
            words[numbers.below(3)] ^= 1 << numbers.below(32);
            tx.write_slot(index, words);
        }
        std::hint::spin_loop();
    }
}

struct Fuzz {
    numbers: Numbers,
    rings: Rings,
    pool: Granted,
}

impl Fuzz {
    fn act(&mut self, world: &mut World, guest: &mut Hostile) {
        let numbers = &mut self.numbers;
        match numbers.below(1000) {
            0..500 => {
                let owed = self.rings.tx_prod.wrapping_sub(self.rings.tx.load(Index::RspProd));
                let room = 256usize.saturating_sub(owed as usize);
                let mut slots = Vec::new();
                for _ in 0..numbers.below(64) {
                    let next = packet(numbers, &self.pool, &self.rings);
                    if slots.len() + next.len() > room {
                        break;
                    }
                    slots.extend(next);
                }
                self.rings.put_tx(&slots);
                guest.kick(self.rings.tx_event);
            }
            500..700 => {
                let owed = self.rings.rx_prod.wrapping_sub(self.rings.rx.load(Index::RspProd));
                let room = 256usize.saturating_sub(owed as usize);
                let requests: Vec<_> = (0..numbers.below(64).min(room))
                    .map(|_| RxRequest {
                        id: numbers.half(),
                        gref: gref(numbers, &self.pool, &self.rings).0,
                    })
                    .collect();
                self.rings.put_rx(&requests);
                guest.kick(self.rings.rx_event);
            }
            700..900 => {
                let behind = world.behind(GUEST);
                for _ in 0..numbers.below(20) {
                    let len = if numbers.once_in(20) { 65_535 } else { 14 + numbers.below(6000) };
                    let gso = numbers
                        .once_in(6)
                        .then(|| Gso { kind: GsoKind::Tcpv4, size: numbers.half() | 1 });
                    let checksum = Checksum::Unknown;
                    if behind.look().waiting.len() < 200 {
                        behind.give(frame(len), Offload { checksum, gso });
                    }
                }
            }
            900..905 => {
                let index = numbers.one_of(&[
                    Index::ReqProd,
                    Index::ReqEvent,
                    Index::RspProd,
                    Index::RspEvent,
                ]);
                let value = match numbers.below(3) {
                    0 => numbers.word(),
                    1 => self.rings.tx_prod.wrapping_add(numbers.below(300) as u32),
                    _ => self.rings.rx_prod.wrapping_add(numbers.below(300) as u32),
                };
                match numbers.once_in(2) {
                    true => self.rings.tx.store(index, value),
                    false => self.rings.rx.store(index, value),
                }
                guest.kick(self.rings.tx_event);
            }
            905..915 => {
                let key = numbers.one_of(&[
                    "tx-ring-ref",
                    "rx-ring-ref",
                    "event-channel",
                    "event-channel-tx",
                    "event-channel-rx",
                    "request-rx-copy",
                    "feature-sg",
                    "feature-gso-tcpv4",
                    "multi-queue-num-queues",
                    "state",
                ]);
                let value = match numbers.below(4) {
                    0 => numbers.word().to_string().into_bytes(),
                    1 => numbers.below(10).to_string().into_bytes(),
                    2 => self.pool.grefs[0].to_string().into_bytes(),
                    _ => numbers.next().to_ne_bytes().to_vec(),
                };
                guest.raw_key(key, &value);
            }
            915..920 => guest.key("state", numbers.one_of(&["1", "4", "5", "6"])),
            920..930 => {
                // Under the backend's hands; the pages stay ours.
                let _ = guest.domain.revoke(self.pool.grefs[numbers.below(self.pool.grefs.len())]);
            }
            930..980 => {
                guest.kick(self.rings.tx_event);
                guest.kick(self.rings.rx_event);
            }
            980..982 => {
                match numbers.below(3) {
                    0 => world.toolstack.ask_to_close(GUEST),
                    1 => world.toolstack.remove_backend(GUEST),
                    _ => world.toolstack.remove_frontend(GUEST),
                }
                std::thread::sleep(Duration::from_micros(numbers.below(1000) as u64));
                world.detaches(GUEST);
                world.attach(GUEST, &[]);
            }
            _ => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// By the rules again, with fresh rings and pages; the old ones go.
fn begin(world: &mut World, guest: &mut Hostile) -> (Rings, Granted) {
    guest.unkey("multi-queue-num-queues");
    world.settle();
    let rings = guest.connect();
    let pool = guest.pages(48, Access::ReadWrite);
    for index in 0..48 {
        pool.page(index).unwrap().0.write(0, &frame(4096)).unwrap();
    }
    (rings, pool)
}

#[test]
fn a_guest_that_does_anything() {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = setting("GRANTWAY_FUZZ_SEED").unwrap_or(clock);
    let time = Duration::from_secs(setting("GRANTWAY_FUZZ_SECONDS").unwrap_or(5));
    println!("GRANTWAY_FUZZ_SEED={seed}");
    let mut world = World::new();
    let mut guest = world.guest();
    let mut numbers = Numbers::new(seed);
    let end = Instant::now() + time;
    let (mut connections, mut actions) = (0, 0u64);
    while Instant::now() < end {
        let (rings, pool) = begin(&mut world, &mut guest);
        connections += 1;
        let pages: Vec<_> = (0..48).map(|index| pool.page(index).unwrap().0).collect();
        let (tx, stop) = (rings.tx.clone(), AtomicBool::new(false));
        let scribbler = numbers.next();
        let mut fuzz = Fuzz { numbers: numbers.clone(), rings, pool };
        let until = end.min(Instant::now() + Duration::from_millis(100));
        std::thread::scope(|scope| {
            scope.spawn(|| scribble(scribbler, &tx, &pages, &stop));
            while Instant::now() < until {
                fuzz.act(&mut world, &mut guest);
                actions += 1;
                let lost = guest.backend_state() != Some(XenbusState::Connected);
                if lost && fuzz.numbers.once_in(4) {
                    break;
                }
            }
            stop.store(true, SeqCst);
        });
        numbers = fuzz.numbers;
        world.behind(GUEST).look().waiting.clear();
        guest.events.close(fuzz.rings.tx_event);
        guest.events.close(fuzz.rings.rx_event);
        let Fuzz { pool, rings, .. } = fuzz;
        drop((pages, tx));
        guest.domain.release(pool);
        drop(rings);
    }
    let (sent, given) = {
        let all = world.ports.ever(GUEST);
        let looked: Vec<_> = all.iter().map(|behind| behind.look()).collect();
        (
            looked.iter().map(|inner| inner.sent).sum::<u64>(),
            looked.iter().map(|inner| inner.given).sum::<u64>(),
        )
    };
    println!("{connections} connections, {actions} actions, {sent} frames out, {given} in");
    assert!(connections > 3, "{connections} connections");
    let (mut rings, pool) = begin(&mut world, &mut guest);
    guest.is_served(&mut rings);
    guest.domain.release(pool);
    world.stands();
}
