//! A takeover during which the kernel or the hypervisor has nothing to give for a moment, and
//! one by a backend that is allowed less.

use crate::ctrl::connected_all;
use crate::restart::lost_at_most;
use crate::support::control::Time;
use crate::support::ctrl::Lists;
use crate::support::eventually;
use crate::support::faulty::Asked;
use crate::support::hostile::{Hostile, frame};
use crate::support::port::Call;
use crate::support::rings::{Rings, slot};
use crate::support::world::{GUEST, World};
use grantway_backend::WaitMode;
use grantway_backend::policy::Policy;
use grantway_hypervisor::{Access, DomId, Error, GrantRef, GrantStatus, Port};
use grantway_netif::ctrl::{GrefEntry, GrefFlags, Message, Status};
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Offload, XenbusState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);

fn os(call: &str) -> Error {
    Error::Os { call: call.into(), reason: "planned".into(), remedy: "none" }
}

/// Returns the operations that fail, each with its error.
fn troubles() -> [(Asked, Error); 5] {
    let (what, limit, remedy) = ("gntdev", 1, "none");
    let (domain, why) = (GUEST.domain, "bound already");
    [
        (Asked::Map, os("mmap")),
        (Asked::Map, Error::Exhausted { what, limit, remedy }),
        (Asked::Map, Error::Grant { domain, gref: GrantRef(8), status: GrantStatus::EAGAIN }),
        (Asked::Bind, Error::Event { domain, port: Port(1), why }),
        (Asked::Bind, os("open evtchn")),
    ]
}

fn staged(pages: &grantway_hypervisor::Granted, flags: GrefFlags) -> Vec<GrefEntry> {
    pages.grefs.iter().map(|gref| GrefEntry { gref: gref.0, flags, status: 0 }).collect()
}

/// A guest of two queues with pages staged, whose backend's time stands.
fn connected(world: &mut World) -> (Hostile, Lists, Vec<Rings>) {
    world.setup.time = Time::Stands;
    world.restart();
    let mut guest = world.guest();
    let (ring, queues) = connected_all(&mut guest, 2);
    let page = guest.pages(1, Access::ReadWrite);
    let mut lists = Lists { ring, page };
    let pages = guest.pages(10, Access::ReadWrite);
    assert_eq!(lists.add(&mut guest, &staged(&pages, GrefFlags::empty())), Ok(0));
    std::mem::forget(pages);
    (guest, lists, queues)
}

/// The guest and its vif go, and leave nothing.
fn leaves(world: World, guest: &mut Hostile) {
    guest.state(XenbusState::Closed);
    world.bridge_stands();
}

#[test]
fn takeover_is_tried_again_where_a_page_or_a_port_cannot_be_had_for_a_moment() {
    let mut world = World::of_workers(1, WaitMode::Interrupt, false);
    let (mut guest, _lists, mut queues) = connected(&mut world);
    let (_memory, gref) = guest.page(&frame(60));
    let downs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&downs);
    world.behind(GUEST).hook(move |call| {
        counted.fetch_add(u32::from(call == Call::SetLink(false)), SeqCst);
    });
    for (asked, error) in troubles() {
        for times in 1..=3 {
            for before in 0.. {
                world.stop();
                // What nobody serves yet waits on both rings.
                for (id, rings) in (100..).zip(&mut queues) {
                    rings.put_tx(&[slot(gref, 0, 60, id, TxFlags::empty())]);
                    guest.kick(rings.tx_event);
                }
                world.setup.faults.plan_row(asked, before, times, error.clone());
                world.start();
                for (id, rings) in (100..).zip(&mut queues) {
                    let answers = eventually("its answer", || {
                        assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "{error}");
                        world.control().passes(STEP);
                        Some(rings.tx_answers()).filter(|answers| !answers.is_empty())
                    });
                    let answers: Vec<_> = answers.iter().map(|a| (a.id, a.status)).collect();
                    assert_eq!(answers, [(id, status::OKAY)], "{times} times {error}");
                }
                // Nothing of its journal is lost: neither by what failed, nor for the next.
                let journal = std::fs::read(world.journal(GUEST)).unwrap();
                let in_service = |queue: usize| journal[queue * 4096 + 60];
                assert_eq!([in_service(0), in_service(1)], [1, 1], "{times} times {error}");
                if world.setup.faults.end_row() == times {
                    break;
                }
            }
        }
    }
    world.restart();
    eventually("the staged pages are mapped again", || {
        (world.control().report_of(GUEST)?.mapped == 10).then_some(())
    });
    queues.iter_mut().for_each(|rings| guest.is_served(rings));
    assert_eq!(downs.load(SeqCst), 0, "the carrier went");
    leaves(world, &mut guest);
}

#[test]
fn takeover_that_fails_for_good_ends_in_closing() {
    for (asked, error) in troubles() {
        let mut world = World::of_workers(1, WaitMode::Interrupt, false);
        let (mut guest, lists, queues) = connected(&mut world);
        world.stop();
        world.setup.faults.plan_row(asked, 0, usize::MAX, error.clone());
        world.start();
        let mut waited = Duration::ZERO;
        eventually("the backend closes", || {
            let state = guest.backend_state();
            if state == Some(XenbusState::Closing) {
                return Some(());
            }
            assert_eq!(state, Some(XenbusState::Connected));
            world.control().passes(STEP);
            waited += STEP;
            None
        });
        assert!(waited >= Duration::from_secs(1), "given up after {waited:?}: {error}");
        let complaints = world.control().log.complaints();
        let told = complaints.iter().filter(|line| line.contains(&error.to_string())).count();
        // That it is tried again, and that it was given up.
        assert_eq!(told, 2, "{complaints:?}");
        assert_eq!(guest.backend_key("error"), Some(error.to_string()));
        // Nobody takes it over later.
        let journal = std::fs::read(world.journal(GUEST)).unwrap();
        assert_eq!([journal[60], journal[4096 + 60]], [0, 0], "{error}");
        world.holds_nothing_of(GUEST.domain);
        world.setup.faults.end_row();
        guest.events.close(lists.ring.event);
        for rings in queues {
            guest.events.close(rings.tx_event);
            guest.events.close(rings.rx_event);
        }
        for key in ["ctrl-ring-ref", "event-channel-ctrl", "multi-queue-num-queues"] {
            guest.unkey(key);
        }
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        leaves(world, &mut guest);
    }
}

/// The guest shows other rings while the first ones cannot be taken over yet.
#[test]
fn takeover_refuses_other_rings_than_the_journal_names() {
    let mut world = World::of_workers(1, WaitMode::Interrupt, false);
    let (mut guest, _lists, queues) = connected(&mut world);
    world.stop();
    world.setup.faults.plan_row(Asked::Map, 0, usize::MAX, os("mmap"));
    world.start();
    world.settle();
    guest.key("queue-0/tx-ring-ref", &queues[1].tx_ring.grefs[0].to_string());
    world.setup.faults.end_row();
    eventually("the backend closes", || {
        world.control().passes(STEP);
        (guest.backend_state() == Some(XenbusState::Closing)).then_some(())
    });
    let error = guest.backend_key("error").unwrap();
    assert!(error.contains("other rings"), "{error}");
    world.holds_nothing_of(GUEST.domain);
    leaves(world, &mut guest);
}

/// A backend without staging gives back what one before it had staged, and no later one has it.
#[test]
fn staged_pages_come_back_from_a_backend_that_stages_nothing() {
    for between in [Policy::Copy, Policy::Map, Policy::Persistent] {
        let mut world = World::with(DomId(0), WaitMode::Interrupt, false);
        let mut guest = world.guest();
        let (mut lists, mut rings) = Lists::connect(&mut guest);
        let pages = guest.pages(8, Access::ReadWrite);
        let list = staged(&pages, GrefFlags::READONLY);
        assert_eq!(lists.add(&mut guest, &list), Ok(0));
        world.stop();
        world.setup.policy.most = between;
        world.start();
        let (kept, gone) = list.split_at(2);
        assert_eq!(lists.del(&mut guest, gone), Ok(6));
        assert_eq!(lists.del(&mut guest, &[kept, gone].concat()), Ok(2), "each comes back once");
        guest.is_served(&mut rings);
        world.stop();
        world.setup.policy.most = Policy::Staging;
        world.start();
        // Others than before: the guest has them for what it likes: to receive, here.
        guest.post(&mut rings, &pages.grefs);
        for _ in 0..8 {
            world.behind(GUEST).give(frame(60), Offload::default());
        }
        let answers = guest.rx_answers(&mut rings, 8);
        let lengths: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(lengths, [60; 8], "after {between}");
        assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 0, "after {between}");
        // And lists them anew.
        let list = staged(&pages, GrefFlags::empty());
        assert_eq!(lists.add(&mut guest, &list), Ok(0), "after {between}");
        assert_eq!(lists.del(&mut guest, &list), Ok(8), "after {between}");
        world.stands_and(lost_at_most(4));
    }
}

/// A guest may ask for more while a backend without staging has its connection. That is refused,
/// and changes nothing: the next backend with staging has what was staged before.
#[test]
fn staged_pages_outlast_a_list_that_a_backend_without_staging_refuses() {
    for between in [Policy::Copy, Policy::Map, Policy::Persistent] {
        let mut world = World::with(DomId(0), WaitMode::Interrupt, false);
        let mut guest = world.guest();
        let (mut lists, mut rings) = Lists::connect(&mut guest);
        let pages = [8, 4].map(|count| guest.pages(count, Access::ReadWrite));
        let [first, more] = pages.each_ref().map(|pages| staged(pages, GrefFlags::empty()));
        assert_eq!(lists.add(&mut guest, &first), Ok(0));
        // Two that stage nothing, one after the other.
        for _ in 0..2 {
            world.stop();
            world.setup.policy.most = between;
            world.start();
            assert_eq!(lists.add(&mut guest, &more), Err(Status::NotSupported));
            let capacity = Message::GetGrefMappingSize { queue: 0 };
            assert_eq!(lists.ring.ask(&mut guest, capacity), Err(Status::NotSupported));
            assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 0, "by {between}");
            guest.is_served(&mut rings);
        }
        assert_eq!(lists.del(&mut guest, &first[6..]), Ok(2));
        world.stop();
        world.setup.policy.most = Policy::Staging;
        world.start();
        guest.is_served(&mut rings);
        assert_eq!(world.control().report_of(GUEST).unwrap().mapped, 6, "after {between}");
        assert_eq!(lists.add(&mut guest, &more), Ok(0), "after {between}");
        assert_eq!(lists.del(&mut guest, &first), Ok(6), "after {between}");
        assert_eq!(lists.del(&mut guest, &more), Ok(4), "after {between}");
        world.stands_and(lost_at_most(4));
    }
}
