//! A thread that writes over everything that a frontend shares, all the while, so that it changes
//! as it is being read.

use super::support::GUARD;
use super::support::server::{Rings, Server};
use grantway_hypervisor::{Access, GrantRef, Mapper, Store};
use grantway_netif::rx::RxRequest;
use grantway_ring::{Index, RingMemory, RingPage, SharedPage, SharedRun};
use grantway_testkit::Numbers;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Keys that a backend's folder has, or might have.
const KEYS: [&str; 12] = [
    "feature-sg",
    "feature-gso-tcpv4",
    "feature-gso-tcpv6",
    "feature-rx-copy",
    "feature-no-csum-offload",
    "feature-ipv6-csum-offload",
    "feature-split-event-channels",
    "multi-queue-max-queues",
    "carrier",
    "error",
    "mtu",
    "state",
];

/// Writes something into a backend's folder, or takes something away.
pub fn store(store: &mut dyn Store, back: &str, numbers: &mut Numbers) {
    let key = format!("{back}/{}", numbers.one_of(&KEYS));
    let value = match numbers.below(5) {
        0 => numbers.word().to_string().into_bytes(),
        1 | 2 => numbers.below(10).to_string().into_bytes(),
        3 => (0..numbers.below(3000)).map(|_| numbers.word() as u8).collect(),
        _ => {
            let _ = store.remove(&key);
            return;
        }
    };
    // The store has its own limits, which are not in question here.
    let _ = store.write(&key, &value);
}

pub struct Hammer {
    pub numbers: Numbers,
    store: Box<dyn Store>,
    back: String,
    tx: Vec<RingPage<3>>,
    rx: Vec<RingPage<2>>,
    pages: Vec<SharedPage>,
}

impl Hammer {
    /// Makes the hammer, and maps the posted pages. Returns both.
    pub fn new(numbers: Numbers, server: &Server, rings: &[&mut Rings]) -> (Self, Vec<SharedRun>) {
        let runs: Vec<_> = rings.iter().map(|one| posted(server, one)).collect();
        let pages = runs.iter().flat_map(|run| (0..256).map_while(|n| run.page(n))).collect();
        let hammer = Self {
            numbers,
            store: grantway_hypervisor::Platform::store(server.domain.as_ref()).unwrap(),
            back: server.back.clone(),
            tx: rings.iter().map(|one| one.tx.clone()).collect(),
            rx: rings.iter().map(|one| one.rx.clone()).collect(),
            pages,
        };
        (hammer, runs)
    }

    /// Runs until it is stopped. Ends the whole test if a step of the other thread takes too long:
    /// then a frontend never came back.
    pub fn run(mut self, stop: &AtomicBool, steps: &AtomicU64) {
        let (mut last, mut since) = (0, Instant::now());
        while !stop.load(SeqCst) {
            let bytes = self.numbers.next().to_ne_bytes();
            let page = &self.pages[self.numbers.below(self.pages.len())];
            let _ = page.write(self.numbers.below(4088), &bytes);
            if self.numbers.once_in(100_000) {
                self.ring();
                let now = steps.load(SeqCst);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > GUARD {
                    // Nobody else would say so: the test's own thread hangs.
                    let _ = writeln!(std::io::stderr(), "step {now} has no end");
                    std::process::abort();
                }
            }
            if self.numbers.once_in(1_000_000) {
                store(self.store.as_mut(), &self.back, &mut self.numbers);
            }
            std::hint::spin_loop();
        }
    }

    /// Writes a part of an answer, as another part of it is being read, or an index.
    fn ring(&mut self) {
        let numbers = &mut self.numbers;
        let queue = numbers.below(self.tx.len());
        let (tx, rx, slot) = (&self.tx[queue], &self.rx[queue], numbers.word());
        match numbers.below(32) {
            0..10 => {
                let mut words = tx.read_slot(slot);
                words[numbers.below(3)] ^= 1 << numbers.below(32);
                tx.write_slot(slot, words);
            }
            10..20 => {
                let mut words = rx.read_slot(slot);
                words[numbers.below(2)] ^= 1 << numbers.below(32);
                rx.write_slot(slot, words);
            }
            20..31 => {
                let index = numbers.one_of(&[Index::ReqEvent, Index::RspEvent, Index::ReqProd]);
                tx.store(index, numbers.word());
                rx.store(index, numbers.word());
            }
            _ => tx.store(Index::RspProd, numbers.word()),
        }
    }
}

/// Maps the pages that are posted on a ring.
fn posted(server: &Server, rings: &Rings) -> SharedRun {
    let gref = |n| GrantRef(RxRequest::from_words(rings.rx.read_slot(n)).gref);
    let grefs: Vec<_> = (0..rings.posted().min(256)).map(gref).collect();
    server.domain.map(server.guest, &grefs, Access::ReadWrite).unwrap()
}
