//! Vifs and guests that come and go at every moment.

use crate::support::hostile::{Hostile, frame};
use crate::support::port::Call;
use crate::support::rings::{Rings, page, slot};
use crate::support::toolstack::Toolstack;
use crate::support::world::{GUEST, World};
use crate::support::{eventually, toolstack};
use grantway_backend::{VifId, WaitMode};
use grantway_hypervisor::{Access, BackendPlatform, DomId, Platform};
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Offload, XenbusState};
use grantway_ring::{Index, RingMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Progress of a vif at the moment when it is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Attached,
    Waiting,
    HalfWritten,
    Initialised,
    Asking,
    Connected,
    InFlight,
    Closing,
    Closed,
    Refused,
}

const MOMENTS: [Moment; 10] = [
    Moment::Attached,
    Moment::Waiting,
    Moment::HalfWritten,
    Moment::Initialised,
    Moment::Asking,
    Moment::Connected,
    Moment::InFlight,
    Moment::Closing,
    Moment::Closed,
    Moment::Refused,
];

/// Brings a fresh vif that far; gives what the guest holds on to.
fn reach(world: &World, guest: &mut Hostile, moment: Moment) -> Option<Rings> {
    if moment == Moment::Attached {
        return None;
    }
    guest.await_backend(XenbusState::InitWait);
    if moment == Moment::Waiting {
        return None;
    }
    let mut rings = guest.rings();
    if moment == Moment::HalfWritten {
        guest.key("tx-ring-ref", "9");
        return Some(rings);
    }
    guest.publish(&rings);
    if moment == Moment::Refused {
        guest.key("rx-ring-ref", "nothing");
    }
    if moment == Moment::Initialised {
        guest.state(XenbusState::Initialised);
        return Some(rings);
    }
    guest.state(XenbusState::Connected);
    match moment {
        Moment::Asking => return Some(rings),
        Moment::Refused => guest.await_backend(XenbusState::Closing),
        _ => guest.await_backend(XenbusState::Connected),
    }
    match moment {
        Moment::InFlight => {
            let pool = guest.pages(256, Access::ReadWrite);
            guest.post(&mut rings, &pool.grefs);
            let slots: Vec<_> =
                pool.grefs.iter().map(|&g| slot(g, 0, 1500, 1, TxFlags::empty())).collect();
            rings.put_tx(&slots);
            guest.kick(rings.tx_event);
            for _ in 0..200 {
                world.behind(guest.vif).give(frame(1500), Offload::default());
            }
        }
        Moment::Closing => guest.state(XenbusState::Closing),
        Moment::Closed => guest.state(XenbusState::Closed),
        _ => {}
    }
    Some(rings)
}

#[test]
fn xsa_465_a_vif_is_removed_at_every_moment_of_connecting() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut first = true;
    for moment in MOMENTS {
        for way in 0..6 {
            if !std::mem::take(&mut first) {
                world.attach(GUEST, &[]);
            }
            let rings = reach(&world, &mut guest, moment);
            let tools = &mut world.toolstack;
            match way {
                0 => tools.ask_to_close(GUEST),
                1 => tools.remove_backend(GUEST),
                2 => tools.remove_frontend(GUEST),
                3 => tools.remove_both(GUEST),
                4 => {
                    tools.ask_to_close(GUEST);
                    if moment != Moment::Attached {
                        guest.state(XenbusState::Closed);
                        tools.await_closed(GUEST);
                    }
                }
                _ => {
                    // The other order: the guest's folder first.
                    tools.remove_frontend(GUEST);
                    tools.ask_to_close(GUEST);
                }
            }
            world.detaches(GUEST);
            world.holds_nothing_of(GUEST.domain);
            if let Some(rings) = rings {
                guest.events.close(rings.tx_event);
                guest.events.close(rings.rx_event);
            }
        }
    }
    world.attach(GUEST, &[]);
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn xsa_465_a_vif_is_removed_while_the_backend_acts_on_it() {
    // At each call that the backend makes to the port, both folders go.
    let mut world = World::new();
    let mut guest = world.guest();
    let mut first = true;
    // Open, then the link down; offloads and the link up; the link down.
    for call in 0..6u32 {
        for only in [None, Some("back"), Some("front")] {
            if !std::mem::take(&mut first) {
                world.attach(GUEST, &[]);
            }
            guest.await_backend(XenbusState::InitWait);
            world.detaches(GUEST);
            let mut tools = Toolstack::new(&world.tools, DomId(0));
            let seen = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&seen);
            world.behind(GUEST).hook(move |now| {
                if matches!(now, Call::Send | Call::Recv) {
                    return;
                }
                if counted.fetch_add(1, SeqCst) == call {
                    match only {
                        None => tools.remove_both(GUEST),
                        Some("back") => tools.remove_backend(GUEST),
                        Some(_) => tools.remove_frontend(GUEST),
                    }
                }
            });
            world.attach(GUEST, &[]);
            let rings = guest.rings();
            let path = toolstack::frontend_path(GUEST);
            // The guest goes on as long as its folder is there.
            for (key, value) in [
                ("tx-ring-ref", rings.tx_ring.grefs[0].to_string()),
                ("rx-ring-ref", rings.rx_ring.grefs[0].to_string()),
                ("event-channel-tx", rings.tx_event.to_string()),
                ("event-channel-rx", rings.rx_event.to_string()),
                ("request-rx-copy", "1".into()),
                ("state", "4".into()),
            ] {
                let _ = guest.store.write(&format!("{path}/{key}"), value.as_bytes());
            }
            world.settle();
            assert!(seen.load(SeqCst) > 0, "the port was never asked for");
            world.behind(GUEST).unhook();
            world.detaches(GUEST);
            world.holds_nothing_of(GUEST.domain);
            guest.events.close(rings.tx_event);
            guest.events.close(rings.rx_event);
        }
    }
    world.attach(GUEST, &[]);
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn xsa_465_a_vif_that_failed_is_removed_before_the_failure_was_told() {
    // The worker's word of the failure, which brings the port back, and the
    // toolstack's removal come to the control thread at once.
    let mut world = World::new();
    let mut guest = world.guest();
    let rings = guest.connect();
    let behind = world.behind(GUEST);
    let (tools, ring, event) = (Arc::clone(&world.tools), rings.tx.clone(), rings.tx_event);
    let mut events = std::mem::replace(&mut guest.events, guest.domain.events().unwrap());
    world.control().with(move |_| {
        ring.store(Index::ReqProd, 1000);
        events.notify(event).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        Toolstack::new(&tools, DomId(0)).remove_both(GUEST);
        events
    });
    eventually("the vif is forgotten", || world.control().report_of(GUEST).is_none().then_some(()));
    eventually("the port is given up", || {
        let inner = behind.look();
        ((inner.handles, inner.removed) == (0, true)).then_some(())
    });
    world.attach(GUEST, &[]);
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn xsa_90_374_a_vif_that_a_malformed_packet_disabled_is_removed() {
    // Netback put its first queue's thread away when a packet was malformed, slept where
    // it may not, and put the thread away again with the vif.
    let mut world = World::new();
    let mut guest = world.guest();
    let good = VifId { domain: GUEST.domain, devid: 1 };
    let mut other = world.vif_of(Arc::clone(&guest.domain), good);
    let mut served = other.connect();
    for bad in [0, 1] {
        for way in 0..5 {
            if (bad, way) != (0, 0) {
                world.attach(GUEST, &[]);
            }
            guest.await_backend(XenbusState::InitWait);
            let mut queues = [guest.rings(), guest.rings()];
            guest.publish_all(&queues);
            guest.state(XenbusState::Connected);
            guest.await_backend(XenbusState::Connected);
            // It begins behind its page's end.
            let (_memory, gref) = guest.page(&frame(60));
            queues[bad].put_tx(&[slot(gref, 4096, 60, 1, TxFlags::empty())]);
            guest.kick(queues[bad].tx_event);
            let tools = &mut world.toolstack;
            match way {
                0 => {
                    let said = guest.await_disabled();
                    assert!(said.contains("slot 0"), "{said}");
                }
                1 => tools.ask_to_close(GUEST),
                2 => tools.remove_backend(GUEST),
                3 => tools.remove_frontend(GUEST),
                _ => tools.remove_both(GUEST),
            }
            world.detaches(GUEST);
            eventually("its rings are given back", || {
                (world.table(GUEST.domain).grants_held == 2).then_some(())
            });
            for rings in &queues {
                guest.events.close(rings.tx_event);
                guest.events.close(rings.rx_event);
            }
            other.is_served(&mut served);
        }
    }
    world.attach(GUEST, &[]);
    for key in ["multi-queue-num-queues", "queue-0", "queue-1"] {
        guest.unkey(key);
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn xsa_465_a_vif_fails_while_it_is_being_removed() {
    // The worker gives the vif up, port and all, when its failure can no longer be
    // heard before its removal is seen: while the control thread acts on another.
    let mut world = World::new();
    let mut guest = world.guest();
    let rings = guest.connect();
    let behind = world.behind(GUEST);
    // One that comes before it in order.
    let other = VifId { domain: DomId(8), devid: 0 };
    assert!(other < GUEST);
    world.boot(other.domain);
    let (ring, event) = (rings.tx.clone(), rings.tx_event);
    let mut events = std::mem::replace(&mut guest.events, guest.domain.events().unwrap());
    world.behind(other).hook(move |call| {
        if call == Call::Open {
            ring.store(Index::ReqProd, 1000);
            events.notify(event).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let tools = Arc::clone(&world.tools);
    world.control().with(move |_| {
        let mut tools = Toolstack::new(&tools, DomId(0));
        tools.attach(other, &[]);
        tools.remove_both(GUEST);
    });
    eventually("the vif is forgotten", || world.control().report_of(GUEST).is_none().then_some(()));
    eventually("its port is given up for good", || {
        let inner = behind.look();
        ((inner.handles, inner.removed) == (0, true)).then_some(())
    });
    world.behind(other).unhook();
    world.detaches(other);
    world.holds_nothing_of(GUEST.domain);
    world.stands();
}

#[test]
fn xsa_465_a_vif_that_is_removed_and_attached_anew_between_two_looks() {
    let mut world = World::new();
    let mut guest = world.guest();
    for moment in [Moment::Waiting, Moment::Refused, Moment::Connected, Moment::InFlight] {
        let rings = reach(&world, &mut guest, moment);
        let before = world.behind(GUEST);
        let mut tools = Toolstack::new(&world.tools, DomId(0));
        world.control().with(move |_| {
            tools.remove_both(GUEST);
            tools.attach(GUEST, &[]);
        });
        guest.await_backend(XenbusState::InitWait);
        world.holds_nothing_of(GUEST.domain);
        assert!(before.look().removed, "{moment:?}: the port of the old one");
        if let Some(rings) = rings {
            guest.events.close(rings.tx_event);
            guest.events.close(rings.rx_event);
        }
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        guest.start_anew();
    }
    world.stands();
}

#[test]
fn xsa_465_a_vif_is_removed_while_its_hotplug_script_runs() {
    let mut world = World::with(DomId(0), WaitMode::Interrupt, true);
    let waiting = [("script", "vif-bridge"), ("hotplug-status", "")];
    let domain = world.boot(GUEST.domain);
    world.attach(GUEST, &waiting);
    let mut guest = Hostile::new(domain, GUEST, DomId(0));
    for way in 0..5 {
        if way > 0 {
            world.attach(GUEST, &waiting);
        }
        guest.await_backend(XenbusState::InitWait);
        let mut rings = guest.rings();
        guest.publish(&rings);
        guest.state(XenbusState::Connected);
        eventually("the rings are mapped", || {
            (world.table(GUEST.domain).grants_held == 2).then_some(())
        });
        // It is served already, as by stock netback, though not yet shown so.
        guest.is_served(&mut rings);
        assert_eq!(guest.backend_state(), Some(XenbusState::InitWait));
        match way {
            0 => world.toolstack.ask_to_close(GUEST),
            1 => world.toolstack.remove_backend(GUEST),
            2 => world.toolstack.remove_frontend(GUEST),
            3 => guest.state(XenbusState::Closed),
            _ => {
                rings.tx.store(Index::ReqProd, 1000);
                guest.kick(rings.tx_event);
                guest.await_disabled();
            }
        }
        world.holds_nothing_of(GUEST.domain);
        world.detaches(GUEST);
    }
    world.stands();
}

#[test]
fn a_frontend_killed_at_every_moment() {
    let mut world = World::new();
    let mut first = true;
    for moment in MOMENTS {
        let domain = world.boot(GUEST.domain);
        let mut guest = if std::mem::take(&mut first) {
            world.vif_of(domain, GUEST)
        } else {
            let mut guest = Hostile::new(domain, GUEST, DomId(0));
            guest.start_anew();
            guest
        };
        let rings = reach(&world, &mut guest, moment);
        // Its process ends: memory, grants, ports and store connection go.
        drop((rings, guest));
        world.holds_nothing_of(GUEST.domain);
        eventually("the backend let go", || {
            let report = world.control().report_of(GUEST);
            report.is_some_and(|report| !report.connected).then_some(())
        });
        world.behind(GUEST).look().waiting.clear();
    }
    let domain = world.boot(GUEST.domain);
    let mut guest = Hostile::new(domain, GUEST, DomId(0));
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn a_domain_that_is_destroyed_in_flight() {
    let mut world = World::new();
    for _ in 0..5 {
        let mut guest = world.guest();
        let rings = reach(&world, &mut guest, Moment::InFlight);
        // `xl destroy`: the domain goes, then the toolstack takes the vif away.
        world.tools.destroy_domain(GUEST.domain).unwrap();
        world.honest().carries(8);
        world.toolstack.remove_backend(GUEST);
        drop((rings, guest));
        world.detaches(GUEST);
    }
    world.stands();
}

#[test]
fn states_in_every_order_without_waiting() {
    let mut world = World::new();
    let mut guest = world.guest();
    let states = ["1", "4", "5", "6", "0"];
    let mut rings = guest.connect();
    for order in 0..states.len().pow(4) {
        let mut rest = order;
        for step in 0..4 {
            guest.key("state", states[rest % states.len()]);
            rest /= states.len();
            if order % 7 == step {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        if order % 25 == 0 {
            // It may always come back by the rules, with other rings.
            world.settle();
            guest.events.close(rings.tx_event);
            guest.events.close(rings.rx_event);
            rings = guest.connect();
            guest.is_served(&mut rings);
        }
    }
    world.settle();
    rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn a_guest_that_reconnects_between_two_looks_is_served_with_its_new_rings() {
    // Between two looks of the backend: Closing, Closed, Initialising and
    // Connected again, with other rings.
    let mut world = World::new();
    let mut guest = world.guest();
    for _ in 0..5 {
        let old = guest.connect();
        let new = guest.rings();
        let (tx, rx) = (new.tx_event, new.rx_event);
        let path = toolstack::frontend_path(GUEST);
        let mut store = guest.domain.store().unwrap();
        let keys = [
            ("state", "5".to_owned()),
            ("state", "6".to_owned()),
            ("state", "1".to_owned()),
            ("tx-ring-ref", new.tx_ring.grefs[0].to_string()),
            ("rx-ring-ref", new.rx_ring.grefs[0].to_string()),
            ("event-channel-tx", tx.to_string()),
            ("event-channel-rx", rx.to_string()),
            ("state", "4".to_owned()),
        ];
        world.control().with(move |_| {
            for (key, value) in keys {
                store.write(&format!("{path}/{key}"), value.as_bytes()).unwrap();
            }
        });
        guest.await_backend(XenbusState::Closing);
        world.holds_nothing_of(GUEST.domain);
        drop(old);
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        guest.events.close(tx);
        guest.events.close(rx);
    }
    world.stands();
}

#[test]
fn two_vifs_of_one_guest_fail_apart() {
    let mut world = World::new();
    let mut good = world.guest();
    let mut good_rings = good.connect();
    let other = VifId { domain: GUEST.domain, devid: 1 };
    let mut bad = world.vif_of(Arc::clone(&good.domain), other);
    for round in 0..6 {
        let mut rings = bad.connect();
        match round % 3 {
            // The neighbour's very rings and channels.
            0 => {
                bad.start_anew();
                bad.publish(&good_rings);
                bad.state(XenbusState::Connected);
            }
            // The neighbour's ring as a buffer to be written.
            1 => {
                let ring = good_rings.rx_ring.grefs[0];
                let (memory, _) = page(&good_rings.rx_ring, 0);
                let mut before = vec![0; 4096];
                memory.read(0, &mut before).unwrap();
                let (_copy, gref) = bad.page(&before);
                rings.put_tx(&[slot(gref, 0, 4096, 1, TxFlags::empty())]);
                bad.post(&mut rings, &[ring]);
                // What comes is what is there, so that only the attempt is made.
                world.behind(other).give(before, Offload::default());
            }
            _ => rings.tx.store(Index::ReqProd, 1000),
        }
        bad.kick(rings.tx_event);
        if round % 3 != 1 {
            bad.await_disabled();
        }
        good.is_served(&mut good_rings);
        bad.events.close(rings.tx_event);
        bad.events.close(rings.rx_event);
    }
    let (_memory, gref) = good.page(&frame(60));
    let answers = good.transmit(&mut good_rings, &[slot(gref, 0, 60, 8, TxFlags::empty())]);
    assert_eq!(answers[0].status, status::OKAY);
    world.stands();
}

#[test]
fn seed_003_a_watch_that_fires_while_the_backend_acts_is_not_lost() {
    // The store's answer and the event come together; the descriptor is not
    // readable afterwards.
    let mut world = World::new();
    let second = VifId { domain: GUEST.domain, devid: 1 };
    for _ in 0..5 {
        let mut tools = Toolstack::new(&world.tools, DomId(0));
        world.behind(GUEST).hook(move |call| {
            if call == Call::Open {
                tools.attach(second, &[]);
            }
        });
        let domain = world.boot(GUEST.domain);
        world.attach(GUEST, &[]);
        let mut guest = Hostile::new(domain, second, DomId(0));
        guest.await_backend(XenbusState::InitWait);
        world.behind(GUEST).unhook();
        world.detaches(GUEST);
        world.detaches(second);
    }
    world.stands();
}
