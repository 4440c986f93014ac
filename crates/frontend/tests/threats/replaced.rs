//! Devices that are made anew in the vif's place, by a toolstack or by a kernel.

use crate::support::world::{World, paths};
use grantway_frontend::{Reopen, VifError, VifStatus};
use grantway_netif::XenbusState;

#[test]
fn a_backend_that_crashed_is_replaced_by_one_of_another_domain() {
    // Before it offered anything, while it connects, and while frames flow. The removal of the
    // folder is seen, or goes unseen.
    for (moment, seen) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true)] {
        let mut world = World::new();
        let mut rings = None;
        match moment {
            0 => {}
            1 => world.published(),
            _ => {
                let mut made = world.connect();
                world.works(&mut made);
                rings = Some(made);
            }
        }
        if seen {
            world.toolstack.remove(&paths().0).unwrap();
            world.until(VifStatus::Gone);
        }
        let dead = world.replace();
        world.until(VifStatus::Replaced);
        // What the dead one held goes with its domain.
        drop((dead, rings));
        world.vif.renew().unwrap();
        let mut rings = world.connect();
        world.works(&mut rings);
        world.ends(rings);
    }
}

#[test]
fn a_frontend_that_took_the_vif_meanwhile_is_noticed() {
    let mut world = World::new();
    let mut rings = world.connect();
    world.works(&mut rings);
    // The kernel's driver shows a state of its own.
    let state = format!("{}/state", paths().0);
    world.toolstack.write(&state, b"6").unwrap();
    world.until(VifStatus::Replaced);
    world.server.detach(rings);
    world.server.state(XenbusState::Closed);
    // Nothing goes on before we are told so.
    world.look();
    assert_eq!(world.server.front_state(), Some(XenbusState::Closed));
    world.vif.renew().unwrap();
    let mut rings = world.connect();
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn a_device_that_goes_while_it_is_looked_up() {
    let mut world = World::new();
    world.replace();
    world.until(VifStatus::Replaced);
    world.toolstack.remove(&paths().0).unwrap();
    assert!(matches!(world.vif.renew(), Err(VifError::NoVif { .. })));
    world.until(VifStatus::Gone);
    world.replace();
    world.until(VifStatus::Replaced);
    world.vif.renew().unwrap();
    let mut rings = world.connect();
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn initialising_is_never_shown_where_it_makes_a_new_device() {
    let mut world = World::new();
    let mut rings = world.connect();
    world.works(&mut rings);
    world.server.detach(rings);
    let state = format!("{}/state", paths().0);
    world.toolstack.write(&state, b"6").unwrap();
    world.server.state(XenbusState::Closed);
    world.until(VifStatus::Replaced);
    world.vif.set_reopen(Reopen::Connected);
    world.vif.renew().unwrap();
    // The backend finds the keys and Connected while it is in Closed, and so after each failure.
    for _ in 0..3 {
        let mut rings = world.connect_as_offered();
        world.works(&mut rings);
        world.server.detach(rings);
        world.server.state(XenbusState::Closing);
        world.until_shown(XenbusState::Closed);
        world.server.state(XenbusState::Closed);
    }
    let mut rings = world.connect_as_offered();
    world.works(&mut rings);
    world.ends(rings);
}
