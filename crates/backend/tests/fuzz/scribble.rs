//! Writes over everything that a guest shares, all the time and from a thread of its own, so
//! that the bytes change while they are read.

use super::guest::begins_page;
use super::support::rings::Rings;
use super::table::{ENTRY, Table};
use super::{Pages, witness};
use grantway_hypervisor::{GrantRef, Store};
use grantway_ring::{Index, RingMemory, RingPage, SharedPage};
use grantway_testkit::Numbers;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Keys that a frontend's folder has, or might have.
const KEYS: [&str; 18] = [
    "tx-ring-ref",
    "rx-ring-ref",
    "event-channel",
    "event-channel-tx",
    "event-channel-rx",
    "queue-0/tx-ring-ref",
    "queue-1/rx-ring-ref",
    "queue-1/event-channel-tx",
    "queue-3/event-channel-rx",
    "request-rx-copy",
    "feature-sg",
    "feature-rx-notify",
    "feature-gso-tcpv4",
    "feature-no-csum-offload",
    "request-multicast-control",
    "multi-queue-num-queues",
    "backend",
    "state",
];

/// Writes something into a frontend's folder, or takes something away.
pub fn store(store: &mut dyn Store, front: &str, numbers: &mut Numbers, pool: &[GrantRef]) {
    let key = format!("{front}/{}", numbers.one_of(&KEYS));
    let value = match numbers.below(6) {
        0 => numbers.word().to_string().into_bytes(),
        1 => numbers.below(10).to_string().into_bytes(),
        2 => pool[numbers.below(pool.len())].to_string().into_bytes(),
        3 => (0..numbers.below(3000)).map(|_| numbers.word() as u8).collect(),
        4 => numbers.next().to_ne_bytes().to_vec(),
        _ => {
            let _ = store.remove(&key);
            return;
        }
    };
    // The store has its own limits, which are not in question here.
    let _ = store.write(&key, &value);
}

/// Returns random bytes for an entry, or bytes that are nearly valid.
fn entry(numbers: &mut Numbers, good: [u8; ENTRY]) -> [u8; ENTRY] {
    let mut bad = good;
    match numbers.below(5) {
        0 => bad = [0; ENTRY],
        // GTF_readonly.
        1 => bad[0] ^= 4,
        // Another page of its own, or none.
        2 => bad[4..].copy_from_slice(&(numbers.word() >> numbers.below(32)).to_le_bytes()),
        3 => bad[numbers.below(ENTRY)] ^= 1 << numbers.below(8),
        _ => bad = numbers.next().to_ne_bytes(),
    }
    bad
}

pub struct Scribbler<'a> {
    pub numbers: Numbers,
    pub pages: &'a Pages,
    /// Pages of frames that are judged, which others send.
    pub judged: Vec<SharedPage>,
    pub table: &'a Table,
    /// Bytes of the valid table.
    pub image: &'a [u8],
    pub store: Box<dyn Store>,
    pub front: String,
    /// The rings in use.
    pub tx: Vec<RingPage<3>>,
    pub rx: Vec<RingPage<2>>,
    pub rings: Vec<GrantRef>,
}

impl<'a> Scribbler<'a> {
    pub fn of_rings(mut self, rings: &[Rings]) -> Self {
        for one in rings {
            self.tx.push(one.tx.clone());
            self.rx.push(one.rx.clone());
            self.rings.extend([one.tx_ring.grefs[0], one.rx_ring.grefs[0]]);
        }
        self
    }

    pub fn run(mut self, stop: &AtomicBool) {
        let mut spoilt = None;
        while !stop.load(SeqCst) {
            self.page();
            witness::scribble(&self.judged, &mut self.numbers);
            if self.numbers.once_in(200) {
                if let Some(gref) = spoilt.take() {
                    self.table.write(gref, self.good(gref));
                }
                spoilt = self.grant();
            }
            if self.numbers.once_in(300_000) {
                self.ring();
            }
            if self.numbers.once_in(1_000_000) {
                let (numbers, grefs) = (&mut self.numbers, &self.pages.pool.grefs);
                store(self.store.as_mut(), &self.front, numbers, grefs);
            }
            std::hint::spin_loop();
        }
    }

    fn page(&mut self) {
        let pages = &self.pages.memory;
        let bytes = self.numbers.next().to_ne_bytes();
        let page = &pages[self.numbers.below(pages.len())];
        let _ = page.write(self.numbers.below(4088), &bytes);
    }

    fn good(&self, gref: GrantRef) -> [u8; ENTRY] {
        let at = gref.0 as usize * ENTRY;
        self.image[at..at + ENTRY].try_into().unwrap()
    }

    /// Spoils one entry, and says which.
    fn grant(&mut self) -> Option<GrantRef> {
        let numbers = &mut self.numbers;
        let gref = match numbers.below(8) {
            0 => GrantRef(numbers.below(self.image.len() / ENTRY) as u32),
            1 => self.rings[numbers.below(self.rings.len())],
            _ => self.pages.pool.grefs[numbers.below(self.pages.pool.grefs.len())],
        };
        // Nothing is received into the page whose slots begin it.
        let mail = self.pages.mail.gref();
        if gref == mail {
            return None;
        }
        let good = self.good(gref);
        let mut bad = entry(&mut self.numbers, good);
        if self.good(mail)[4..] == bad[4..] {
            bad = [0; ENTRY];
        }
        self.table.write(gref, bad);
        Some(gref)
    }

    /// A part of a slot, as another word of it is being read, or an index.
    fn ring(&mut self) {
        let numbers = &mut self.numbers;
        let queue = numbers.below(self.tx.len());
        let (tx, rx, index) = (&self.tx[queue], &self.rx[queue], numbers.word());
        match numbers.below(16) {
            0..6 => {
                let _whole = self.pages.slots.lock().unwrap();
                let mut words = tx.read_slot(index);
                words[numbers.below(3)] ^= 1 << numbers.below(32);
                if !begins_page(words) {
                    tx.write_slot(index, words);
                }
            }
            6..12 => {
                let mut words = rx.read_slot(index);
                words[numbers.below(2)] ^= 1 << numbers.below(32);
                rx.write_slot(index, words);
            }
            12..15 => {
                let event = numbers.one_of(&[Index::ReqEvent, Index::RspEvent, Index::RspProd]);
                tx.store(event, numbers.word());
                rx.store(event, numbers.word());
            }
            _ => rx.store(Index::ReqProd, numbers.word()),
        }
    }
}
