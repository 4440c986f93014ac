//! A guest that was saved and restored, and vifs that wait beside others.

use crate::support::frame;
use crate::support::world::{BACK, GUEST, World};
use grantway_embedded::Domain;
use grantway_frontend::{SendError, Vif, VifStatus, Wishes};
use grantway_hypervisor::{Permission, Platform, Rights, Store};
use grantway_netif::{Offload, XenbusState};
use std::sync::Arc;

/// Returns the guest's platform, as its process has it after the restore.
fn platform(world: &World) -> Arc<dyn Platform> {
    Arc::<Domain>::clone(&world.guest)
}

#[test]
fn a_restored_guest_connects_anew_and_touches_no_earlier_grant() {
    for queues in [1, 3] {
        for connected in [false, true] {
            let mut world = World::of_queues(queues);
            world.published();
            if connected {
                world.server.state(XenbusState::Connected);
                world.until(VifStatus::Connected);
                world.vif.send(&frame(60, 1), Offload::default()).unwrap();
            }
            let before = world.table();
            let lent = u64::from(queues) * 274;
            assert_eq!(u64::from(before.grants), lent);
            // Saved; the old backend and both folders go. Restored: a toolstack
            // makes them anew, for another backend.
            world.attach();
            let other = world.other_server();
            world.server = other;
            world.server.key("multi-queue-max-queues", queues.to_string().as_bytes());
            world.vif.resume(platform(&world)).unwrap();
            assert_eq!(world.vif.status(), VifStatus::Waiting);
            let sent = world.vif.send(&frame(60, 1), Offload::default());
            assert_eq!(sent, Err(SendError::Full), "there is no queue");
            let after = world.table();
            assert_eq!(after.grants, before.grants, "a grant that is void was touched");
            assert_eq!(after.ports_unbound, before.ports_unbound, "a port was touched");
            let mut rings = match queues {
                1 => vec![world.connect()],
                _ => world.connect_all(),
            };
            if queues == 1 {
                world.works(&mut rings[0]);
            }
            assert_eq!(u64::from(world.table().grants), 2 * lent);
            // Queues that were attached afterwards end in order.
            rings.into_iter().for_each(|rings| world.server.detach(rings));
            world.vif.shutdown().unwrap();
            world.server.state(XenbusState::Closed);
            world.until(VifStatus::Gone);
            assert_eq!(u64::from(world.table().grants), lent, "those of before, for ever");
        }
    }
}

/// Asks all that may be asked of a vif without a connection, at any time.
fn asks_everything(world: &mut World) {
    let vif = &mut world.vif;
    assert_eq!(vif.send(&frame(60, 1), Offload::default()), Err(SendError::Full));
    vif.flush().unwrap();
    assert_eq!(vif.reap().unwrap(), 0);
    assert_eq!(vif.recv(&mut [0; 100]).unwrap(), None);
    vif.repost().unwrap();
    vif.take_events().unwrap();
    assert!(!vif.arm().unwrap());
    assert!(vif.queues().is_empty() && vif.staging().is_empty());
    let _ = (vif.stats(), vif.hash());
}

#[test]
fn xsa_465_the_vif_goes_between_a_restore_and_the_next_connection() {
    // Netfront had given its queues up by then, and took them away a second time.
    let (front, back) = crate::support::world::paths();
    for queues in [1, 3] {
        for published in [false, true] {
            for way in 0..6 {
                let mut world = World::of_queues(queues);
                world.published();
                world.server.state(XenbusState::Connected);
                world.until(VifStatus::Connected);
                let before = world.table().grants;
                world.attach();
                let other = world.other_server();
                world.server = other;
                world.server.key("multi-queue-max-queues", queues.to_string().as_bytes());
                world.vif.resume(platform(&world)).unwrap();
                asks_everything(&mut world);
                if published {
                    world.published();
                    asks_everything(&mut world);
                }
                match way {
                    0 => world.server.state(XenbusState::Closing),
                    1 => world.server.state(XenbusState::Closed),
                    2 => world.toolstack.remove(&back).unwrap(),
                    3 => world.toolstack.remove(&front).unwrap(),
                    4 => {
                        world.toolstack.remove(&front).unwrap();
                        world.toolstack.remove(&back).unwrap();
                    }
                    // The backend goes to Closing and away before it is looked at.
                    _ => {
                        world.server.state(XenbusState::Closing);
                        world.toolstack.remove(&back).unwrap();
                    }
                }
                world.look();
                asks_everything(&mut world);
                assert_eq!(world.table().grants, before, "what was made anew went back: {way}");
                let _ = world.vif.shutdown();
                asks_everything(&mut world);
                // A vif in its place is served.
                world.attach();
                let other = world.other_server();
                world.server = other;
                world.vif = Vif::open(platform(&world), 0, Wishes::default()).unwrap();
                let mut rings = world.connect();
                world.works(&mut rings);
                world.server.detach(rings);
            }
        }
    }
}

#[test]
fn a_guest_that_goes_on_where_it_was_saved_closes_first() {
    // A checkpoint: the same folders, which say Connected, and a backend that
    // has the old rings still.
    let mut world = World::new();
    let mut old = world.connect();
    world.works(&mut old);
    world.vif.resume(platform(&world)).unwrap();
    assert_eq!(world.server.front_state(), Some(XenbusState::Closing));
    assert_eq!(world.look(), VifStatus::Waiting);
    world.server.detach(old);
    let mut rings = world.connect();
    world.works(&mut rings);
    assert_ne!(world.vif.stats().tx_packets, 1, "counters go on");
    world.server.detach(rings);
}

#[test]
fn a_guest_learns_of_its_restore_from_the_store_and_touches_no_grant() {
    // The store after a restore: all watches fire, that of the domain's number first if the kernel
    // sets it first. The earlier folders are gone, or are new ones.
    let (front, _) = crate::support::world::paths();
    let number = format!("/local/domain/{GUEST}/domid");
    let clues: [&dyn Fn(&mut World); 3] = [
        &|world| world.toolstack.write(&number, b"7").unwrap(),
        &|world| {
            world.toolstack.write(&number, b"8").unwrap();
            world.toolstack.remove(&front).unwrap();
        },
        &|world| {
            world.toolstack.write(&number, b"8").unwrap();
            world.attach();
        },
    ];
    for clue in clues {
        let mut world = World::new();
        let mut rings = world.connect();
        world.works(&mut rings);
        let before = world.table();
        clue(&mut world);
        world.until(VifStatus::Restored);
        // Nothing that is tried meanwhile touches earlier grants.
        world.vif.shutdown().unwrap();
        world.vif.restart().unwrap();
        assert_eq!(world.look(), VifStatus::Restored);
        let after = world.table();
        assert_eq!((after.grants, after.ports_unbound), (before.grants, before.ports_unbound));
        world.toolstack.write(&number, b"7").unwrap();
        world.attach();
        world.vif.resume(platform(&world)).unwrap();
        assert_ne!(world.look(), VifStatus::Restored);
        let mut anew = world.connect();
        world.works(&mut anew);
        world.server.detach(anew);
        world.server.detach(rings);
    }
}

#[test]
fn a_guest_that_ends_while_restored_touches_nothing() {
    let mut world = World::new();
    let rings = world.connect();
    let before = world.table();
    let number = format!("/local/domain/{GUEST}/domid");
    world.toolstack.write(&number, b"8").unwrap();
    world.until(VifStatus::Restored);
    let (other, _) = world.another(1);
    drop(std::mem::replace(&mut world.vif, other));
    assert_eq!(world.table().grants, before.grants);
    world.server.detach(rings);
}

#[test]
fn a_guest_that_is_restored_before_its_folders_are_there_tries_again() {
    let mut world = World::new();
    let rings = world.connect();
    let (front, _) = crate::support::world::paths();
    world.toolstack.remove(&front).unwrap();
    let early = world.vif.resume(platform(&world)).unwrap_err().to_string();
    assert!(early.contains("attach one first"), "{early}");
    assert_ne!(world.vif.status(), VifStatus::Connected);
    assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
    world.server.detach(rings);
    world.attach();
    world.vif.resume(platform(&world)).unwrap();
    let mut rings = world.connect();
    world.works(&mut rings);
    world.server.detach(rings);
}

#[test]
fn a_vif_that_never_connects_keeps_no_other_from_it() {
    // Two vifs of one guest, in one process: the backend of the first never says a word, that of
    // the second gives up half way.
    let mut world = World::new();
    let mut others = Vec::new();
    for devid in [1, 2] {
        let front = format!("/local/domain/{GUEST}/device/vif/{devid}");
        let back = format!("/local/domain/{BACK}/backend/vif/{GUEST}/{devid}");
        attach(world.toolstack.as_mut(), &front, &back, devid);
        others.push(Vif::open(platform(&world), devid, Wishes::default()).unwrap());
        if devid == 2 {
            write(world.toolstack.as_mut(), &back, "state", "2");
            others[1].store_changed().unwrap();
            let shown = world.toolstack.read_text(&format!("{front}/state")).unwrap();
            assert_eq!(shown.as_deref(), Some("4"), "it has published");
        }
    }
    let mut rings = world.connect();
    for _ in 0..100 {
        for vif in &mut others {
            assert_eq!(vif.store_changed().unwrap(), VifStatus::Waiting);
            assert_eq!(vif.send(&frame(60, 0), Offload::default()), Err(SendError::Full));
            assert!(!vif.arm().unwrap());
        }
        world.works(&mut rings);
    }
    drop(others);
    world.ends(rings);
}

fn attach(store: &mut dyn Store, front: &str, back: &str, devid: u32) {
    for (path, owner, reader) in [(front, GUEST, BACK), (back, BACK, GUEST)] {
        store.write(path, b"").unwrap();
        let permissions = [
            Permission { domain: owner, rights: Rights::None },
            Permission { domain: reader, rights: Rights::Read },
        ];
        store.set_permissions(path, &permissions).unwrap();
    }
    write(store, back, "frontend", front);
    write(store, back, "state", "1");
    write(store, front, "backend", back);
    write(store, front, "backend-id", &BACK.to_string());
    write(store, front, "handle", &devid.to_string());
    write(store, front, "state", "1");
}

fn write(store: &mut dyn Store, path: &str, key: &str, value: &str) {
    store.write(&format!("{path}/{key}"), value.as_bytes()).unwrap();
}
