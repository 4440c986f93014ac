//! Signals: too many, too few, and at the wrong moment.

use crate::support::hostile::frame;
use crate::support::port::Call;
use crate::support::rings::{Rings, SLOTS, slot};
use crate::support::world::{HONEST, World};
use crate::support::{Ends, PROMPT, eventually};
use grantway_backend::WaitMode;
use grantway_hypervisor::{Access, DomId, EventChannels, Port};
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Offload, XenbusState};
use grantway_ring::{Index, RingMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Signals until `stop` is set, a thousand times at least.
fn storm(events: &mut dyn EventChannels, ports: [Port; 2], stop: &AtomicBool) {
    let mut rounds = 0;
    while !stop.load(SeqCst) || rounds < 500 {
        for port in ports {
            events.notify(port).unwrap();
        }
        rounds += 1;
    }
}

#[test]
fn xsa_332_391_an_event_storm_is_bounded_work_and_not_punished() {
    for mode in [WaitMode::Interrupt, WaitMode::Adaptive(Duration::from_micros(50))] {
        let mut world = World::with(DomId(0), mode, false);
        let mut guest = world.guest();
        let mut rings = guest.connect();
        let ports = [rings.tx_event, rings.rx_event];
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = Ends(&stop);
            let events = guest.events.as_mut();
            let storm = scope.spawn(|| storm(events, ports, &stop));
            world.honest().carries(200);
            drop(ends);
            storm.join().unwrap();
        });
        assert_eq!(guest.backend_state(), Some(XenbusState::Connected));
        guest.is_served(&mut rings);
        world.stands();
    }
}

#[test]
fn xsa_391_a_guest_that_sends_without_end_starves_nobody() {
    // With each of its frames that goes out its ring is full again: whoever serves
    // it until it is empty serves nobody else.
    let mut world = World::new();
    let mut guest = world.guest();
    let rings = guest.connect();
    let (_memory, gref) = guest.page(&frame(60));
    let words = slot(gref, 0, 60, 4, TxFlags::empty());
    let ring = rings.tx.clone();
    let end = Instant::now() + 2 * PROMPT;
    let mut prod = 0u32;
    let mut fill = move || {
        let full = ring.load(Index::RspProd).wrapping_add(SLOTS);
        while prod != full && Instant::now() < end {
            ring.write_slot(prod, words);
            prod = prod.wrapping_add(1);
        }
        std::sync::atomic::fence(SeqCst);
        ring.store(Index::ReqProd, prod);
    };
    fill();
    world.behind(guest.vif).hook(move |call| {
        if call == Call::Send {
            fill();
        }
    });
    guest.kick(rings.tx_event);
    world.honest().carries(200);
    eventually("more frames than two rings hold", || {
        (world.behind(guest.vif).look().sent > 2 * u64::from(SLOTS)).then_some(())
    });
    world.behind(guest.vif).unhook();
    assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "it was punished");
    world.stands();
}

#[test]
fn xsa_391_signals_to_a_vif_that_was_removed() {
    let mut world = World::new();
    let mut guest = world.guest();
    let rings = guest.connect();
    rings.tx.store(Index::ReqProd, 1000);
    guest.kick(rings.tx_event);
    guest.await_disabled();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        let events = guest.events.as_mut();
        let storm = scope.spawn(|| storm(events, [rings.tx_event, rings.rx_event], &stop));
        world.honest().carries(50);
        drop(ends);
        storm.join().unwrap();
    });
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn a_guest_that_does_not_signal_costs_itself_only() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let (_memory, gref) = guest.page(&frame(60));
    for _ in 0..10 {
        rings.put_tx(&[slot(gref, 0, 60, 4, TxFlags::empty()); 20]);
    }
    world.honest().carries(20);
    guest.kick(rings.tx_event);
    let answers = guest.tx_answers(&mut rings, 200);
    assert!(answers.iter().all(|answer| answer.status == status::OKAY));
    world.stands();
}

#[test]
fn a_single_signal_is_served_and_a_signal_without_work_changes_nothing() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let (_memory, gref) = guest.page(&frame(60));
    let words = slot(gref, 0, 60, 4, TxFlags::empty());
    for round in 0..100 {
        // The backend sleeps: it asks for a signal at the next request.
        let asks = |rings: &Rings| rings.tx.load(Index::ReqEvent) == rings.tx_prod.wrapping_add(1);
        eventually("the backend sleeps", || asks(&rings).then_some(()));
        if round % 2 == 0 {
            // A signal without work.
            guest.kick(rings.tx_event);
            world.honest().carries(2);
            assert!(rings.tx_answers().is_empty());
            eventually("the backend sleeps again", || asks(&rings).then_some(()));
        }
        // Work without a signal, which the backend may find while it serves others.
        rings.put_tx(&[words; 3]);
        world.honest().carries(2);
        let early = rings.tx_answers().len();
        // Then a signal alone: nothing comes with it, and no other follows.
        guest.kick(rings.tx_event);
        assert_eq!(early + guest.tx_answers(&mut rings, 3 - early).len(), 3, "round {round}");
    }
    assert_eq!(world.behind(guest.vif).look().sent, 300);
    world.stands();
}

#[test]
fn seed_003_no_wakeup_is_lost_while_both_sides_sleep() {
    // One packet at a time; both ends sleep until they are signalled, and
    // signal only where they were asked to.
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let (_memory, gref) = guest.page(&frame(60));
    let words = slot(gref, 0, 60, 4, TxFlags::empty());
    let mut seen = guest.events.count(rings.tx_event);
    for round in 0..10_000 {
        rings.tx.store(Index::RspEvent, rings.tx_cons.wrapping_add(1));
        let old = rings.tx_prod;
        rings.put_tx(&[words]);
        std::sync::atomic::fence(SeqCst);
        let event = rings.tx.load(Index::ReqEvent);
        if rings.tx_prod.wrapping_sub(event) < rings.tx_prod.wrapping_sub(old) {
            guest.kick(rings.tx_event);
        }
        while rings.tx_answers().is_empty() {
            let now = guest.events.wait(rings.tx_event, seen, Some(PROMPT)).unwrap();
            assert!(now > seen, "round {round}: nobody signals any more");
            seen = now;
        }
    }
    world.stands();
}

#[test]
fn one_event_channel_for_both_directions() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.rings();
    guest.start_anew();
    guest.publish(&rings);
    guest.unkey("event-channel-tx");
    guest.unkey("event-channel-rx");
    guest.key("event-channel", &rings.tx_event.to_string());
    guest.state(XenbusState::Connected);
    guest.await_backend(XenbusState::Connected);
    guest.is_served(&mut rings);
    let buffers = guest.pages(1, Access::ReadWrite);
    rings.rx_event = rings.tx_event;
    guest.post(&mut rings, &buffers.grefs);
    world.behind(guest.vif).give(frame(60), Offload::default());
    assert_eq!(guest.rx_answers(&mut rings, 1)[0].status, 60);
    guest.start_anew();
    assert_eq!(world.table(guest.vif.domain).ports_bound, 0);
    world.stands();
}

#[test]
fn spurious_and_swallowed_signals_around_a_restart_of_the_guest() {
    let mut world = World::new();
    let mut guest = world.guest();
    for _ in 0..20 {
        let mut rings = guest.connect();
        guest.kick(rings.rx_event);
        guest.kick(rings.tx_event);
        guest.is_served(&mut rings);
        // Closed by the guest while the backend has them bound.
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
        rings.tx.store(Index::ReqProd, rings.tx_prod);
        guest.start_anew();
    }
    assert!(world.control().report_of(HONEST).unwrap().connected);
    world.stands();
}

#[test]
fn answers_of_frames_in_a_row_reach_a_guest_that_polls_and_wake_one_that_sleeps() {
    // One frame for each turn: the answers of the last ones would wait for more.
    const FRAMES: u32 = 75;
    for mode in [WaitMode::Interrupt, WaitMode::Adaptive(Duration::from_micros(50)), WaitMode::Busy]
    {
        // No other vif is there: the queue has its worker for itself.
        let mut world = World::of_workers(1, mode, false);
        let mut guest = world.guest();
        let mut rings = guest.connect();
        let behind = world.behind(guest.vif);
        behind.look().short = true;
        let buffers = guest.pages(SLOTS as usize, Access::ReadWrite);
        guest.post(&mut rings, &buffers.grefs);
        // The guest asks for a signal behind the last answer, and then at it. It polls before.
        for asked in [FRAMES + 1, FRAMES] {
            rings.rx.store(Index::RspEvent, rings.rx_cons.wrapping_add(asked));
            std::sync::atomic::fence(SeqCst);
            guest.events.poll(&mut |_| {}).unwrap();
            let most_unshown = Arc::new(AtomicU32::new(0));
            let (most, rx, before) = (most_unshown.clone(), rings.rx.clone(), rings.rx_cons);
            let (port, mut given, mut calls) = (behind.clone(), 0, 0u32);
            behind.hook(move |call| {
                if call == Call::Recv {
                    calls += 1;
                    if given < FRAMES && calls % 2 == 1 {
                        let shown = rx.load(Index::RspProd).wrapping_sub(before);
                        most.fetch_max(given - shown, SeqCst);
                        given += 1;
                        port.look().waiting.push_back((frame(60), Offload::default()));
                    }
                }
            });
            behind.credit(0, 0);
            let answers = guest.rx_answers(&mut rings, FRAMES as usize);
            assert!(answers.iter().all(|answer| answer.status == 60), "{mode:?}");
            if asked == FRAMES {
                eventually("the guest is signalled", || {
                    let mut signalled = false;
                    guest.events.poll(&mut |port| signalled |= port == rings.rx_event).unwrap();
                    signalled.then_some(())
                });
            }
            behind.unhook();
            let most = most_unshown.load(SeqCst);
            // On a slow machine the worker looks elsewhere after each turn, and none waits.
            assert!(most < 8, "{mode:?}: {most} answers waited");
            let page = |n| buffers.grefs[(rings.rx_prod.wrapping_add(n) % SLOTS) as usize];
            let grefs: Vec<_> = (0..FRAMES).map(page).collect();
            guest.post(&mut rings, &grefs);
        }
    }
}

#[test]
fn answers_do_not_wait_for_the_guests_own_packets() {
    let mut world = World::of_workers(1, WaitMode::Busy, false);
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let behind = world.behind(guest.vif);
    behind.look().short = true;
    let buffers = guest.pages(SLOTS as usize, Access::ReadWrite);
    guest.post(&mut rings, &buffers.grefs);
    let (_memory, gref) = guest.page(&frame(60));
    let words = slot(gref, 0, 60, 4, TxFlags::empty());
    rings.rx.store(Index::RspEvent, rings.rx_cons.wrapping_sub(1));
    let unshown = Arc::new(AtomicU32::new(0));
    let (most, tx, rx, before) =
        (unshown.clone(), rings.tx.clone(), rings.rx.clone(), rings.rx_cons);
    let (port, mut given, mut calls, mut prod) = (behind.clone(), 0, 0u32, rings.tx_prod);
    behind.hook(move |call| match call {
        Call::Recv => {
            calls += 1;
            if given < 150 && calls % 2 == 1 {
                given += 1;
                port.look().waiting.push_back((frame(60), Offload::default()));
                // A packet of the guest comes while answers wait.
                if given > 66 && given % 3 == 0 {
                    tx.write_slot(prod, words);
                    prod = prod.wrapping_add(1);
                    std::sync::atomic::fence(SeqCst);
                    tx.store(Index::ReqProd, prod);
                }
            }
        }
        Call::Send => {
            let shown = rx.load(Index::RspProd).wrapping_sub(before);
            most.fetch_max(given - shown, SeqCst);
        }
        _ => {}
    });
    behind.credit(0, 0);
    guest.rx_answers(&mut rings, 150);
    behind.unhook();
    assert_eq!(unshown.load(SeqCst), 0, "answers that waited while packets were sent");
    assert!(behind.look().sent > 10);
}
