//! Values that a hostile guest writes into the store.

use crate::support::hostile::{Hostile, frame};
use crate::support::rings::{Rings, slot};
use crate::support::world::{GUEST, HONEST, World};
use crate::support::{Ends, eventually};
use grantway_backend::{MAX_QUEUES, Patience, VifId};
use grantway_hypervisor::{DomId, Platform};
use grantway_netif::tx::TxFlags;
use grantway_netif::{Offload, XenbusState};
use grantway_testkit::Numbers;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Keys as they should be, but for one; the vif must be refused, with a word,
/// and be served once the key is right.
#[track_caller]
fn refused(world: &World, guest: &mut Hostile, key: &str, value: Option<&[u8]>) -> String {
    let rings = guest.rings();
    guest.start_anew();
    guest.publish(&rings);
    match value {
        Some(value) => guest.raw_key(key, value),
        None => guest.unkey(key),
    }
    guest.state(XenbusState::Connected);
    let said = guest.await_disabled();
    guest.unkey(key);
    let table = world.table(guest.vif.domain);
    assert_eq!((table.grants_held, table.ports_bound), (0, 0), "{key}: {table:?}");
    guest.events.close(rings.tx_event);
    guest.events.close(rings.rx_event);
    said
}

const GARBAGE: [&[u8]; 16] = [
    b"",
    b" ",
    b"-1",
    b"+",
    b"x",
    b"0x10",
    b"1.5",
    b"1 2",
    b"4294967296",
    b"99999999999999999999999999",
    b"\0",
    b"8\0",
    b"\xff\xfe\xfd",
    b"9\n9",
    "\u{665}".as_bytes(),
    b"NaN",
];

#[test]
fn garbage_in_every_key() {
    let mut world = World::new();
    let mut guest = world.guest();
    let keys = ["tx-ring-ref", "rx-ring-ref", "event-channel-tx", "event-channel-rx"];
    for key in keys {
        for garbage in GARBAGE {
            let said = refused(&world, &mut guest, key, Some(garbage));
            assert!(said.contains(key), "{said:?} does not name {key}");
        }
        let long = vec![b'7'; 2048];
        refused(&world, &mut guest, key, Some(&long));
    }
    for garbage in GARBAGE {
        let said = refused(&world, &mut guest, "request-rx-copy", Some(garbage));
        assert!(said.contains("request-rx-copy"), "{said:?}");
    }
    // Flags that are none are off.
    let rings = guest.rings();
    guest.start_anew();
    guest.publish(&rings);
    for key in ["feature-sg", "feature-gso-tcpv4", "feature-no-csum-offload"] {
        guest.raw_key(key, GARBAGE[12]);
    }
    guest.state(XenbusState::Connected);
    guest.await_backend(XenbusState::Connected);
    let mut rings = rings;
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn a_vif_with_a_missing_key_is_refused() {
    let mut world = World::new();
    let mut guest = world.guest();
    // Without event-channel-tx the flat key is looked for, which is not there.
    for key in ["tx-ring-ref", "rx-ring-ref", "event-channel-tx", "event-channel-rx"] {
        let said = refused(&world, &mut guest, key, None);
        assert!(said.contains("found nothing"), "{key}: {said:?}");
    }
    let said = refused(&world, &mut guest, "request-rx-copy", None);
    assert!(said.contains("missing"), "{said:?}");
    refused(&world, &mut guest, "request-rx-copy", Some(b"0"));
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn invalid_numbers_of_queues_are_refused() {
    let mut world = World::new();
    let mut guest = world.guest();
    let key = "multi-queue-num-queues";
    let more = (MAX_QUEUES + 1).to_string();
    for found in ["0", more.as_str(), "65536", "4294967295", "4294967296", "-1", "", "many"] {
        let said = refused(&world, &mut guest, key, Some(found.as_bytes()));
        assert!(said.contains(key), "{found}: {said:?}");
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

/// Keys of two queues as they should be, but for what is changed: the vif must
/// be refused with a word that names the key, hold nothing, and be served with
/// both queues once they are right.
#[track_caller]
fn queues_refused(change: impl FnOnce(&mut Hostile, &[Rings; 2]), key: &str, why: &str) {
    let mut world = World::new();
    let mut guest = world.guest();
    let queues = [guest.rings(), guest.rings()];
    guest.start_anew();
    guest.publish_all(&queues);
    change(&mut guest, &queues);
    guest.state(XenbusState::Connected);
    let said = guest.await_disabled();
    assert!(said.contains(key) && said.contains(why), "{said:?} does not tell of {key}, {why}");
    let table = world.table(guest.vif.domain);
    assert_eq!((table.grants_held, table.ports_bound), (0, 0), "{key}: {table:?}");
    let mut queues = queues;
    guest.start_anew();
    guest.publish_all(&queues);
    guest.state(XenbusState::Connected);
    guest.await_backend(XenbusState::Connected);
    queues.iter_mut().for_each(|rings| guest.is_served(rings));
    world.stands();
}

#[test]
fn more_queues_than_offered_are_refused() {
    let told = |guest: &mut Hostile, _: &[Rings; 2]| guest.key("multi-queue-num-queues", "5");
    queues_refused(told, "multi-queue-num-queues", "from 1 to multi-queue-max-queues");
}

#[test]
fn a_vif_with_a_missing_queue_is_refused() {
    let unkeyed = |guest: &mut Hostile, _: &[Rings; 2]| guest.unkey("queue-1");
    queues_refused(unkeyed, "queue-1/tx-ring-ref", "found nothing");
    let unkeyed = |guest: &mut Hostile, _: &[Rings; 2]| guest.unkey("queue-0/rx-ring-ref");
    queues_refused(unkeyed, "queue-0/rx-ring-ref", "found nothing");
    // Flat keys are those of a vif with one queue.
    let flat = |guest: &mut Hostile, queues: &[Rings; 2]| {
        guest.publish(&queues[0]);
        guest.unkey("queue-0");
    };
    queues_refused(flat, "queue-0/tx-ring-ref", "found nothing");
}

#[test]
fn two_queues_with_one_ring_harm_their_guest_only() {
    // A guest may grant one page twice, so there is no refusing it: two queues
    // then answer each other's requests, which is that guest's affair, until
    // one finds an index that cannot be.
    for round in 0..4 {
        let mut world = World::new();
        let mut guest = world.guest();
        let queues = [guest.rings(), guest.rings()];
        guest.start_anew();
        guest.publish_all(&queues);
        let shared = [&queues[0].tx_ring, &queues[0].rx_ring];
        let keys = ["queue-1/tx-ring-ref", "queue-1/rx-ring-ref"];
        for (n, (key, ring)) in keys.into_iter().zip(shared).enumerate() {
            if round != n {
                // And a transmit ring as a receive ring.
                let ring = if round == 3 { shared[1 - n] } else { ring };
                guest.key(key, &ring.grefs[0].to_string());
            }
        }
        guest.state(XenbusState::Connected);
        guest.await_backend(XenbusState::Connected);
        let [mut first, second] = queues;
        let (_memory, gref) = guest.page(&frame(60));
        for _ in 0..20 {
            first.put_tx(&[slot(gref, 0, 60, 1, TxFlags::empty()); 10]);
            for rings in [&first, &second] {
                guest.kick(rings.tx_event);
                guest.kick(rings.rx_event);
            }
            for _ in 0..5 {
                world.behind(guest.vif).give(frame(3000), Offload::default());
            }
            world.honest().carries(4);
        }
        guest.start_anew();
        world.holds_nothing_of(guest.vif.domain);
        guest.unkey("queue-0");
        guest.unkey("queue-1");
        guest.unkey("multi-queue-num-queues");
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        world.stands();
    }
}

#[test]
fn one_event_channel_for_two_queues_is_refused() {
    for key in ["queue-1/event-channel-tx", "queue-1/event-channel-rx"] {
        let twice = |guest: &mut Hostile, queues: &[Rings; 2]| {
            guest.key(key, &queues[0].tx_event.to_string());
        };
        queues_refused(twice, "event channel", "found it bound");
    }
    let both = |guest: &mut Hostile, queues: &[Rings; 2]| {
        guest.key("queue-0/event-channel-rx", &queues[0].tx_event.to_string());
    };
    queues_refused(both, "event channel", "found it bound");
}

#[test]
fn a_vif_whose_second_queue_cannot_be_connected_is_refused() {
    // The first queue is in service by then.
    let not_there = |guest: &mut Hostile, _: &[Rings; 2]| {
        guest.key("queue-1/event-channel-rx", "4000");
    };
    queues_refused(not_there, "event channel 4000", "of domain 9");
    let no_grant = |guest: &mut Hostile, _: &[Rings; 2]| guest.key("queue-1/tx-ring-ref", "4000");
    queues_refused(no_grant, "grant 4000", "not granted to us");
}

#[test]
fn xsa_349_a_store_flood() {
    // Several writers, so that there is always something more to be looked at.
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        let (stop, domain, front) = (&stop, &guest.domain, guest.front());
        let floods: Vec<_> = (0..3)
            .map(|number| {
                let (mut store, front) = (domain.store().unwrap(), front.clone());
                scope.spawn(move || {
                    let mut writes = 0u32;
                    while !stop.load(SeqCst) || writes < 100 {
                        let junk = format!("junk/{}", writes % 500);
                        for (key, value) in
                            [("state", "4"), ("request-multicast-control", "0"), (&junk, "x")]
                        {
                            // One of them fills the folder up, too.
                            if number == 0 || key != junk {
                                store.write(&format!("{front}/{key}"), value.as_bytes()).unwrap();
                                writes += 1;
                            }
                        }
                    }
                })
            })
            .collect();
        // The floods go on until all of this is done: each step of the backend takes in a
        // part of them only.
        for _ in 0..30 {
            world.honest().carries(20);
            assert!(world.control().report_of(HONEST).unwrap().connected);
        }
        // Another vif is taken up and let go of meanwhile.
        let other = VifId { domain: DomId(11), devid: 0 };
        let mut second = world.guest_of(other);
        let mut its_rings = second.connect();
        second.is_served(&mut its_rings);
        world.detaches(other);
        drop(ends);
        floods.into_iter().for_each(|flood| flood.join().unwrap());
    });
    assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "it was punished");
    guest.is_served(&mut rings);
    world.stands();
}

/// Floods of two hundred states.
const FLOODS: usize = 150;

#[test]
fn xsa_349_a_flood_of_states() {
    let mut world = World::new();
    let mut guest = world.guest();
    let rings = guest.connect();
    let mut numbers = Numbers::new(349);
    let values: [&[u8]; 14] =
        [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"", b"\xff", b"-4", b"4 4"];
    for _ in 0..FLOODS {
        guest.publish(&rings);
        for _ in 0..200 {
            guest.raw_key("state", numbers.one_of(&values));
        }
    }
    world.honest().carries(50);
    world.settle();
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn a_log_that_a_guest_can_neither_fill_nor_forge() {
    let mut world = World::new();
    let mut guest = world.guest();
    let evil = "7\n2026-01-01 WARN vif7.0: \u{1b}[2Jforged";
    for _ in 0..3 {
        let said = refused(&world, &mut guest, "tx-ring-ref", Some(evil.as_bytes()));
        assert!(!said.contains(['\n', '\u{1b}']), "{said:?}");
        refused(&world, &mut guest, "request-rx-copy", Some(evil.as_bytes()));
        refused(&world, &mut guest, "multi-queue-num-queues", Some(evil.as_bytes()));
        let long = vec![b'7'; 2048];
        let said = refused(&world, &mut guest, "tx-ring-ref", Some(&long));
        assert!(said.len() < 400, "{} bytes", said.len());
    }
    for (_, line) in world.control().log.lines() {
        assert!(!line.contains(['\n', '\u{1b}']), "{line:?}");
        assert!(line.len() < 400, "a line of {} bytes", line.len());
    }
    world.stands();
}

#[test]
fn a_fault_that_is_repeated_is_logged_at_a_bounded_rate() {
    // By a time that stands: a burst of lines, and one more for each five seconds.
    let mut world = World::patient(Patience::default());
    let mut guest = world.guest();
    let fails = |guest: &mut Hostile, times| {
        for _ in 0..times {
            let rings = guest.rings();
            guest.start_anew();
            guest.publish(&rings);
            guest.key("rx-ring-ref", "7");
            guest.state(XenbusState::Connected);
            guest.await_backend(XenbusState::Closing);
            guest.events.close(rings.tx_event);
            guest.events.close(rings.rx_event);
        }
    };
    let told = |world: &World| {
        let name = format!("{GUEST}: ");
        let lines = world.control().log.lines();
        lines.iter().filter(|(_, line)| line.starts_with(&name)).count()
    };
    fails(&mut guest, 150);
    assert_eq!(told(&world), 20, "lines of 150 faults at once");
    for more in 1..=3 {
        world.passes(Duration::from_secs(5));
        fails(&mut guest, 10);
        assert_eq!(told(&world), 20 + more, "lines after {more} times five seconds");
    }
    world.stands();
}

#[test]
fn a_guest_that_removes_its_own_nodes_can_connect_again() {
    let mut world = World::new();
    let mut guest = world.guest();
    for _ in 0..5 {
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        // A guest may remove its own nodes.
        for key in ["state", "tx-ring-ref", "request-rx-copy"] {
            guest.unkey(key);
        }
        eventually("the backend closes", || {
            matches!(guest.backend_state(), Some(XenbusState::Closing | XenbusState::Closed))
                .then_some(())
        });
        world.holds_nothing_of(guest.vif.domain);
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn qubes_mirage_firewall_0_8_3_no_watch_is_leaked() {
    let mut world = World::new();
    let before = world.table(DomId(0)).store_watches;
    let mut guest = world.guest();
    for round in 0..20 {
        if round > 0 {
            world.attach(GUEST, &[]);
        }
        if round % 3 != 0 {
            guest.await_backend(XenbusState::InitWait);
        }
        if round % 3 == 2 {
            let mut rings = guest.connect();
            guest.is_served(&mut rings);
        }
        world.detaches(GUEST);
        assert_eq!(world.table(DomId(0)).store_watches, before, "round {round}");
    }
    world.stands();
}

#[test]
fn qubes_mirage_firewall_0_9_5_vifs_that_never_connect_block_nobody() {
    let mut world = World::new();
    let mut silent = Vec::new();
    for number in 0..20 {
        let vif = VifId { domain: DomId(100 + number), devid: 0 };
        let mut guest = world.guest_of(vif);
        // Half of them get as far as keys that are no good.
        if number % 2 == 0 {
            guest.await_backend(XenbusState::InitWait);
            guest.key("tx-ring-ref", "9");
            guest.state(XenbusState::Initialised);
        }
        silent.push(guest);
    }
    let mut guest = world.guest();
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    // None of them was waited for: each still has not connected.
    for guest in &mut silent {
        assert_ne!(guest.backend_state(), Some(XenbusState::Connected));
    }
    assert!(world.control().report_of(HONEST).unwrap().connected);
    world.stands();
}

#[test]
fn mirage_net_xen_121_a_guest_that_closes_first_can_connect_again() {
    let mut world = World::new();
    let mut guest = world.guest();
    for round in 0..10 {
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        // As Windows does it: each step waits for the backend's.
        guest.state(XenbusState::Closing);
        if round % 2 == 0 {
            guest.await_backend(XenbusState::Closing);
        }
        guest.state(XenbusState::Closed);
        guest.await_backend(XenbusState::Closed);
        world.holds_nothing_of(guest.vif.domain);
        let folder = world.toolstack.back(guest.vif);
        assert!(world.toolstack.read(&folder).is_some(), "the backend's folder is the toolstack's");
        guest.state(XenbusState::Initialising);
        guest.await_backend(XenbusState::InitWait);
    }
    world.stands();
}
