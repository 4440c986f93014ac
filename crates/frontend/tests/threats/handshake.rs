//! States, features and deaths of a backend.

use crate::support::world::{BACK, GUEST, World, paths};
use crate::support::{Ends, GUARD, eventually, frame};
use grantway_frontend::{SendError, Vif, VifError, VifStatus, Wishes};
use grantway_hypervisor::{Permission, Platform, Rights, transaction};
use grantway_netif::{Checksum, Offload, XenbusState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[test]
fn a_backend_that_disappears_at_each_moment() {
    for moment in 0..7 {
        let mut world = World::new();
        let mut rings = None;
        if moment >= 1 {
            world.server.offer();
        }
        if moment >= 2 {
            world.until_shown(XenbusState::Connected);
        }
        if moment >= 3 {
            rings = Some(world.server.attach());
        }
        if moment >= 4 {
            world.server.state(XenbusState::Connected);
            world.until(VifStatus::Connected);
        }
        if moment >= 5 {
            for n in 0..100 {
                world.vif.send(&frame(1000, n), Offload::default()).unwrap();
            }
            world.vif.flush().unwrap();
        }
        if moment >= 6 {
            world.server.state(XenbusState::Closing);
            world.look();
        }
        // The backend's process ends; nothing in the store tells of it.
        let dead = world.other_server();
        drop((std::mem::replace(&mut world.server, dead), rings));
        world.look();
        if moment == 4 || moment == 5 {
            // Signals to nobody are swallowed, as on Xen; the ring fills.
            let sent = (0..1000)
                .take_while(|&n| world.vif.send(&frame(60, n as u8), Offload::default()).is_ok())
                .count();
            assert!(sent <= 256);
            assert_eq!(world.vif.send(&frame(60, 0), Offload::default()), Err(SendError::Full));
            world.vif.flush().unwrap();
            assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
            let armed = world.vif.arm().unwrap();
            assert!(!armed, "it may sleep: nobody will answer");
        }
        // Another one takes its place by the rules.
        let mut rings = world.connect();
        world.works(&mut rings);
        world.ends(rings);
    }
}

#[test]
fn a_backend_whose_folder_disappears_at_each_moment() {
    for moment in 0..4 {
        let mut world = World::new();
        let mut rings = None;
        if moment >= 1 {
            world.server.offer();
            world.until_shown(XenbusState::Connected);
        }
        if moment >= 2 {
            rings = Some(world.server.attach());
            world.server.state(XenbusState::Connected);
            world.until(VifStatus::Connected);
        }
        let (front, back) = paths();
        world.toolstack.remove(&back).unwrap();
        if let Some(rings) = rings {
            world.server.detach(rings);
        }
        if moment == 3 {
            world.toolstack.remove(&front).unwrap();
            world.until(VifStatus::Gone);
        } else {
            world.look();
            world.look();
            assert_ne!(world.vif.status(), VifStatus::Connected);
            world.toolstack.remove(&front).unwrap();
            world.until(VifStatus::Gone);
        }
        world.nothing_is_lent();
        // A removed node does not come back to life.
        assert_eq!(world.toolstack.read_text(&front).unwrap(), None);
    }
}

/// A backend would leave the room in front of every frame, for a program that is gone.
#[test]
fn headroom_of_a_driver_that_had_the_vif_before_is_removed() {
    let mut world = World::new();
    world.toolstack.write(&format!("{}/xdp-headroom", paths().0), b"256").unwrap();
    world.server.key("feature-xdp-headroom", b"1");
    world.server.offer();
    world.until_shown(XenbusState::Connected);
    assert_eq!(world.server.front_key("xdp-headroom"), None);
}

#[test]
fn a_backend_that_lies_about_its_features() {
    let garbage: [&[u8]; 8] = [b"", b"2", b"-1", b"yes", b"\xff\xfe", b"1\0", b"11", &[b'1'; 2000]];
    for value in garbage {
        let mut world = World::new();
        for key in ["feature-sg", "feature-gso-tcpv4", "feature-split-event-channels", "carrier"] {
            world.server.key(key, value);
        }
        world.server.key("feature-no-csum-offload", b"1");
        world.server.key("multi-queue-max-queues", value);
        world.server.state(XenbusState::InitWait);
        world.until_shown(XenbusState::Connected);
        let mut rings = world.server.attach();
        world.server.state(XenbusState::Connected);
        world.until(VifStatus::Connected);
        let features = world.vif.features();
        assert!(!features.scatter_gather && !features.gso_tcpv4 && !features.checksum_ipv4);
        let partial = Offload { checksum: Checksum::Partial, gso: None };
        let refused = world.vif.send(&frame(60, 0), partial);
        assert!(matches!(refused, Err(SendError::NotOffered { .. })));
        let refused = world.vif.send(&frame(4097, 0), Offload::default());
        assert!(matches!(refused, Err(SendError::Length { longest: 4096, .. })));
        world.works(&mut rings);
        world.ends(rings);
    }
}

#[test]
fn a_backend_that_hides_its_nodes_costs_its_own_vif_only() {
    // Anything that a backend does to its own folder must not read as the end of the store: one
    // process may hold other vifs, too.
    let hidden = [
        "state",
        "carrier",
        "feature-sg",
        "feature-gso-tcpv4",
        "feature-no-csum-offload",
        "feature-split-event-channels",
    ];
    for key in hidden {
        for connected in [false, true] {
            let mut world = World::new();
            world.server.key(key, b"1");
            let (_, back) = paths();
            let hide = [Permission { domain: BACK, rights: Rights::None }];
            let show = [hide[0], Permission { domain: GUEST, rights: Rights::Read }];
            let path = format!("{back}/{key}");
            let mut rings = connected.then(|| world.connect());
            world.server.store.set_permissions(&path, &hide).unwrap();
            world.server.offer();
            if key == "carrier" {
                world.server.key(key, b"0");
            }
            for _ in 0..5 {
                let looked = world.vif.store_changed();
                assert!(looked.is_ok(), "{key} hidden: {looked:?}");
            }
            world.server.store.set_permissions(&path, &show).unwrap();
            if let Some(rings) = rings.take() {
                world.server.detach(rings);
            }
            world.server.state(XenbusState::Closed);
            world.look();
            world.vif.take_failure();
            world.vif.restart().unwrap();
            let mut rings = world.connect();
            world.works(&mut rings);
            world.ends(rings);
        }
    }
}

#[test]
fn states_in_every_order() {
    let states: [&[u8]; 7] = [b"1", b"2", b"4", b"5", b"6", b"0", b"nonsense"];
    let mut world = World::new();
    let mut most = 0;
    for order in 0..states.len().pow(3) {
        let mut rest = order;
        for _ in 0..3 {
            world.server.key("state", states[rest % states.len()]);
            rest /= states.len();
            if order % 2 == 0 {
                let looked = world.vif.store_changed();
                assert!(looked.is_ok(), "{looked:?}");
            }
        }
        let looked = world.vif.store_changed();
        assert!(looked.is_ok(), "{looked:?}");
        world.tries_again();
        if world.vif.status() == VifStatus::Connected {
            let _ = world.vif.send(&frame(60, 1), Offload::default());
            world.vif.flush().unwrap();
            assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
        }
        assert_eq!(world.vif.take_failure(), None);
        most = most.max(world.guest.counters().granted);
    }
    assert!(most <= 274, "{most} pages in force, expected those of one queue");
    let mut rings = world.connect();
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn init_wait_twice_and_connected_without_it() {
    let mut world = World::new();
    // Connected before anything was offered.
    world.server.state(XenbusState::Connected);
    world.look();
    assert_eq!(world.server.front_state(), Some(XenbusState::Initialising));
    // InitWait again while we wait for Connected: nothing is granted twice.
    world.server.offer();
    world.until_shown(XenbusState::Connected);
    let granted = world.guest.counters().granted;
    world.server.state(XenbusState::InitWait);
    world.look();
    world.server.state(XenbusState::InitWait);
    world.look();
    assert_eq!(world.guest.counters().granted, granted);
    let mut rings = world.server.attach();
    world.server.state(XenbusState::Connected);
    world.until(VifStatus::Connected);
    world.works(&mut rings);
    // After Connected it means that the backend began anew, and so do we.
    world.server.detach(rings);
    world.server.state(XenbusState::InitWait);
    world.look();
    assert_ne!(world.vif.status(), VifStatus::Connected);
    let mut rings = world.connect();
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn a_backend_that_never_answers() {
    let mut world = World::new();
    let rings = world.connect();
    let before = world.guest.counters();
    for _ in 0..10 {
        while world.vif.send(&frame(1500, 1), Offload::default()).is_ok() {}
        world.vif.flush().unwrap();
        let reaped = world.vif.reap().unwrap();
        assert_eq!(reaped, 0);
        assert_eq!(world.vif.recv(&mut [0; 2000]).unwrap(), None);
    }
    let after = world.guest.counters();
    assert_eq!(after.granted, before.granted, "no page more than the pools'");
    assert!(after.notifies - before.notifies <= 2, "one signal for what nobody looks at");
    assert_eq!(world.vif.queues()[0].outstanding(), 256);
    // The vif closes at once all the same; the backend need not say a word.
    world.vif.shutdown().unwrap();
    assert_eq!(world.server.front_state(), Some(XenbusState::Closing));
    assert_eq!(world.guest.counters().deferred, 2, "the two rings are mapped still");
    world.server.detach(rings);
    drop(world.vif);
    let table = world.tools.host_tables().unwrap().domain(GUEST.0).cloned().unwrap();
    assert_eq!((table.grants_held, table.ports_bound, table.ports_unbound), (0, 0, 0));
}

#[test]
fn a_store_flood_by_the_backend() {
    let mut world = World::new();
    let mut rings = world.connect();
    for n in 0..3000 {
        world.server.key("carrier", if n % 2 == 0 { b"0" } else { b"junk" });
        world.server.state(XenbusState::Connected);
        world.server.key(&format!("junk/{}", n % 300), b"x");
    }
    assert_eq!(world.look(), VifStatus::Connected);
    world.works(&mut rings);
    world.server.key("carrier", b"1");
    world.look();
    assert!(world.vif.carrier());
    world.ends(rings);
}

#[test]
fn xsa_349_a_look_takes_in_a_bounded_number_of_changes() {
    // A vif that takes in all changes before it does anything else does nothing else
    // for as long as the backend makes changes.
    const CHANGES: usize = 500;
    const A_LOOK: usize = 64;
    let mut world = World::new();
    let mut rings = world.connect();
    world.look();
    world.server.key("carrier", b"0");
    // Each change is below the node, so that no change is merged with another one.
    for n in 0..CHANGES {
        world.server.key(&format!("carrier/{n}"), b"");
    }
    // The host is one thread: with this answer all earlier events are out.
    let _ = world.toolstack.read("/local");
    let mut looks = 0;
    loop {
        assert_eq!(world.vif.store_changed().unwrap(), VifStatus::Connected);
        looks += 1;
        if !world.vif.has_changes() {
            break;
        }
        assert!(world.vif.arm().unwrap(), "look {looks}: it may sleep, with changes left");
        world.works(&mut rings);
    }
    assert!(looks * A_LOOK >= CHANGES, "{CHANGES} changes in {looks} looks");
    assert!(!world.vif.carrier(), "the last change");
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn xsa_349_a_store_flood_that_does_not_end() {
    const WRITES: u32 = 400;
    let mut world = World::new();
    let mut rings = world.connect();
    let (stop, writes) = (AtomicBool::new(false), AtomicU32::new(0));
    let (_, back) = paths();
    let endless = std::thread::scope(|scope| {
        let ends = Ends(&stop);
        let floods: Vec<_> = (0..3)
            .map(|_| {
                let mut store = world.server.domain.store().unwrap();
                let (stop, writes, back) = (&stop, &writes, &back);
                scope.spawn(move || {
                    // The thread ends by itself only if a look never comes back.
                    let start = Instant::now();
                    while !stop.load(SeqCst) && start.elapsed() < GUARD {
                        store.write(&format!("{back}/state"), b"4").unwrap();
                        store.write(&format!("{back}/carrier"), b"1").unwrap();
                        writes.fetch_add(2, SeqCst);
                    }
                    stop.load(SeqCst)
                })
            })
            .collect();
        let mut looks = 0;
        // The loop goes on until there was a flood, whichever thread is the first to run.
        while looks < 40 || writes.load(SeqCst) < WRITES && !floods.iter().any(|f| f.is_finished())
        {
            assert_eq!(world.vif.store_changed().unwrap(), VifStatus::Connected);
            looks += 1;
            world.works(&mut rings);
        }
        drop(ends);
        // Each of them is joined, so that all of them have ended.
        let ends: Vec<_> = floods.into_iter().map(|flood| flood.join().unwrap()).collect();
        ends.iter().all(|&end| end)
    });
    assert!(endless, "40 looks at the store did not end within {GUARD:?}");
    // The last word is heard without another one.
    world.server.key("carrier", b"0");
    eventually("the carrier's end", || {
        world.look();
        (!world.vif.carrier()).then_some(())
    });
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn an_event_storm_by_the_backend() {
    let mut world = World::new();
    let mut rings = world.connect();
    for _ in 0..10_000 {
        world.server.kick(rings.tx_event);
        world.server.kick(rings.rx_event);
    }
    // N signals may be seen as one; an empty wake-up is legal.
    world.vif.take_events().unwrap();
    assert!(world.vif.stats().interrupts < 100, "{}", world.vif.stats().interrupts);
    assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn words_of_the_backend_cannot_forge_a_log() {
    let mut world = World::new();
    let evil = b"9\n2026-01-01 WARN forged \x1b[2J";
    world.server.key("mtu", evil);
    world.server.key("mtu", &[evil.as_slice(), &[b'7'; 1000]].concat());
    let said = world.vif.mtu().unwrap_err().to_string();
    assert!(!said.contains(['\n', '\u{1b}']) && said.len() < 300, "{said:?}");
}

#[test]
fn vifs_that_are_not_as_a_toolstack_makes_them() {
    let world = World::new();
    let mut toolstack = world.tools.store().unwrap();
    let open = |devid| {
        let platform: Arc<dyn Platform> = Arc::<grantway_embedded::Domain>::clone(&world.guest);
        Vif::open(platform, devid, Wishes::default()).map(drop)
    };
    let words = |found: Result<(), _>| {
        format!("{:?}", found.map_err(|e: grantway_frontend::VifError| e.to_string()))
    };
    assert!(words(open(9)).contains("no vif 9"), "{}", words(open(9)));
    let front = format!("/local/domain/{GUEST}/device/vif/1");
    for (key, value) in [("backend", "/local/domain/3/backend/vif/7/1"), ("state", "1")] {
        toolstack.write(&format!("{front}/{key}"), value.as_bytes()).unwrap();
    }
    for id in ["", "x", "-1", "65536", "99999999999", "3 3"] {
        toolstack.write(&format!("{front}/backend-id"), id.as_bytes()).unwrap();
        assert!(words(open(1)).contains("backend-id"), "{id:?}: {}", words(open(1)));
    }
    // Without a backend the vif waits.
    toolstack.write(&format!("{front}/backend-id"), b"3").unwrap();
    assert_eq!(open(1), Ok(()));
    eventually("nothing is left of them", || {
        let table = world.table();
        ((table.grants, table.ports_unbound) == (0, 0)).then_some(())
    });
}

#[test]
fn a_vif_removed_while_it_is_opened_is_reported_absent() {
    let world = World::new();
    let mut toolstack = world.tools.store().unwrap();
    let (over, started) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let opened = Arc::new(AtomicU32::new(0));
    let (stop, opens) = (Arc::clone(&over), Arc::clone(&opened));
    let comes_and_goes = std::thread::spawn(move || {
        let front = format!("/local/domain/{GUEST}/device/vif/1");
        // Long enough for one whole opening, whatever the scheduler does.
        let stays = || {
            let before = opens.load(SeqCst);
            while !stop.load(SeqCst) && opens.load(SeqCst).wrapping_sub(before) < 2 {
                std::thread::yield_now();
            }
        };
        for round in 0u32.. {
            if stop.load(SeqCst) {
                break;
            }
            transaction(toolstack.as_mut(), |store| {
                let back = "/local/domain/3/backend/vif/7/1";
                for (key, value) in [("state", "1"), ("backend", back), ("backend-id", "3")] {
                    store.write(&format!("{front}/{key}"), value.as_bytes())?;
                }
                store.write(&format!("{front}/mac"), b"00:16:3e:00:00:01")
            })
            .unwrap();
            if round % 2 == 0 {
                stays();
            } else {
                std::thread::sleep(Duration::from_micros(300));
            }
            toolstack.remove(&front).unwrap();
            if round % 2 == 0 {
                stays();
            }
        }
    });
    let (mut found, mut missed) = (0, 0);
    while found.min(missed) < 100 {
        let platform: Arc<dyn Platform> = Arc::<grantway_embedded::Domain>::clone(&world.guest);
        let vif = Vif::open(platform, 1, Wishes::default());
        match vif.and_then(|mut vif| vif.mac()) {
            Ok(_) => found += 1,
            Err(VifError::NoVif { devid: 1, .. }) => missed += 1,
            Err(e) => panic!("after {found} found and {missed} missed: {e}"),
        }
        opened.fetch_add(1, SeqCst);
        let took = started.elapsed();
        assert!(took < GUARD, "{found} found, {missed} missed in {GUARD:?}");
    }
    over.store(true, SeqCst);
    comes_and_goes.join().unwrap();
}
