//! What a guest writes into the store.

use crate::support::hostile::Hostile;
use crate::support::numbers::Numbers;
use crate::support::world::{GUEST, HONEST, World};
use crate::support::{PROMPT, eventually};
use grantway_backend::{MAX_QUEUES, VifId};
use grantway_hypervisor::DomId;
use grantway_netif::XenbusState;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

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
fn keys_that_are_missing() {
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
fn numbers_of_queues_that_were_not_offered() {
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

#[test]
fn xsa_349_a_store_flood() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let stop = AtomicBool::new(false);
    let writes = std::thread::scope(|scope| {
        let guest = &mut guest;
        let flood = scope.spawn(|| {
            let mut writes = 0u32;
            while !stop.load(SeqCst) {
                guest.state(XenbusState::Connected);
                guest.key("feature-sg", "1");
                guest.key(&format!("junk/{}", writes % 500), "x");
                writes += 1;
            }
            writes
        });
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            world.honest().carries(50);
        }
        // Another vif is taken up and let go of meanwhile.
        let other = VifId { domain: DomId(11), devid: 0 };
        let mut second = world.guest_of(other);
        let mut its_rings = second.connect();
        second.is_served(&mut its_rings);
        world.detaches(other);
        stop.store(true, SeqCst);
        flood.join().unwrap()
    });
    assert!(writes > 100, "{writes} writes are no flood");
    assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "it was punished");
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn xsa_349_a_flood_of_states() {
    let mut world = World::new();
    let mut guest = world.guest();
    let rings = guest.connect();
    let end = Instant::now() + Duration::from_millis(500);
    let mut numbers = Numbers::new(349);
    let values: [&[u8]; 14] =
        [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"", b"\xff", b"-4", b"4 4"];
    let mut writes = 0;
    while Instant::now() < end {
        guest.publish(&rings);
        for _ in 0..200 {
            guest.raw_key("state", numbers.one_of(&values));
            writes += 1;
        }
    }
    world.honest().carries(50);
    world.settle();
    assert!(writes > 100, "{writes} writes are no flood");
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
    let mut world = World::new();
    let mut guest = world.guest();
    let name = GUEST.to_string();
    let start = Instant::now();
    for _ in 0..150 {
        let rings = guest.rings();
        guest.start_anew();
        guest.publish(&rings);
        guest.key("rx-ring-ref", "7");
        guest.state(XenbusState::Connected);
        guest.await_backend(XenbusState::Closing);
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
    }
    let lines = world.control().log.lines();
    let told = lines.iter().filter(|(_, line)| line.starts_with(&name)).count();
    let allowed = 60 + 20 * start.elapsed().as_secs() as usize;
    assert!(told <= allowed, "150 faults made {told} lines, expected at most {allowed}");
    world.stands();
}

#[test]
fn the_frontend_folder_goes_and_comes() {
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
    let start = Instant::now();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    assert!(start.elapsed() < PROMPT / 4, "{:?}", start.elapsed());
    assert!(world.control().report_of(HONEST).unwrap().connected);
    world.stands();
}

#[test]
fn mirage_net_xen_121_a_guest_that_closes_first_goes_round() {
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
