//! The real frontend under each policy: it carries numbered frames both ways, and
//! loses none.

use crate::support::control::Time;
use crate::support::eventually;
use crate::support::honest::Honest;
use crate::support::world::{GUEST, World};
use grantway_backend::VifId;
use grantway_backend::policy::Policy;
use grantway_frontend::Wishes;
use grantway_hypervisor::DomId;

/// Pages of a queue of the real frontend that are to be staged.
const PAGES: usize = 16 + 128 + 128;

fn world() -> World {
    let world = World::new();
    // The vif that is always there uses grant copy: it rests.
    world.honest().count(0);
    world
}

/// The real frontend as a guest.
fn guest(world: &mut World, policy: Policy) -> Honest {
    guest_with(world, Wishes { policy, ..Wishes::default() })
}

fn guest_with(world: &mut World, wishes: Wishes) -> Honest {
    let domain = world.boot(GUEST.domain);
    world.attach(GUEST, &[]);
    world.expects(GUEST);
    Honest::start_with(domain, world.ports.of(GUEST), wishes)
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

/// Stages all pages of a queue, and waits until they are staged.
fn stages_all(guest: &Honest, queue: u16) {
    guest.wishes_for(queue, usize::MAX);
    guest.has_all_staged(queue);
}

/// Checks that many packets go both ways, and that none of them takes a grant copy. A queue
/// that becomes busy has further pages mapped before it uses them. (The list that names these
/// pages is copied.)
fn costs_nothing(world: &World, guest: &Honest) {
    let moved = || {
        let stats = world.control().report_of(GUEST).unwrap().stats;
        (stats.mapped_hits, stats.mapped_misses)
    };
    guest.carries(50);
    let (hits, misses) = moved();
    guest.carries(600);
    let (hits, misses) = (moved().0 - hits, moved().1 - misses);
    assert!(hits >= 1000 && misses == 0, "{hits} pieces in mapped pages, {misses} copied");
}

/// The backend has the pages mapped that the guest has staged, `least` or more.
fn has_mapped(world: &World, guest: &Honest, least: usize) {
    eventually("the pages that are mapped", || {
        let staged = guest.staging().iter().map(|queue| queue.staged).sum::<usize>();
        let mapped = world.control().report_of(GUEST)?.mapped;
        (mapped == staged && mapped >= least).then_some(())
    });
}

#[test]
fn persistent_needs_no_hypervisor_call_once_all_pages_are_mapped() {
    let mut world = world();
    // What nobody asked for in a minute is unmapped.
    world.setup.time = Time::Stands;
    world.restart();
    let guest = guest(&mut world, Policy::Persistent);
    guest.carries(600);
    // A page is warm once a packet lay in it, and how many are in use at a time is
    // the scheduler's to say: a round that asks anything maps pages that had not been
    // used, and the pool has no more than 402. Each frame was copied once; where they come few at
    // a time, those that are mapped are mapped anew together.
    loop {
        let before = world.control().counters();
        guest.carries(1000);
        let spent = world.control().counters().since(&before);
        let report = world.control().report_of(GUEST).unwrap();
        assert_eq!(report.policy, Policy::Persistent);
        assert!((129..=402).contains(&report.mapped), "{} pages mapped", report.mapped);
        // A page has two frames at most.
        let pages = spent.maps - spent.unmaps;
        assert!((pages..=2 * pages).contains(&spent.copies), "{spent:?}");
        assert_eq!(report.stats.mapped_evicted, 0);
        if spent.grant_ops() == 0 {
            break;
        }
    }
    ends(world, guest);
}

#[test]
fn persistent_with_few_mappings_takes_grant_copy_for_the_rest() {
    let mut world = World::new();
    world.setup.policy.pages = 40;
    world.restart();
    let guest = guest(&mut world, Policy::Persistent);
    guest.carries(600);
    let report = world.control().report_of(GUEST).unwrap();
    assert_eq!((report.policy, report.mapped), (Policy::Persistent, 40));
    assert!(report.stats.mapped_hits > 0 && report.stats.mapped_misses > 0);
    guest.lost_nothing();
    world.toolstack.ask_to_close(GUEST);
    world.toolstack.await_closed(GUEST);
    guest.leave();
    world.stands_and(|_| ());
}

#[test]
fn the_policy_is_the_lesser_of_wish_and_offer() {
    for (most, wished, expected) in [
        (Policy::Copy, Policy::Staging, Policy::Copy),
        (Policy::Copy, Policy::Persistent, Policy::Copy),
        (Policy::Persistent, Policy::Staging, Policy::Persistent),
        (Policy::Map, Policy::Persistent, Policy::Map),
        (Policy::Staging, Policy::Persistent, Policy::Persistent),
        (Policy::Staging, Policy::Copy, Policy::Copy),
    ] {
        let mut world = World::new();
        world.setup.policy.most = most;
        world.restart();
        let guest = guest(&mut world, wished);
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

#[test]
fn staging_is_asked_for_by_the_frontend_and_costs_nothing_a_packet() {
    for queues in [1, 2] {
        let mut world = world();
        let wishes = Wishes { queues, policy: Policy::Staging, ..Wishes::default() };
        let guest = guest_with(&mut world, wishes);
        (0..queues).for_each(|queue| guest.has_all_staged(queue));
        costs_nothing(&world, &guest);
        assert_eq!(world.control().report_of(GUEST).unwrap().policy, Policy::Staging);
        has_mapped(&world, &guest, usize::from(queues) * PAGES);
        ends(world, guest);
    }
}

#[test]
fn staging_is_removed_and_added_again_under_load() {
    let mut world = world();
    let guest = guest(&mut world, Policy::Staging);
    for round in 0..3 {
        stages_all(&guest, 0);
        costs_nothing(&world, &guest);
        has_mapped(&world, &guest, PAGES);
        for pages in [200, 16, 3, 0] {
            guest.stages(0, pages);
            assert_eq!(world.control().report_of(GUEST).unwrap().mapped, pages, "round {round}");
            guest.carries(50);
        }
    }
    stages_all(&guest, 0);
    guest.carries(100);
    ends(world, guest);
}

#[test]
fn staging_to_some_queues_only() {
    let mut world = world();
    let wishes = Wishes { queues: 2, policy: Policy::Staging, ..Wishes::default() };
    let guest = guest_with(&mut world, wishes);
    guest.stages(1, 0);
    guest.has_all_staged(0);
    guest.carries(200);
    has_mapped(&world, &guest, PAGES);
    guest.stages(0, 100);
    guest.stages(1, 20);
    guest.carries(200);
    assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 120);
    ends(world, guest);
}

#[test]
fn two_vifs_of_one_backend_use_two_policies() {
    let mut world = world();
    let other = VifId { domain: DomId(11), devid: 0 };
    let staging = guest(&mut world, Policy::Staging);
    let domain = world.boot(other.domain);
    world.attach(other, &[]);
    world.expects(other);
    let wishes = Wishes { policy: Policy::Persistent, ..Wishes::default() };
    let persistent = Honest::start_with(domain, world.ports.of(other), wishes);
    staging.has_all_staged(0);
    // Each page is mapped once it was used, the last of them by chance.
    eventually("packets without grant operations", || {
        let before = world.control().counters();
        [&staging, &persistent].into_iter().for_each(|guest| guest.carries(300));
        (world.control().counters().since(&before).grant_ops() == 0).then_some(())
    });
    let policy = |vif| world.control().report_of(vif).unwrap().policy;
    assert_eq!((policy(GUEST), policy(other)), (Policy::Staging, Policy::Persistent));
    persistent.lost_nothing();
    world.toolstack.ask_to_close(other);
    world.toolstack.await_closed(other);
    persistent.leave();
    staging.carries(50);
    ends(world, staging);
}

#[test]
fn staging_beyond_the_quota_stages_the_pages_that_fit() {
    let mut world = World::new();
    world.setup.policy.pages = 500;
    world.restart();
    let wishes = Wishes { queues: 2, policy: Policy::Staging, ..Wishes::default() };
    let guest = guest_with(&mut world, wishes);
    eventually("the pages at rest", || (guest.staging()[0].staged >= PAGES).then_some(()));
    eventually("a refusal", || guest.staging()[1].refusal);
    let [one, other] = guest.staging()[..] else { panic!("two queues") };
    assert_eq!((one.refusal, one.capacity), (None, Some(500)));
    assert!(other.staged > 0 && one.staged + other.staged <= 500, "{other:?}");
    guest.carries(300);
    guest.lost_nothing();
    world.toolstack.ask_to_close(GUEST);
    world.toolstack.await_closed(GUEST);
    guest.leave();
    world.stands_and(|_| ());
}

#[test]
fn a_backend_without_staging_uses_grant_copy() {
    // It has a control ring all the same, for the hash, and says what that is not for.
    let mut world = World::new();
    world.setup.policy.most = Policy::Copy;
    world.restart();
    let guest = guest(&mut world, Policy::Staging);
    guest.carries(200);
    assert_eq!(guest.staging(), [], "it is not asked");
    let said = world.toolstack.backend_key(GUEST, "feature-staging");
    assert_eq!(said.as_deref(), Some("0"));
    let report = world.control().report_of(GUEST).unwrap();
    assert_eq!((report.policy, report.stats.ctrl_requests), (Policy::Copy, 0));
    guest.lost_nothing();
    world.toolstack.ask_to_close(GUEST);
    world.toolstack.await_closed(GUEST);
    guest.leave();
    world.stands_and(|_| ());
}

#[test]
fn staged_pages_outlive_the_backend() {
    // The same connection goes on with what it has staged.
    let mut world = world();
    let guest = guest(&mut world, Policy::Staging);
    guest.has_all_staged(0);
    guest.stages(0, 200);
    for _ in 0..3 {
        guest.carries(100);
        world.stop();
        world.start();
        guest.carries(50);
        assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 200);
    }
    assert_eq!(guest.connections(), 1);
    let [state] = guest.staging()[..] else { panic!("one queue") };
    assert_eq!((state.staged, state.refusal), (200, None));
    guest.stages(0, 0);
    assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 0);
    stages_all(&guest, 0);
    costs_nothing(&world, &guest);
    world.toolstack.ask_to_close(GUEST);
    world.toolstack.await_closed(GUEST);
    guest.leave();
    world.honest().go_on();
    world.stands_and(|_| ());
}
