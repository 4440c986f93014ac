//! Guests that do one thing all the time, as fast as they are driven: what neighbours on a
//! worker have to bear. The test of counted work and the bench of processor time have the
//! same ones.

use super::hostile::{Hostile, frame};
use super::port::Flow;
use super::rings::{Rings, SLOTS, page, slot};
use super::world::World;
use grantway_backend::VifId;
use grantway_hypervisor::{Access, DomId, GrantRef, Granted};
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::TxFlags;
use grantway_ring::{Index, RingMemory, RingPage};
use std::sync::atomic::{Ordering::SeqCst, fence};

/// Pages to send from.
const PAGES: usize = 18;
const BROADCAST: [u8; 6] = [0xff; 6];

/// What a guest does all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// Its ring is full of packets of so many bytes in so many slots each.
    Sends { bytes: usize, slots: usize },
    /// Its ring is full of small packets, and it signals as fast as it can.
    SendsAndSignals,
    /// Its ring is full of packets whose pages are not there.
    SendsNothing,
    /// The same, of eighteen slots each.
    SplintersNothing,
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

pub const SMALL: Habit = Habit::Sends { bytes: 64, slots: 1 };
pub const ETHERNET: Habit = Habit::Sends { bytes: 1514, slots: 1 };
pub const LARGEST: Habit = Habit::Sends { bytes: 65_535, slots: 16 };
pub const SPLINTERED: Habit = Habit::Sends { bytes: 72, slots: 18 };

fn address(number: u16) -> [u8; 6] {
    [2, 0, 0, 0, 0, number as u8]
}

pub struct Guest {
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
    pub fn boot(world: &mut World, number: u16) -> Self {
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

    pub fn takes_up(&mut self, habit: Habit) {
        self.signals = matches!(habit, Habit::Signals | Habit::SendsAndSignals);
        let small = |guest: &Self, n| slot(page(&guest.out, n).1, 0, 64, 1, TxFlags::empty());
        self.offers = match habit {
            Habit::Signals | Habit::Rests => Vec::new(),
            Habit::SplintersNothing => {
                let last = |n| n == PAGES - 1;
                let more = |n| if last(n) { TxFlags::empty() } else { TxFlags::MORE_DATA };
                let len = |n| if n == 0 { 72 } else { 4 };
                (0..PAGES).map(|n| slot(GrantRef(30_000), 0, len(n), 1, more(n))).collect()
            }
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
    pub fn sends(&mut self) {
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
    pub fn receives(&mut self) {
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
    pub fn served(&self) -> u32 {
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
