//! The real frontend under each policy: it carries numbered frames both ways, and
//! loses none.

use crate::support::eventually;
use crate::support::honest::Honest;
use crate::support::world::{GUEST, World};
use grantway_backend::VifId;
use grantway_backend::policy::{PolicyKind, StagedQueue};
use grantway_frontend::{Policy, QueueStaging, Wishes};
use grantway_netif::ctrl::{GrefEntry, GrefFlags};

fn world() -> World {
    let world = World::new();
    // The vif that is always there uses grant copy: it rests.
    world.honest().count();
    world
}

/// The real frontend as a guest, with a backend that may offer a control ring,
/// which nobody uses: what is staged is staged by hand.
fn guest(world: &mut World, policy: Policy, control_ring: bool) -> Honest {
    let domain = world.boot(GUEST.domain);
    if control_ring {
        world.attach(GUEST, &[("feature-ctrl-ring", "1")]);
        let path = format!("{}/ctrl-ring-ref", world.toolstack.front(GUEST));
        use grantway_hypervisor::Platform;
        world.tools.store().unwrap().write(&path, b"8").unwrap();
    } else {
        world.attach(GUEST, &[]);
    }
    world.expects(GUEST);
    Honest::start_with(domain, world.ports.of(GUEST), Wishes { policy, ..Wishes::default() })
}

/// The end of every test: the guest leaves, and nothing is left of it.
fn ends(mut world: World, guest: Honest) {
    guest.lost_nothing();
    world.toolstack.ask_to_close(GUEST);
    world.toolstack.await_closed(GUEST);
    guest.leave();
    world.honest().go_on();
    world.stands();
}

#[test]
fn persistent_asks_nothing_of_the_hypervisor_once_it_is_warm() {
    let mut world = world();
    let guest = guest(&mut world, Policy::Persistent, false);
    guest.carries(600);
    let before = world.control().counters();
    guest.carries(1000);
    let spent = world.control().counters().since(&before);
    assert_eq!(spent.grant_ops(), 0, "{spent:?}");
    let report = world.control().report_of(GUEST).unwrap();
    assert_eq!(report.policy, PolicyKind::Persistent);
    assert!((257..=530).contains(&report.mapped), "{} pages mapped", report.mapped);
    ends(world, guest);
}

#[test]
fn persistent_with_few_mappings_takes_grant_copy_for_the_rest() {
    let mut world = World::new();
    world.setup.policy.pages = 40;
    world.restart();
    let guest = guest(&mut world, Policy::Persistent, false);
    guest.carries(600);
    let report = world.control().report_of(GUEST).unwrap();
    assert_eq!((report.policy, report.mapped), (PolicyKind::Persistent, 40));
    assert!(report.stats.mapped_hits > 0 && report.stats.mapped_misses > 0);
    guest.lost_nothing();
    world.toolstack.ask_to_close(GUEST);
    world.toolstack.await_closed(GUEST);
    guest.leave();
    world.stands_and(|_| ());
}

#[test]
fn a_backend_that_offers_less_is_taken_at_its_word() {
    for (most, wished, expected) in [
        (PolicyKind::Copy, Policy::Staging, PolicyKind::Copy),
        (PolicyKind::Copy, Policy::Persistent, PolicyKind::Copy),
        (PolicyKind::Persistent, Policy::Staging, PolicyKind::Persistent),
        (PolicyKind::Staging, Policy::Persistent, PolicyKind::Persistent),
        (PolicyKind::Staging, Policy::Copy, PolicyKind::Copy),
    ] {
        let mut world = World::new();
        world.setup.policy.most = most;
        world.restart();
        let guest = guest(&mut world, wished, false);
        guest.carries(50);
        let report = world.control().report_of(GUEST).unwrap();
        assert_eq!(report.policy, expected, "{wished} of at most {most}");
        guest.lost_nothing();
        world.toolstack.ask_to_close(GUEST);
        world.toolstack.await_closed(GUEST);
        guest.leave();
        world.stands_and(|_| ());
    }
}

/// What control messages will do: adds all pages, says that they are staged.
fn stage(queue: &StagedQueue, staging: &QueueStaging) {
    for part in entries(staging).chunks(512) {
        queue.add(part).unwrap();
    }
    staging.set_staged(staging.pages().len());
}

fn unstage(queue: &StagedQueue, staging: &QueueStaging) {
    staging.set_staged(0);
    for part in entries(staging).chunks_mut(100) {
        assert_eq!(queue.del(part), part.len());
    }
}

fn entries(staging: &QueueStaging) -> Vec<GrefEntry> {
    let entry = |page: &grantway_frontend::StagingPage| GrefEntry {
        gref: page.gref.0,
        flags: if page.readonly { GrefFlags::READONLY } else { GrefFlags::empty() },
        status: 0,
    };
    staging.pages().iter().map(entry).collect()
}

fn queue_of(world: &World, vif: VifId) -> StagedQueue {
    eventually("what the vif has staged", || {
        world.control().with(move |backend| backend.staged(vif, 0))
    })
}

#[test]
fn staging_is_added_removed_and_added_again_under_load() {
    let mut world = world();
    let guest = guest(&mut world, Policy::Staging, true);
    let queue = queue_of(&world, GUEST);
    let staging = guest.staging();
    assert_eq!((staging.len(), staging[0].pages().len()), (1, 16 + 256 + 256));
    guest.carries(100);
    assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 0);
    for round in 0..3 {
        stage(&queue, &staging[0]);
        guest.carries(50);
        let before = world.control().counters();
        guest.carries(600);
        let spent = world.control().counters().since(&before);
        assert_eq!(spent.grant_ops(), 0, "round {round}: {spent:?}");
        assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 528);
        unstage(&queue, &staging[0]);
        assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 0, "round {round}");
        guest.carries(50);
    }
    stage(&queue, &staging[0]);
    guest.carries(100);
    drop(queue);
    ends(world, guest);
}
