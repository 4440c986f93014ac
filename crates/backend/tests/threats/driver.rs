//! A backend in a driver domain, which may read only what it is allowed to.

use crate::support::hostile::Hostile;
use crate::support::toolstack::owned_by;
use crate::support::world::{GUEST, World};
use crate::support::{eventually, toolstack};
use grantway_backend::{VifId, WaitMode};
use grantway_hypervisor::DomId;
use grantway_netif::XenbusState;
use grantway_ring::{Index, RingMemory};

const DRIVER: DomId = DomId(3);

fn world() -> World {
    World::with(DRIVER, WaitMode::Interrupt, false)
}

#[test]
fn a_driver_domain_serves_as_domain_0_does() {
    let mut world = world();
    let mut guest = world.guest();
    for _ in 0..3 {
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        rings.tx.store(Index::ReqProd, 1000);
        guest.kick(rings.tx_event);
        guest.await_disabled();
        world.holds_nothing_of(GUEST.domain);
    }
    world.stands();
}

#[test]
fn the_frontend_folder_is_removed_first() {
    // With the folder goes the right to see that it is not there.
    let mut world = world();
    let mut guest = world.guest();
    for round in 0..4 {
        if round > 0 {
            world.attach(GUEST, &[]);
        }
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        match round {
            0 => world.toolstack.remove_both(GUEST),
            1 => {
                world.toolstack.remove_frontend(GUEST);
                eventually("the backend let go", || {
                    (world.table(GUEST.domain).grants_held == 0).then_some(())
                });
            }
            2 => {
                world.toolstack.remove_frontend(GUEST);
                world.toolstack.ask_to_close(GUEST);
                world.toolstack.await_closed(GUEST);
            }
            _ => {
                world.toolstack.ask_to_close(GUEST);
                world.toolstack.remove_frontend(GUEST);
                world.toolstack.await_closed(GUEST);
            }
        }
        world.detaches(GUEST);
        world.holds_nothing_of(GUEST.domain);
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
    }
    world.stands();
}

#[test]
fn a_guest_that_hides_its_nodes_is_detached_all_the_same() {
    let mut world = world();
    let mut guest = world.guest();
    for hidden in ["state", "tx-ring-ref", "request-rx-copy", "event-channel-tx"] {
        for when_connected in [false, true] {
            hide(&mut world, &mut guest, hidden, when_connected);
        }
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn a_folder_that_may_not_be_read_costs_no_other_vif() {
    let mut world = world();
    let mut guest = world.guest();
    guest.await_backend(XenbusState::InitWait);
    let other = VifId { domain: GUEST.domain, devid: 1 };
    for hidden in ["frontend-id", "frontend", "state", "online", "mtu", "vifname", ""] {
        let back = world.toolstack.back(other);
        let path = format!("{back}/{hidden}");
        let path = path.trim_end_matches('/');
        // In one transaction, so that the backend sees it no other way.
        let (tools, path) = (&mut world.toolstack, path.to_owned());
        tools.attach_and(other, &[("mtu", "1400"), ("vifname", "eth")], |tx| {
            tx.set_permissions(&path, &[owned_by(DomId(0))])
        });
        world.settle();
        world.honest().carries(4);
        world.detaches(other);
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

fn hide(world: &mut World, guest: &mut Hostile, hidden: &str, when_connected: bool) {
    guest.await_backend(XenbusState::InitWait);
    let rings = guest.rings();
    guest.publish(&rings);
    let path = format!("{}/{hidden}", toolstack::frontend_path(GUEST));
    if when_connected {
        guest.state(XenbusState::Connected);
        guest.await_backend(XenbusState::Connected);
    }
    guest.store.set_permissions(&path, &[owned_by(GUEST.domain)]).unwrap();
    guest.state(XenbusState::Connected);
    world.settle();
    world.honest().carries(4);
    // The toolstack asks, and need not resort to force.
    world.toolstack.ask_to_close(GUEST);
    eventually("the backend let go", || (world.table(GUEST.domain).grants_held == 0).then_some(()));
    world.detaches(GUEST);
    guest.events.close(rings.tx_event);
    guest.events.close(rings.rx_event);
    world.attach(GUEST, &[]);
}
