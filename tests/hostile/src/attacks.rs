//! The attacks, each named by what it abuses.

use crate::control;
use crate::enemy::{Enemy, FRONT};
use crate::packets::{frame, gref, nearly_right, slot};
use crate::rings::{Rings, SLOTS};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use grantway_bare::FrontendPlatform;
use grantway_hypervisor::{Access, Error, GrantRef};
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::TxFlags;
use grantway_netif::{XenbusState, keys};
use grantway_ring::{Index, RingMemory};
use grantway_testkit::Numbers;

/// An attack on a connection.
pub struct Attack {
    pub name: &'static str,
    pub run: fn(&mut Stage<'_>) -> Result<(), Error>,
    /// True if the attack breaks a rule for which the backend has to end the connection.
    pub ends: bool,
}

/// Connection on which an attack takes place. It was made by the rules.
pub struct Stage<'a> {
    pub enemy: &'a mut Enemy,
    pub rings: &'a mut Rings,
    pub numbers: &'a mut Numbers,
}

/// Every attack.
pub const ALL: [Attack; 13] = [
    Attack { name: "transmit-producer", run: transmit_producer, ends: true },
    Attack { name: "receive-producer", run: receive_producer, ends: true },
    Attack { name: "control-producer", run: control_producer, ends: true },
    Attack { name: "indices", run: indices, ends: false },
    Attack { name: "packets", run: packets, ends: false },
    Attack { name: "rewriting", run: rewriting, ends: false },
    Attack { name: "revoked", run: revoked, ends: false },
    Attack { name: "storm", run: storm, ends: false },
    Attack { name: "keys", run: rewritten_keys, ends: false },
    Attack { name: "states", run: states, ends: false },
    Attack { name: "flood", run: flood, ends: false },
    Attack { name: "staging", run: control::staging, ends: false },
    Attack { name: "hashing", run: control::hashing, ends: false },
];

/// Shows more requests than a ring has room for (XSA-39).
fn absurd(prod: u32, numbers: &mut Numbers) -> u32 {
    prod.wrapping_add(SLOTS + 1 + numbers.below(1 << 31) as u32)
}

fn transmit_producer(stage: &mut Stage<'_>) -> Result<(), Error> {
    stage.rings.tx.store(Index::ReqProd, absurd(stage.rings.tx_prod, stage.numbers));
    stage.enemy.kick(stage.rings.tx_event)
}

fn receive_producer(stage: &mut Stage<'_>) -> Result<(), Error> {
    stage.rings.rx.store(Index::ReqProd, absurd(stage.rings.rx_prod, stage.numbers));
    stage.enemy.kick(stage.rings.rx_event)
}

fn control_producer(stage: &mut Stage<'_>) -> Result<(), Error> {
    stage.rings.ctrl.store(Index::ReqProd, absurd(0, stage.numbers));
    stage.enemy.kick(stage.rings.ctrl_event)
}

/// Writes what is the backend's, and moves the events, while it sends.
fn indices(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, numbers } = stage;
    for _ in 0..500 {
        let index = numbers.one_of(&[Index::ReqEvent, Index::RspEvent, Index::RspProd]);
        let value = if numbers.once_in(2) { numbers.word() } else { rings.tx_prod };
        rings.tx.store(index, value);
        rings.rx.store(index, value);
        if rings.tx_room() > 0 {
            let at = numbers.below(8);
            send(enemy, rings, at)?;
        }
    }
    Ok(())
}

/// Sends packets that are nearly right, and posts pages that are nearly right.
fn packets(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, numbers } = stage;
    for _ in 0..400 {
        let mut slots = Vec::new();
        for _ in 0..numbers.below(32) {
            slots.extend(nearly_right(numbers, rings));
        }
        slots.truncate(rings.tx_room());
        rings.put_tx(&slots);
        enemy.kick(rings.tx_event)?;
        post(enemy, rings, numbers)?;
        if numbers.once_in(20) && enemy.backend_state()? != XenbusState::Connected {
            break;
        }
    }
    Ok(())
}

/// Posts pages, whatever is behind them.
fn post(enemy: &mut Enemy, rings: &mut Rings, numbers: &mut Numbers) -> Result<(), Error> {
    let count = numbers.below(64).min(rings.rx_room());
    let request = |_| RxRequest { id: numbers.half(), gref: gref(numbers, rings).0 };
    let requests: Vec<_> = (0..count).map(request).collect();
    rings.put_rx(&requests);
    enemy.kick(rings.rx_event)
}

/// Sends a frame from a page of the pool, whatever lies there.
fn send(enemy: &mut Enemy, rings: &mut Rings, page: usize) -> Result<(), Error> {
    let (_, gref) = rings.page(page);
    rings.put_tx(&[slot(gref, 0, 60, page as u16, TxFlags::empty())]);
    enemy.kick(rings.tx_event)
}

/// Writes slots and headers again and again, while they are being read (XSA-155).
fn rewriting(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, numbers } = stage;
    let bytes = frame(enemy.victim);
    for _ in 0..64 {
        let count = rings.tx_room().min(64);
        let first = rings.tx_prod;
        let mut slots = Vec::new();
        for at in 0..count {
            let (page, gref) = rings.page(at);
            // A page holds it: 60 bytes at 0.
            let _ = page.write(0, &bytes);
            slots.push(slot(gref, 0, 60, at as u16, TxFlags::empty()));
        }
        rings.put_tx(&slots);
        enemy.kick(rings.tx_event)?;
        for _ in 0..2000 {
            let at = first.wrapping_add(numbers.below(count.max(1)) as u32);
            let mut words = rings.tx.read_slot(at);
            words[numbers.below(3)] ^= 1 << numbers.below(32);
            rings.tx.write_slot(at, words);
            let (page, _) = rings.page(numbers.below(64));
            let _ = page.write(numbers.below(60), &[numbers.byte()]);
        }
    }
    Ok(())
}

/// Ends grants of pages that requests under way name, and grants others under their references.
fn revoked(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, numbers } = stage;
    for _ in 0..40 {
        let granted = enemy.platform.grant(enemy.backend, 16, Access::ReadWrite)?;
        let mut slots = Vec::new();
        for &gref in granted.grefs.iter().take(rings.tx_room()) {
            slots.push(slot(gref, 0, 1514, numbers.half(), TxFlags::empty()));
        }
        let posted = granted.grefs.iter().take(rings.rx_room());
        let posted: Vec<_> =
            posted.map(|gref| RxRequest { id: numbers.half(), gref: gref.0 }).collect();
        rings.put_rx(&posted);
        rings.put_tx(&slots);
        enemy.kick(rings.rx_event)?;
        enemy.kick(rings.tx_event)?;
        enemy.platform.release(granted);
    }
    Ok(())
}

/// Signals for nothing (XSA-332, 391).
fn storm(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, .. } = stage;
    for _ in 0..20_000 {
        enemy.kick(rings.tx_event)?;
        enemy.kick(rings.rx_event)?;
        enemy.kick(rings.ctrl_event)?;
    }
    Ok(())
}

/// Writes its own keys, which the backend watches, over and over (XSA-349).
fn rewritten_keys(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, numbers } = stage;
    let names = [
        keys::TX_RING_REF,
        keys::RX_RING_REF,
        keys::EVENT_CHANNEL_TX,
        keys::EVENT_CHANNEL,
        keys::MULTI_QUEUE_NUM_QUEUES,
        "queue-1/tx-ring-ref",
        keys::CTRL_RING_REF,
        keys::REQUEST_RX_COPY,
        keys::FEATURE_SG,
        keys::REQUEST_MULTICAST_CONTROL,
        keys::STATE,
        "nobody-knows-this",
    ];
    for _ in 0..600 {
        let path = format!("{FRONT}/{}", numbers.one_of(&names));
        let value = match numbers.below(5) {
            0 => format!("{}", numbers.word()).into_bytes(),
            1 => format!("{}", numbers.below(10)).into_bytes(),
            2 => format!("{}", numbers.one_of(&rings.pool.grefs)).into_bytes(),
            3 => vec![b'4'; numbers.below(2000)],
            _ => vec![numbers.byte(); 1 + numbers.below(8)],
        };
        enemy.store.write(&path, &value)?;
    }
    for name in names.iter().filter(|name| **name != keys::STATE) {
        enemy.store.remove(&format!("{FRONT}/{name}"))?;
    }
    Ok(())
}

/// Goes through states in any order, without waiting for the backend.
fn states(stage: &mut Stage<'_>) -> Result<(), Error> {
    for _ in 0..300 {
        let state = stage.numbers.one_of(&XenbusState::ALL);
        stage.enemy.state(state)?;
        if stage.numbers.once_in(10) {
            stage.enemy.rest();
        }
    }
    Ok(())
}

/// Sends as many packets as fit, by the rules, and takes no answer.
fn flood(stage: &mut Stage<'_>) -> Result<(), Error> {
    let Stage { enemy, rings, .. } = stage;
    let bytes = frame(enemy.victim);
    let mut left = 20_000_usize;
    while left > 0 {
        let goes_on = enemy.wait(&"room for frames", |enemy| match rings.tx_room() {
            0 if enemy.backend_state()? == XenbusState::Connected => Ok(None),
            room => Ok(Some(room > 0)),
        })?;
        if !goes_on {
            break;
        }
        let room = rings.tx_room().min(left);
        let mut slots = Vec::new();
        for at in 0..room {
            let (page, gref) = rings.page(at);
            let _ = page.write(0, &bytes);
            slots.push(slot(gref, 0, 60, at as u16, TxFlags::empty()));
        }
        left -= room;
        rings.put_tx(&slots);
        enemy.kick(rings.tx_event)?;
    }
    Ok(())
}

/// Leaves requests of both rings under way, and a list of pages that are staged.
pub fn leave_busy(
    enemy: &mut Enemy,
    rings: &mut Rings,
    numbers: &mut Numbers,
) -> Result<(), Error> {
    control::stage_all(enemy, rings)?;
    let grefs: Vec<GrantRef> = rings.pool.grefs.clone();
    let requests: Vec<_> =
        grefs.iter().map(|gref| RxRequest { id: numbers.half(), gref: gref.0 }).collect();
    rings.put_rx(&requests);
    for at in 0..rings.tx_room() {
        send(enemy, rings, at)?;
    }
    Ok(())
}
