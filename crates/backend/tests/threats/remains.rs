//! A vif whose toolstack removed it while something failed: nothing of it stays.

use crate::support::eventually;
use crate::support::hostile::Hostile;
use crate::support::world::{GUEST, World};
use grantway_backend::WaitMode;
use grantway_hypervisor::StoreErrno;
use std::sync::Arc;

/// Operation that fails a few times while the remains of a vif are taken down.
#[derive(Debug, Clone, Copy)]
enum Fails {
    /// The store cannot say whether the vif is there.
    Asking,
    /// Another program holds the interface.
    Opening,
    /// The interface stays.
    Removing,
}

/// A world whose backend serves the vif.
fn served() -> (World, Hostile) {
    let mut world = World::of_workers(1, WaitMode::Interrupt, false);
    let mut guest = world.guest();
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    (world, guest)
}

/// The node by which the backend knows whether the vif is there.
fn asked(world: &World) -> String {
    format!("{}/frontend-id", world.toolstack.back(GUEST))
}

const ALL: [Fails; 3] = [Fails::Asking, Fails::Opening, Fails::Removing];

fn plan(world: &World, fails: Fails, times: u32) {
    let behind = world.ports.ever(GUEST).pop().unwrap();
    match fails {
        Fails::Asking => {
            world.setup.faults.plan(asked(world), StoreErrno::Eio, times as usize);
        }
        Fails::Opening => behind.look().held = times,
        Fails::Removing => behind.look().stuck = times,
    }
}

#[track_caller]
fn nothing_stays(world: &World, fails: Fails) {
    let journal = world.journal(GUEST);
    eventually("nothing stays of the vif", || {
        let ports = world.ports.ever(GUEST);
        let gone = ports.iter().all(|port| port.look().removed && port.look().handles == 0);
        (gone && !journal.exists()).then_some(())
    });
    for behind in world.ports.ever(GUEST) {
        let inner = behind.look();
        assert_eq!((inner.held, inner.stuck), (0, 0), "{fails:?} never came");
    }
    assert_eq!(world.setup.faults.left_of(&asked(world)), 0, "{fails:?} never came");
}

#[test]
fn a_vif_that_went_while_no_backend_ran_leaves_nothing_whatever_fails() {
    for fails in ALL {
        for times in 1..=3 {
            let (mut world, _guest) = served();
            world.stop();
            world.toolstack.remove_both(GUEST);
            plan(&world, fails, times);
            world.start();
            nothing_stays(&world, fails);
            world.bridge_stands();
        }
    }
}

/// A successor cannot read where the frontend is, and tries again. Meanwhile the vif goes.
#[test]
fn a_vif_that_goes_before_it_is_taken_over_leaves_nothing_whatever_fails() {
    for fails in ALL {
        let (mut world, _guest) = served();
        world.stop();
        let frontend = format!("{}/frontend", world.toolstack.back(GUEST));
        let faults = Arc::clone(&world.setup.faults);
        faults.plan(frontend.clone(), StoreErrno::Eio, 1000);
        world.start();
        eventually("the successor tries", || (faults.left_of(&frontend) < 1000).then_some(()));
        plan(&world, fails, 2);
        world.toolstack.remove_both(GUEST);
        nothing_stays(&world, fails);
        world.bridge_stands();
    }
}

/// The vif was served until then.
#[test]
fn a_vif_whose_interface_cannot_be_removed_at_once_leaves_nothing() {
    let (mut world, _guest) = served();
    plan(&world, Fails::Removing, 3);
    world.toolstack.remove_both(GUEST);
    nothing_stays(&world, Fails::Removing);
    world.bridge_stands();
}

/// A vif with bad nodes, which no backend took over. Its folder goes with all others.
#[test]
fn a_vif_that_was_refused_and_goes_with_all_others_leaves_nothing() {
    let (mut world, _guest) = served();
    world.stop();
    let frontend = format!("{}/frontend", world.toolstack.back(GUEST));
    world.toolstack.remove(&frontend);
    world.start();
    eventually("it is refused", || {
        world.control().log.complaints().iter().any(|line| line.contains("/frontend")).then_some(())
    });
    world.toolstack.remove("/local/domain/0/backend/vif");
    nothing_stays(&world, Fails::Opening);
    world.bridge_stands();
}
