//! Guests that do one thing all the time, as fast as they are driven: what neighbours on a
//! worker have to bear. The test of counted work and the bench of processor time have the
//! same ones.

use super::hostile::{Hostile, frame};
use super::port::Flow;
use super::rings::{Rings, SLOTS, page, slot};
use super::tcp::Tcp;
use super::world::World;
use grantway_backend::VifId;
use grantway_hypervisor::{Access, DomId, GrantRef, Granted};
use grantway_netif::extra::Extra;
use grantway_netif::rx::{RxFlags, RxRequest, RxResponse};
use grantway_netif::tx::TxFlags;
use grantway_ring::{Index, RingMemory, RingPage};
use std::sync::atomic::{Ordering::SeqCst, fence};

/// Pages to send from.
const PAGES: usize = 18;
const BROADCAST: [u8; 6] = [0xff; 6];

/// Constant activity of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// Its ring is full of packets of `bytes` bytes in `slots` slots each.
    Sends { bytes: usize, slots: usize },
    /// Its ring is full of small packets, and it signals as fast as it can.
    SendsAndSignals,
    /// Its ring is full of packets whose pages are not there.
    SendsNothing,
    /// Its ring is full of packets of eighteen slots each, whose pages are not there.
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
    /// Its ring is full of TCP packets that are to be cut into thousands of segments, one to
    /// each of the guests from 1 to this number, at most 16.
    CutForEach(u16),
    /// Its ring is full of TCP packets to all guests, which are to be cut into thousands of
    /// segments.
    CutForAll,
    /// Its ring is full of TCP packets to all guests, which are to be cut into segments with
    /// this number of bytes of payload.
    CutForAllBy(u16),
    /// Sends 64 numbered packets of two pages each to all guests, once.
    Counts,
}

/// Bytes of a numbered packet.
const COUNTED: usize = 6000;

/// Bytes of payload in a segment, and segments of a packet, of [`Habit::CutForEach`].
pub const CUT_SIZE: u16 = 8;
pub const CUT_COUNT: usize = 7490;
/// Pages of such a packet. It has one more slot, for its GSO extra.
const CUT_PAGES: usize = 15;
/// Number of such packets that a ring holds.
const CUT_PACKETS: usize = SLOTS as usize / (CUT_PAGES + 1);

pub const SMALL: Habit = Habit::Sends { bytes: 64, slots: 1 };
pub const ETHERNET: Habit = Habit::Sends { bytes: 1514, slots: 1 };
pub const LARGEST: Habit = Habit::Sends { bytes: 65_535, slots: 16 };
pub const SPLINTERED: Habit = Habit::Sends { bytes: 72, slots: 18 };

/// The Ethernet address of a guest.
pub fn address(number: u16) -> [u8; 6] {
    [2, 0, 0, 0, 0, number as u8]
}

pub struct Guest {
    pub hostile: Hostile,
    pub rings: Rings,
    pub own: [u8; 6],
    out: Granted,
    into: Granted,
    /// Pages of packets that are to be cut.
    cut: Option<Granted>,
    /// Slots with which the guest fills its ring, again and again.
    offers: Vec<[u32; 3]>,
    signals: bool,
    /// True if the guest posts no page.
    pub withholds: bool,
}

impl Guest {
    pub fn boot(world: &mut World, number: u16) -> Self {
        let vif = VifId { domain: DomId(20 + number), devid: 0 };
        let mut hostile = world.guest_of(vif);
        // Frames are counted and forgotten.
        world.behind(vif).look().flow = Some(Flow::new(64));
        let rings = hostile.connect();
        Self::over(hostile, rings, number)
    }

    /// Makes a guest that is connected.
    pub fn over(hostile: Hostile, rings: Rings, number: u16) -> Self {
        let out = hostile.pages(PAGES, Access::ReadOnly);
        let into = hostile.pages(SLOTS as usize, Access::ReadWrite);
        // As on any guest that has run for a while: the kernel that backs this one's memory makes
        // a page when it is first written to, which is no worker's work.
        for run in [&out, &into] {
            for n in 0..run.grefs.len() {
                page(run, n).0.write(0, &[0; 4096]).unwrap();
            }
        }
        let (own, offers) = (address(number), Vec::new());
        let (cut, signals, withholds) = (None, false, false);
        Self { hostile, rings, own, out, into, cut, offers, signals, withholds }
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
            Habit::CutForEach(last) => self.cut((1..=last).map(address).collect(), CUT_SIZE),
            Habit::CutForAll => self.cut(vec![BROADCAST], CUT_SIZE),
            Habit::CutForAllBy(size) => self.cut(vec![BROADCAST], size),
            Habit::Counts => {
                self.counts();
                Vec::new()
            }
        };
    }

    /// A first page for each packet, and the second for all of them.
    fn counts(&mut self) {
        let pages = self.hostile.pages(65, Access::ReadOnly);
        let mut slots = Vec::new();
        for n in 0..64 {
            let (memory, gref) = page(&pages, n + 1);
            let mut bytes = frame(4096);
            bytes[..6].copy_from_slice(&BROADCAST);
            bytes[6..12].copy_from_slice(&self.own);
            bytes[14] = n as u8;
            memory.write(0, &bytes).unwrap();
            slots.push(slot(gref, 0, COUNTED as u16, 1, TxFlags::MORE_DATA));
            let rest = COUNTED - 4096;
            slots.push(slot(page(&pages, 0).1, 0, rest as u16, 1, TxFlags::empty()));
        }
        self.rings.put_tx(&slots);
        self.hostile.kick(self.rings.tx_event);
        self.cut = Some(pages);
    }

    /// The numbers of the packets that it was given, which posted pages once.
    pub fn numbers(&self) -> Vec<u8> {
        let (mut numbers, mut first) = (Vec::new(), true);
        for index in 0..self.rings.rx.load(Index::RspProd) {
            let answer = RxResponse::from_words(self.rings.rx.read_slot(index));
            let (memory, _) = page(&self.into, (index % SLOTS) as usize);
            if std::mem::replace(&mut first, !answer.flags.contains(RxFlags::MORE_DATA)) {
                let mut number = [0];
                memory.read(usize::from(answer.offset) + 14, &mut number).unwrap();
                numbers.push(number[0]);
            }
        }
        numbers
    }

    /// Returns the slots of one packet to each of these stations.
    fn cut(&mut self, stations: Vec<[u8; 6]>, size: u16) -> Vec<[u32; 3]> {
        // A first page for each, and the others for all of them.
        let rest = CUT_PAGES - 1;
        let pages = || self.hostile.pages(rest + CUT_PACKETS, Access::ReadOnly);
        let pages = self.cut.take().unwrap_or_else(pages);
        // Stock guests take no large frames of IPv6.
        let tcp = Tcp { v6: true };
        let gso = tcp.offload(size).gso.unwrap();
        let mut slots = Vec::new();
        for (number, to) in stations.into_iter().enumerate() {
            let frame = tcp.frame(to, self.own, &vec![7; usize::from(CUT_SIZE) * CUT_COUNT]);
            for (n, part) in frame.chunks(4096).enumerate() {
                let (memory, gref) = page(&pages, if n == 0 { rest + number } else { n - 1 });
                memory.write(0, part).unwrap();
                let size = if n == 0 { frame.len() } else { part.len() };
                let mut flags = TxFlags::empty();
                flags.set(TxFlags::MORE_DATA, n + 1 < CUT_PAGES);
                flags.set(TxFlags::EXTRA_INFO | TxFlags::CSUM_BLANK, n == 0);
                slots.push(slot(gref, 0, size as u16, 1, flags));
                if n == 0 {
                    slots.push(Extra::Gso(gso.try_into().unwrap(), 0).to_tx_words(false));
                }
            }
        }
        self.cut = Some(pages);
        slots
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

    /// Sets the frames, of at most 64 bytes each, with which the guest fills its ring. The
    /// guest also signals as fast as it can.
    pub fn offers(&mut self, frames: &[Vec<u8>]) {
        self.signals = true;
        let lay = |(n, bytes): (usize, &Vec<u8>)| {
            let (memory, gref) = page(&self.out, n / 64);
            let offset = n % 64 * 64;
            memory.write(offset, bytes).unwrap();
            slot(gref, offset as u16, bytes.len() as u16, n as u16, TxFlags::empty())
        };
        self.offers = frames.iter().enumerate().map(lay).collect();
    }

    /// Fills its ring, and signals where the backend asked for it, or anyway.
    pub fn sends(&mut self) {
        if self.fills() || self.signals {
            self.hostile.kick(self.rings.tx_event);
        }
        if self.signals {
            self.hostile.kick(self.rings.rx_event);
        }
    }

    /// Fills its ring. Returns true if the backend asked for a signal.
    pub fn fills(&mut self) -> bool {
        let old = self.rings.tx_prod;
        let mut room = SLOTS - old.wrapping_sub(self.served());
        while !self.offers.is_empty() && room as usize >= self.offers.len() {
            for &words in &self.offers {
                self.rings.tx.write_slot(self.rings.tx_prod, words);
                self.rings.tx_prod = self.rings.tx_prod.wrapping_add(1);
                room -= 1;
            }
        }
        shows(&self.rings.tx, old, self.rings.tx_prod)
    }

    /// Sends these frames, each of them once.
    pub fn offers_once(&mut self, frames: &[Vec<u8>]) {
        self.offers(frames);
        let slots = std::mem::take(&mut self.offers);
        self.rings.put_tx(&slots);
        self.hostile.kick(self.rings.tx_event);
    }

    /// The frames of one page each that came since it looked last.
    pub fn takes(&mut self) -> Vec<Vec<u8>> {
        let first = self.rings.rx_cons;
        let answers = (first..).zip(self.rings.rx_answers());
        answers
            .map(|(index, answer)| {
                let mut bytes = vec![0; answer.status.max(0) as usize];
                let (memory, _) = page(&self.into, (index % SLOTS) as usize);
                memory.read(answer.offset.into(), &mut bytes).unwrap();
                bytes
            })
            .collect()
    }

    /// Posts all pages again that it was given frames in.
    pub fn receives(&mut self) {
        if self.withholds {
            return;
        }
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

/// Publishes requests. Returns true if the backend asked for a signal.
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
