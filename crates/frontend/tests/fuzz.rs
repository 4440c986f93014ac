//! A backend that does anything: random answers, indices, states and keys, and
//! pages that it writes to while the frontend reads them. Whatever comes, the
//! frontend neither panics nor hangs nor loses the store, keeps to the pages of
//! one queue, and works with a backend that keeps to the rules afterwards.
//!
//! `GRANTWAY_FUZZ_SECONDS` for longer than 3 s, `GRANTWAY_FUZZ_SEED` for a run
//! that was seen before (as far as threads allow).

mod support;

use grantway_frontend::VifStatus;
use grantway_hypervisor::Platform;
use grantway_netif::rx::RxFlags;
use grantway_netif::tx::TxRequest;
use grantway_netif::{Checksum, Gso, GsoKind, Offload, XenbusState};
use grantway_ring::{Index, RingMemory};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::frame;
use support::server::Rings;
use support::world::World;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// xorshift64*.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u32) -> u32 {
        ((self.next() >> 32) % u64::from(end)) as u32
    }

    fn once_in(&mut self, many: u32) -> bool {
        self.below(many) == 0
    }
}

/// Answers some of what was sent, most often by the rules.
fn answer(numbers: &mut Numbers, rings: &mut Rings, out: &mut Vec<u16>, at: &mut u32) {
    out.extend(rings.requests().iter().map(|&words| TxRequest::from_words(words).id));
    for _ in 0..numbers.below(40) {
        if out.is_empty() {
            break;
        }
        let mut id = out.swap_remove(numbers.below(out.len() as u32) as usize);
        if numbers.once_in(2000) {
            id ^= 1 << numbers.below(16);
        }
        let status = if numbers.once_in(500) { numbers.next() as i16 } else { 0 };
        rings.tx_put(*at, id, status);
        *at = at.wrapping_add(1);
    }
    rings.tx_publish(*at);
}

/// Fills some of what was posted, most often by the rules.
fn fill(numbers: &mut Numbers, rings: &mut Rings) {
    for _ in 0..numbers.below(30) {
        if rings.posted() == 0 || rings.posted() > 256 {
            break;
        }
        let index = rings.rx_cons;
        let mut request = rings.take();
        let mut flags = RxFlags::from_bits_retain(numbers.next() as u16 & 3);
        flags.set(RxFlags::MORE_DATA, numbers.once_in(5));
        flags.set(RxFlags::EXTRA_INFO, numbers.once_in(100));
        if numbers.once_in(2000) {
            request.id ^= 1 << numbers.below(16);
        }
        let offset = if numbers.once_in(50) { numbers.next() as u16 } else { 0 };
        let status = match numbers.below(40) {
            0 => numbers.next() as i16,
            1 => -1,
            _ => numbers.below(4097) as i16,
        };
        rings.rx_put(index, request.id, offset, flags, status);
        if numbers.once_in(2000) {
            let word = |numbers: &mut Numbers| numbers.next() as u32;
            rings.rx.write_slot(index, [word(numbers), word(numbers)]);
        }
    }
    rings.rx_publish(rings.rx_cons);
}

/// The application's side: a burst each way.
fn use_it(numbers: &mut Numbers, world: &mut World, buffer: &mut [u8]) {
    for _ in 0..numbers.below(30) {
        let most = if numbers.once_in(20) { 65_000 } else { 2000 };
        let len = 14 + numbers.below(most) as usize;
        let gso = Gso { kind: GsoKind::Tcpv4, size: 1448 };
        let offload = match numbers.once_in(5) {
            true => Offload { checksum: Checksum::Partial, gso: Some(gso) },
            false => Offload::default(),
        };
        if world.vif.send(&frame(len, 1), offload).is_err() {
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

/// A connection that is abused until it ends, or for a while.
fn abuse(numbers: &mut Numbers, world: &mut World, until: Instant, buffer: &mut [u8]) {
    let mut rings = world.connect();
    let (mut out, mut answered) = (Vec::new(), rings.tx_cons);
    let (tx, rx, stop) = (rings.tx.clone(), rings.rx.clone(), AtomicBool::new(false));
    let seed = numbers.next();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = Numbers(seed | 1);
            while !stop.load(SeqCst) {
                if numbers.once_in(300_000) {
                    // A part of an answer, as another part of it is being read.
                    let slot = numbers.below(256);
                    let mut words = rx.read_slot(slot);
                    words[numbers.below(2) as usize] ^= 1 << numbers.below(32);
                    rx.write_slot(slot, words);
                }
                std::hint::spin_loop();
            }
        });
        while Instant::now() < until && world.vif.status() == VifStatus::Connected {
            match numbers.below(400) {
                0 => {
                    let indices = [Index::ReqEvent, Index::RspProd, Index::ReqProd];
                    let index = indices[numbers.below(3) as usize];
                    let value = match numbers.once_in(2) {
                        true => numbers.next() as u32,
                        false => rx.load(Index::RspProd).wrapping_add(numbers.below(300)),
                    };
                    if numbers.once_in(2) { tx.store(index, value) } else { rx.store(index, value) }
                }
                1 => {
                    let states: [&[u8]; 6] = [b"1", b"2", b"5", b"6", b"", b"\xff"];
                    world.server.key("state", states[numbers.below(6) as usize]);
                }
                2 => world.server.key("carrier", &numbers.next().to_ne_bytes()),
                _ => {}
            }
            // Absurd indices of ours make no more than absurd answers.
            if rings.tx.load(Index::ReqProd).wrapping_sub(rings.tx_cons) <= 256 {
                answer(numbers, &mut rings, &mut out, &mut answered);
            }
            fill(numbers, &mut rings);
            if numbers.once_in(3) {
                world.server.kick(rings.tx_event);
                world.server.kick(rings.rx_event);
            }
            use_it(numbers, world, buffer);
            world.vif.store_changed().unwrap();
            assert!(world.guest.counters().granted <= 514);
        }
        stop.store(true, SeqCst);
    });
    drop((tx, rx));
    world.server.detach(rings);
    world.server.state(XenbusState::Closing);
    world.look();
    world.vif.take_failure();
    world.vif.restart().unwrap();
}

#[test]
fn a_backend_that_does_anything() {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = setting("GRANTWAY_FUZZ_SEED").unwrap_or(clock);
    let time = Duration::from_secs(setting("GRANTWAY_FUZZ_SECONDS").unwrap_or(3));
    println!("GRANTWAY_FUZZ_SEED={seed}");
    let mut numbers = Numbers(seed | 1);
    let mut world = World::new();
    let mut buffer = vec![0; 65_536];
    let end = Instant::now() + time;
    let mut connections = 0;
    while Instant::now() < end {
        let until = end.min(Instant::now() + Duration::from_millis(100));
        abuse(&mut numbers, &mut world, until, &mut buffer);
        connections += 1;
    }
    println!("{connections} connections, {:?}", world.vif.stats());
    let mut rings = world.connect();
    world.works(&mut rings);
    world.ends(rings);
}
