//! The page is ordinary memory here, and the test is the store at the other end.

use super::*;
use crate::options::{Layout, Options, Wake};
use crate::sys::hypercall::fake;
use crate::sys::shared::SharedInfo;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use grantway_ring::{PAGE_SIZE, SharedRun};

fn rings() -> Rings {
    Rings(SharedRun::private(1).page(0).unwrap())
}

fn set(rings: &Rings, ring: &Ring, read: u32, written: u32) {
    rings.0.write_word(ring.read, read).unwrap();
    rings.0.write_word(ring.written, written).unwrap();
}

fn whole(rings: &Rings) -> [u8; PAGE_SIZE] {
    let mut bytes = [0; PAGE_SIZE];
    rings.0.read(0, &mut bytes).unwrap();
    bytes
}

/// Takes what the guest wrote, as the store does.
fn taken(rings: &Rings) -> Vec<u8> {
    let (read, held) = (rings.word(REQUESTS.read), rings.held(&REQUESTS).unwrap());
    let bytes = whole(rings);
    let at = |n: u32| bytes[REQUESTS.bytes + (read.wrapping_add(n) % RING) as usize];
    rings.0.write_word(REQUESTS.read, read.wrapping_add(held)).unwrap();
    (0..held).map(at).collect()
}

/// Writes an answer, as the store does.
fn answer(rings: &Rings, bytes: &[u8]) {
    let written = rings.word(ANSWERS.written);
    for (n, byte) in (0..).zip(bytes) {
        let at = ANSWERS.bytes + (written.wrapping_add(n) % RING) as usize;
        rings.0.write(at, &[*byte]).unwrap();
    }
    rings.0.write_word(ANSWERS.written, written.wrapping_add(bytes.len() as u32)).unwrap();
}

/// Starts of a ring: the first, ones where a message goes around the end, and one where the
/// indices do.
const STARTS: [u32; 4] = [0, 1020, 5 * RING - 1, u32::MAX - 3];

#[test]
fn requests_go_around_the_ring() {
    let message: Vec<u8> = (0..RING).map(|n| (n % 251) as u8 + 1).collect();
    for start in STARTS {
        let rings = rings();
        set(&rings, &REQUESTS, start, start);
        let (mut given, mut calls) = (0, 0);
        while given < message.len() {
            assert!(rings.is_ready(Ready::Write));
            given += rings.write(&message[given..]).unwrap();
            calls += 1;
        }
        assert!(calls <= 2, "one call up to the end of the ring, and one behind it");
        assert!(!rings.is_ready(Ready::Write));
        assert_eq!(rings.write(&[1]), Err(TransportError::NotReady));
        assert_eq!(taken(&rings), message, "from {start}");
        assert!(whole(&rings)[RING as usize..2048].iter().all(|byte| *byte == 0));
        assert_eq!(rings.write(&[1, 2]), Ok(2.min((RING - start % RING) as usize)));
    }
}

#[test]
fn answers_go_around_the_ring() {
    let message: Vec<u8> = (0..RING).map(|n| (n % 241) as u8).collect();
    for start in STARTS {
        let rings = rings();
        set(&rings, &ANSWERS, start, start);
        assert!(!rings.is_ready(Ready::Read));
        assert_eq!(rings.read(&mut [0; 4]), Err(TransportError::NotReady));
        answer(&rings, &message);
        let mut got = Vec::new();
        while rings.is_ready(Ready::Read) {
            let mut bytes = [0; 100];
            let count = rings.read(&mut bytes).unwrap();
            assert!(count > 0);
            got.extend_from_slice(&bytes[..count]);
        }
        assert_eq!(got, message, "from {start}");
        assert_eq!(rings.word(ANSWERS.read), start.wrapping_add(RING));
    }
}

#[test]
fn hostile_indices_end_the_connection_and_change_nothing() {
    for (read, written) in [(1, 0), (0, RING + 1), (0, u32::MAX), (5, 1 << 31), (u32::MAX, RING)] {
        let rings = rings();
        set(&rings, &ANSWERS, read, written);
        set(&rings, &REQUESTS, read, written);
        let before = whole(&rings);
        // Ready, so that no caller waits for a ring that is broken.
        assert!(rings.is_ready(Ready::Read) && rings.is_ready(Ready::Write));
        assert_eq!(rings.read(&mut [0; 16]), Err(TransportError::Closed), "{read} {written}");
        assert_eq!(rings.write(&[0; 16]), Err(TransportError::Closed), "{read} {written}");
        assert_eq!(whole(&rings), before);
    }
}

#[test]
fn a_peer_that_writes_indices_all_the_time_gets_nothing_outside_of_the_ring() {
    let rings = rings();
    rings.0.write(ANSWERS.bytes, &[0xaa; RING as usize]).unwrap();
    rings.0.write(2064, &[0xbb; PAGE_SIZE - 2064]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seed = 1_u64;
            while !done.load(SeqCst) {
                for at in [REQUESTS.read, REQUESTS.written, ANSWERS.read, ANSWERS.written] {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Often, there is a request or an answer.
                    let index = (seed >> 32) as u32 & if seed >> 63 == 0 { RING - 1 } else { !0 };
                    rings.0.write_word(at, index).unwrap();
                }
            }
        });
        // Many times each, whenever the other thread has a processor.
        let (mut read, mut written) = (0, 0);
        while read < 1000 || written < 1000 {
            let mut bytes = [0; 64];
            match rings.read(&mut bytes) {
                Ok(count) => {
                    assert!(count <= 64 && bytes[..count].iter().all(|byte| *byte == 0xaa));
                    read += 1;
                }
                Err(_) => std::thread::yield_now(),
            }
            match rings.write(&[0xcc; 64]) {
                Ok(count) => {
                    assert!(count <= 64);
                    written += 1;
                }
                Err(_) => std::thread::yield_now(),
            }
        }
        done.store(true, SeqCst);
    });
    let bytes = whole(&rings);
    assert!(bytes[..RING as usize].contains(&0xcc), "nothing was written");
    assert!(bytes[ANSWERS.bytes..2048].iter().all(|byte| *byte == 0xaa));
    assert!(bytes[2064..].iter().all(|byte| *byte == 0xbb));
}

/// Bytes of the page of shared information that have the time, and the speed of the clock.
const SYSTEM: usize = 48;
const FACTOR: usize = 56;
const SHIFT: usize = 60;

/// Returns the guest's way to a store, and the page that has the guest's time.
fn store(wake: Wake) -> (StorePage, SharedPage) {
    let page = SharedRun::private(1).page(0).unwrap();
    let shared = SharedInfo::over(page.clone());
    fake::renew(shared.clone(), true);
    let options = Options { wake, layout: Layout::TwoLevel };
    let events = Arc::new(Events::new(shared.clone(), options).unwrap());
    let set = events.set();
    let port = events.bind_own(set).unwrap();
    (StorePage { rings: rings(), port, events, set, clock: Clock::new(shared) }, page)
}

#[test]
fn a_store_that_never_answers_is_given_up() {
    let (mut upcall, page) = store(Wake::Upcall);
    let (clock, mut seconds) = (page, 0_u64);
    // Each wait ends by the timer, after a second.
    let later = move || {
        seconds += 1;
        clock.write(SYSTEM, &(seconds * 1_000_000_000).to_le_bytes()).unwrap();
    };
    fake::with(|xen| xen.on_halt = Some(Box::new(later)));
    assert_eq!(upcall.wait(Ready::Read, false), Ok(false));
    let why = TransportError::Failed("no answer in 600 s".into());
    assert_eq!(upcall.wait(Ready::Read, true), Err(why));
    assert_eq!(fake::with(|xen| xen.halts), PATIENCE.as_secs() as usize, "looks");
    // The next answer is found all the same.
    answer(&upcall.rings, &[1]);
    assert_eq!(upcall.wait(Ready::Read, true), Ok(true));

    // A poll ends at once here, so the clock has to run by itself: a millisecond per count.
    let (mut polls, page) = store(Wake::Poll);
    page.write(FACTOR, &u32::MAX.to_le_bytes()).unwrap();
    page.write(SHIFT, &[20]).unwrap();
    let Err(TransportError::Failed(why)) = polls.wait(Ready::Read, true) else {
        panic!("it was ready")
    };
    assert!(why.starts_with("no answer in 6"), "{why}");
    let port = polls.port.0;
    fake::with(|xen| {
        assert!(!xen.polls.is_empty() && xen.polls.iter().all(|ports| *ports == [port]));
    });
}
