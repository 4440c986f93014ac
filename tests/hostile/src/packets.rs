//! Frames and slots: right ones, and some that are nearly right.

use crate::enemy::Enemy;
use crate::rings::{Rings, SLOTS};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use grantway_hypervisor::GrantRef;
use grantway_netif::extra::Extra;
use grantway_netif::tx::{TxFlags, TxRequest, TxResponse, status};
use grantway_netif::{Gso, GsoKind, Hash, XenbusState};
use grantway_ring::{Index, RingMemory};
use grantway_testkit::Numbers;

/// Bytes of an ordinary frame of the guest's.
const FRAME: usize = 60;
/// Type of its frames: one for local experiments.
const ETHERTYPE: u16 = 0x88b6;
/// Source of its frames.
const SOURCE: [u8; 6] = [2, 0x47, 0x57, 0, 0, 0x66];

/// Returns a frame of the guest's.
pub fn frame(to: [u8; 6]) -> Vec<u8> {
    let mut bytes = [&to[..], &SOURCE, &ETHERTYPE.to_be_bytes()].concat();
    bytes.extend((bytes.len()..FRAME).map(|n| n as u8));
    bytes
}

/// Returns a transmit slot.
pub fn slot(gref: GrantRef, offset: u16, size: u16, id: u16, flags: TxFlags) -> [u32; 3] {
    TxRequest { gref: gref.0, offset, flags, id, size }.to_words()
}

/// A frame that keeps the rules is sent.
pub fn is_served(enemy: &mut Enemy, rings: &mut Rings) -> Result<(), String> {
    let (page, gref) = rings.page(0);
    page.write(0, &frame(enemy.victim)).map_err(|e| e.to_string())?;
    rings.put_tx(&[slot(gref, 0, FRAME as u16, 77, TxFlags::empty())]);
    enemy.kick(rings.tx_event).map_err(|e| e.to_string())?;
    let state = enemy.wait(&"the answer to a frame", |enemy| {
        let state = enemy.backend_state()?;
        let over =
            rings.tx.load(Index::RspProd) == rings.tx_prod || state != XenbusState::Connected;
        Ok(over.then_some(state))
    });
    let state = state.map_err(|e| e.to_string())?;
    if state != XenbusState::Connected {
        return Err(format!("the backend is {state} for a frontend that keeps the rules"));
    }
    let answer = TxResponse::from_words(rings.tx.read_slot(0));
    match answer {
        TxResponse { id: 77, status: status::OKAY } => Ok(()),
        _ => Err(format!("the answer to a frame that keeps the rules is {answer:?}")),
    }
}

/// Grants that a request may name: whatever is behind them.
pub fn gref(numbers: &mut Numbers, rings: &Rings) -> GrantRef {
    match numbers.below(100) {
        0..4 => GrantRef(numbers.word()),
        // The toolstack's: console and store.
        4 => GrantRef(numbers.below(GrantRef::FIRST_FREE as usize) as u32),
        5 => numbers.one_of(rings.own()),
        6..30 => numbers.one_of(&rings.readonly.grefs),
        _ => numbers.one_of(&rings.pool.grefs),
    }
}

fn extra(numbers: &mut Numbers, more: bool) -> [u32; 3] {
    let kind = if numbers.once_in(2) { GsoKind::Tcpv4 } else { GsoKind::Tcpv6 };
    let gso = Gso { kind, size: numbers.half() };
    match (numbers.below(6), gso.try_into()) {
        (0, _) => Extra::McastAdd([numbers.byte(); 6]).to_tx_words(more),
        (1, _) => Extra::Hash(Hash { kind: 1, algorithm: 1, value: 3 }).to_tx_words(more),
        (2, _) => Extra::Xdp { headroom: numbers.half() }.to_tx_words(more),
        (_, Ok(gso)) => Extra::Gso(gso, 0).to_tx_words(more),
        (_, Err(_)) => [numbers.word(), numbers.word(), numbers.word()],
    }
}

/// Returns the slots of a packet that is right, but often for one word: pieces that leave their
/// page, sum up to more than the packet, or are empty; extras without an end; too many slots.
pub fn nearly_right(numbers: &mut Numbers, rings: &Rings) -> Vec<[u32; 3]> {
    let fragments = if numbers.once_in(3) { numbers.below(24) } else { 0 };
    let mut extras = if numbers.once_in(6) { 1 + numbers.below(3) } else { 0 };
    let sizes: Vec<u16> = (0..fragments).map(|_| numbers.half() % 2000).collect();
    let total = sizes.iter().sum::<u16>().wrapping_add(numbers.half() % 3000);
    let mut flags = TxFlags::from_bits_retain(numbers.half() & 3);
    flags.set(TxFlags::MORE_DATA, fragments > 0);
    flags.set(TxFlags::EXTRA_INFO, extras > 0);
    let first = slot(gref(numbers, rings), numbers.half() % 1000, total, numbers.half(), flags);
    let mut slots = vec![first];
    while extras > 0 {
        extras -= 1;
        slots.push(extra(numbers, extras > 0));
    }
    for (n, &size) in sizes.iter().enumerate() {
        let more = if n + 1 < fragments { TxFlags::MORE_DATA } else { TxFlags::empty() };
        slots.push(slot(gref(numbers, rings), numbers.half() % 2500, size, numbers.half(), more));
    }
    if numbers.once_in(20) {
        let at = numbers.below(slots.len());
        slots[at][numbers.below(3)] ^= 1 << numbers.below(32);
    }
    slots.truncate(SLOTS as usize);
    slots
}
