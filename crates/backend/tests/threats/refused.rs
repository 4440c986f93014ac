//! Vifs that could not be opened, and are served once they can be.

use crate::restart::lost_at_most;
use crate::support::hostile::Hostile;
use crate::support::world::{GUEST, World};
use crate::support::{eventually, toolstack};
use grantway_hypervisor::{Platform, StoreErrno};
use grantway_netif::XenbusState;
use std::sync::Arc;

#[test]
fn a_vif_whose_nodes_were_bad_is_served_once_they_are_good() {
    let mut world = World::new();
    let domain = world.boot(GUEST.domain);
    world.expects(GUEST);
    let node = format!("{}/frontend", world.toolstack.back(GUEST));
    world.toolstack.attach_and(GUEST, &[], |tx| tx.remove(&node));
    eventually("its refusal", || world.toolstack.backend_key(GUEST, "error"));
    world.settle();
    // It looks again at each change, its own word among them, and says it once.
    let complaints = world.control().log.complaints();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    let (server, front) = (Arc::clone(&world.tools), toolstack::frontend_path(GUEST));
    server.store().unwrap().write(&node, front.as_bytes()).unwrap();
    let mut guest = Hostile::new(domain, GUEST, world.setup.domain);
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn a_port_that_somebody_holds_for_a_while_is_opened_once_it_is_free() {
    let mut world = World::new();
    world.behind(GUEST).look().held = 3;
    let mut guest = world.guest();
    let mut rings = guest.connect();
    assert_eq!(world.behind(GUEST).look().held, 0);
    guest.is_served(&mut rings);
    // At a takeover, too, where the guest notices nothing.
    world.stop();
    world.behind(GUEST).look().held = 2;
    world.start();
    guest.is_served(&mut rings);
    assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "the guest noticed");
    // Told once, however often it was tried.
    let told = world.control().log.complaints();
    assert_eq!(
        told.iter().filter(|line| line.contains("held: open failed")).count(),
        1,
        "{told:?}"
    );
    world.stands();
}

#[test]
fn an_error_of_the_store_makes_no_vif_count_as_gone() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let nodes = world.toolstack.back(GUEST);
    // At each question of a takeover: what is there stays, and is served in the end.
    for (key, errno) in [
        ("frontend-id", StoreErrno::Enomem),
        ("frontend-id", StoreErrno::Eio),
        ("frontend", StoreErrno::Enomem),
        ("state", StoreErrno::Ebusy),
    ] {
        world.stop();
        world.setup.faults.plan(format!("{nodes}/{key}"), errno, 2);
        world.start();
        guest.is_served(&mut rings);
        assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "{key}: {errno}");
        assert!(world.setup.faults.are_over(), "{key}: {errno} never came");
    }
    world.stands_and(lost_at_most(4));
}

#[test]
fn a_list_that_the_store_could_not_give_is_read_again() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let nodes = world.toolstack.back(GUEST);
    let of_guest = nodes.rsplit_once('/').unwrap().0;
    let of_all = of_guest.rsplit_once('/').unwrap().0;
    for (folder, errno) in [
        (of_all, StoreErrno::Enomem),
        (of_all, StoreErrno::Eio),
        (of_guest, StoreErrno::Enomem),
        (of_guest, StoreErrno::Ebusy),
    ] {
        world.stop();
        world.setup.faults.plan(folder.into(), errno, 2);
        world.start();
        guest.is_served(&mut rings);
        assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "{folder}: {errno}");
        assert!(world.setup.faults.are_over(), "{folder}: {errno} never came");
        // Told once, however often it was asked.
        let told = world.control().log.complaints();
        let told: Vec<_> = told.iter().filter(|line| line.contains("asked again")).collect();
        assert_eq!(told.len(), 1, "{folder}: {errno}: {told:?}");
    }
    world.stands_and(lost_at_most(4));
}
