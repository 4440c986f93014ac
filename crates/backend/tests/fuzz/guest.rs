//! Random acts of the hostile guests, one after the other. Most of what they write is nearly
//! valid: the first check of a wholly invalid value ends the connection.

use super::support::hostile::frame;
use super::support::port::UPLINK;
use super::support::rings::{Rings, SLOTS, slot};
use super::support::world::World;
use super::{Neighbours, Pages, Side, pair, scribble};
use grantway_backend::VifId;
use grantway_hypervisor::{GrantRef, StoreErrno};
use grantway_netif::extra::Extra;
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::TxFlags;
use grantway_netif::{Checksum, Gso, GsoKind, Hash, Offload};
use grantway_ring::{Index, RingMemory};
use grantway_testkit::Numbers;
use std::time::Duration;

/// Slots that go out before those on the bridge must have caught up: what they
/// have room for, with what may be on the ring by itself, is five times as many.
const BUDGET: usize = 60;

/// Slots that may be written: none where the answers make no sense just now.
pub fn room(requests: u32, answers: u32) -> usize {
    SLOTS.saturating_sub(requests.wrapping_sub(answers)) as usize
}

/// Returns a grant that the guest may name. Rarely it is one of the rings, since little is
/// valid once a frame was received into a ring.
fn gref(numbers: &mut Numbers, pages: &Pages, rings: &Rings) -> GrantRef {
    match numbers.below(4000) {
        0..100 => GrantRef(numbers.word()),
        100 => GrantRef(numbers.below(64) as u32),
        101 => rings.tx_ring.grefs[0],
        102 => rings.rx_ring.grefs[0],
        _ => pages.pool.grefs[numbers.below(pages.pool.grefs.len())],
    }
}

fn extra(numbers: &mut Numbers, more: bool) -> [u32; 3] {
    let kind = if numbers.once_in(2) { GsoKind::Tcpv4 } else { GsoKind::Tcpv6 };
    match numbers.below(8) {
        0 => Extra::McastAdd([numbers.word() as u8; 6]).to_tx_words(more),
        1 => Extra::Hash(Hash { kind: 1, algorithm: 1, value: 3 }).to_tx_words(more),
        2 => Extra::Xdp { headroom: numbers.half() }.to_tx_words(more),
        _ => Extra::Gso(Gso { kind, size: numbers.half() | 1 }.try_into().unwrap(), 0)
            .to_tx_words(more),
    }
}

/// Returns true if the bytes that this slot names begin at the start of a page, as received
/// frames do. The hostile guests send no such slot: a guest that received another guest's
/// broadcast would send it on, whole or shortened.
pub fn begins_page(slot: [u32; 3]) -> bool {
    slot[1] & 0xffff == 0
}

/// Returns the slots of a packet that is valid, except that one word is wrong once in a while.
/// No slot begins at the start of a page, where received frames do.
fn packet(numbers: &mut Numbers, pages: &Pages, rings: &Rings) -> Vec<[u32; 3]> {
    let fragments = if numbers.once_in(3) { numbers.below(20) } else { 0 };
    let mut extras = if numbers.once_in(8) { 1 + numbers.below(3) } else { 0 };
    let later: Vec<u16> = (0..fragments).map(|_| numbers.half() % 2000).collect();
    let total = later.iter().sum::<u16>() + numbers.half() % 3000;
    let mut flags = TxFlags::from_bits_retain(numbers.half() & 3);
    flags.set(TxFlags::MORE_DATA, fragments > 0);
    flags.set(TxFlags::EXTRA_INFO, extras > 0);
    let offset = 1 + numbers.half() % 1000;
    let mut slots = vec![slot(gref(numbers, pages, rings), offset, total, numbers.half(), flags)];
    while extras > 0 {
        extras -= 1;
        slots.push(extra(numbers, extras > 0));
    }
    for (n, &size) in later.iter().enumerate() {
        let more = if n + 1 < fragments { TxFlags::MORE_DATA } else { TxFlags::empty() };
        let offset = 1 + numbers.half() % 2000;
        slots.push(slot(gref(numbers, pages, rings), offset, size, numbers.half(), more));
    }
    if numbers.once_in(300) {
        let at = numbers.below(slots.len());
        let good = slots[at];
        slots[at][numbers.below(3)] ^= 1 << numbers.below(32);
        if begins_page(slots[at]) && !begins_page(good) {
            slots[at] = good;
        }
    }
    slots
}

/// Returns slots of random words.
fn junk(numbers: &mut Numbers) -> Vec<[u32; 3]> {
    let word = |numbers: &mut Numbers| numbers.word() & numbers.word();
    let slots = 0..1 + numbers.below(20);
    let slots = slots.map(|_| [word(numbers), word(numbers), word(numbers)]);
    slots.filter(|slot| !begins_page(*slot)).collect()
}

pub struct Acts<'a> {
    pub numbers: Numbers,
    pub neighbours: &'a mut Neighbours,
    /// Slots sent since the last mark.
    pub slots: usize,
    pub kills: bool,
}

impl Acts<'_> {
    /// Lets one of the guests do something. Returns true if the backend was killed.
    pub fn act(&mut self, world: &mut World, sides: &mut [Side<'_>]) -> bool {
        let one = self.numbers.below(sides.len());
        let side = &mut sides[one];
        let at = self.numbers.below(side.rings.len());
        let mut killed = false;
        match self.numbers.below(1000) {
            0..400 => self.transmit(side, at),
            400..460 => self.control(side),
            460..520 => self.collude(sides, one),
            520..700 => self.post(side, at),
            700..850 => self.give(world, side.guest.vif),
            850..853 => self.index(side, at),
            853..857 => {
                let (front, grefs) = (side.guest.front(), &side.pages.pool.grefs);
                scribble::store(side.guest.store.as_mut(), &front, &mut self.numbers, grefs);
            }
            857..860 => {
                let state = self.numbers.one_of(&["1", "4", "5", "6"]);
                let path = format!("{}/state", side.guest.front());
                let _ = side.guest.store.write(&path, state.as_bytes());
            }
            860..862 if self.kills => {
                self.kill(world, side.guest.vif);
                killed = true;
            }
            860..970 => {
                side.guest.kick(side.rings[at].tx_event);
                side.guest.kick(side.rings[at].rx_event);
            }
            970..971 => self.toolstack(world, side.guest.vif),
            _ => std::thread::sleep(Duration::from_micros(200)),
        }
        if self.slots > BUDGET {
            self.slots = 0;
            self.neighbours.catch_up(world);
        }
        killed
    }

    /// Kills the backend between two turns. Its successor finds a store that fails for a while
    /// when it asks about this vif.
    fn kill(&mut self, world: &mut World, vif: VifId) {
        let key = self.numbers.one_of(&["frontend-id", "frontend", "state"]);
        let errno = self.numbers.one_of(&[StoreErrno::Enomem, StoreErrno::Eio]);
        let node = format!("{}/{key}", world.toolstack.back(vif));
        let times = self.numbers.below(3);
        self.neighbours.rest_while(world, |world| {
            world.stop();
            // A backend that cannot watch its vifs does not start.
            world.setup.faults.end_row();
            world.setup.faults.plan(node, errno, times);
            world.start();
            super::load(world);
        });
    }

    fn transmit(&mut self, side: &mut Side<'_>, at: usize) {
        let Side { guest, rings, pages, .. } = side;
        let (rings, numbers) = (&mut rings[at], &mut self.numbers);
        let room = room(rings.tx_prod, rings.tx.load(Index::RspProd));
        let mut slots = Vec::new();
        for _ in 0..numbers.below(64) {
            let next = match numbers.below(1000) {
                0 => junk(numbers),
                _ => packet(numbers, pages, rings),
            };
            if slots.len() + next.len() > room {
                break;
            }
            slots.extend(next);
        }
        let whole = pages.slots.lock().unwrap();
        rings.put_tx(&slots);
        drop(whole);
        self.slots += slots.len() + self.neighbours.witness_sends(numbers);
        guest.kick(rings.tx_event);
    }

    fn post(&mut self, side: &mut Side<'_>, at: usize) {
        let Side { guest, rings, pages, .. } = side;
        let (rings, numbers) = (&mut rings[at], &mut self.numbers);
        let room = room(rings.rx_prod, rings.rx.load(Index::RspProd));
        let count = numbers.below(64).min(room);
        let request = |numbers: &mut Numbers| match numbers.below(1000) {
            0 => RxRequest::from_words([numbers.word(), numbers.word()]),
            _ => RxRequest { id: numbers.half(), gref: gref(numbers, pages, rings).0 },
        };
        let requests: Vec<_> = (0..count).map(|_| request(numbers)).collect();
        rings.put_rx(&requests);
        guest.kick(rings.rx_event);
    }

    /// Frames for it to receive.
    fn give(&mut self, world: &World, vif: VifId) {
        let numbers = &mut self.numbers;
        let behind = world.behind(if self.neighbours.bridged() { UPLINK } else { vif });
        for _ in 0..numbers.below(20) {
            let len = if numbers.once_in(20) { 65_535 } else { 14 + numbers.below(6000) };
            let gso = Gso { kind: GsoKind::Tcpv4, size: numbers.half() | 1 };
            let gso = numbers.once_in(6).then_some(gso);
            // Whoever is on the bridge gets them, too.
            self.slots += if self.neighbours.bridged() { len.div_ceil(4096) } else { 0 };
            if behind.look().waiting.len() < 200 {
                behind.give(frame(len), Offload { checksum: Checksum::Unknown, gso });
            }
        }
    }

    fn index(&mut self, side: &mut Side<'_>, at: usize) {
        let Side { guest, rings, .. } = side;
        let (rings, numbers) = (&mut rings[at], &mut self.numbers);
        let all = [Index::ReqProd, Index::ReqEvent, Index::RspProd, Index::RspEvent];
        let index = numbers.one_of(&all);
        // Often one that may be, with slots before it that nobody wrote.
        let (tx, rx) = (rings.tx.load(Index::RspProd), rings.rx.load(Index::RspProd));
        let ahead = numbers.below(257) as u32;
        let (tx, rx) = match numbers.below(8) {
            0 => (numbers.word(), numbers.word()),
            1 => (tx.wrapping_add(300), rx.wrapping_add(300)),
            _ => (tx.wrapping_add(ahead), rx.wrapping_add(ahead)),
        };
        let (prod, value) = match numbers.once_in(2) {
            true => {
                rings.tx.store(index, tx);
                (&mut rings.tx_prod, tx)
            }
            false => {
                rings.rx.store(index, rx);
                (&mut rings.rx_prod, rx)
            }
        };
        if index == Index::ReqProd {
            *prod = value;
        }
        guest.kick(rings.tx_event);
    }

    /// The vif goes, more or less in order, and comes again.
    fn toolstack(&mut self, world: &mut World, vif: VifId) {
        match self.numbers.below(3) {
            0 => world.toolstack.ask_to_close(vif),
            1 => world.toolstack.remove_backend(vif),
            _ => world.toolstack.remove_frontend(vif),
        }
        std::thread::sleep(Duration::from_micros(self.numbers.below(1000) as u64));
        world.detaches(vif);
        world.attach(vif, &[]);
    }
}

/// A frame to all on the bridge that says how far they have got. Nobody can guess its number:
/// an enemy that sends on a changed one has said nothing.
pub fn mark(number: u64) -> Vec<u8> {
    let mut bytes = [&[0xff; 6][..], &[2, 0x47, 0x57, 1, 0, 9], &pair::MARK_TYPE].concat();
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, 0);
    bytes
}
