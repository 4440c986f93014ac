//! A store that fails for a moment, at each question of each handshake. Nothing but time
//! passes afterwards, and both ends meet.

use crate::support::control::{Control, Time};
use crate::support::eventually;
use crate::support::faulty::Asked;
use crate::support::hostile::{Hostile, frame};
use crate::support::port::Call;
use crate::support::rings::{Rings, slot};
use crate::support::world::{GUEST, World};
use grantway_backend::{VifId, WaitMode};
use grantway_hypervisor::{DomId, StoreErrno};
use grantway_netif::XenbusState as S;
use grantway_netif::tx::{TxFlags, status};
use grantway_ring::{Index, RingMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);

/// Lets the backend's time pass until `look` finds something.
#[track_caller]
fn in_time<T>(control: &Control, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    eventually(what, || {
        let found = look();
        if found.is_none() {
            control.passes(STEP);
        }
        found
    })
}

/// Part of a connection's life, from the state in which the part before ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    /// The vif goes from attached to served, with a hotplug script if there is one.
    Connect,
    /// The guest closes and connects again.
    Reconnect,
    /// The guest breaks its ring, and connects again.
    Fail,
    /// Another backend process takes over.
    Takeover,
    /// The toolstack asks the backend to close the vif.
    Detach,
}

const HANDSHAKES: [Handshake; 5] = [
    Handshake::Connect,
    Handshake::Reconnect,
    Handshake::Fail,
    Handshake::Takeover,
    Handshake::Detach,
];

/// A guest under test, beside two others.
struct Scene {
    world: World,
    guest: Hostile,
    rings: Option<Rings>,
    beside: Vec<(Hostile, Rings)>,
    /// Number of times that a connection of the guests beside it ended.
    ended: Arc<AtomicU32>,
    watches: u32,
}

impl Scene {
    fn new(hotplug: bool) -> Self {
        let mut world = World::of_workers(1, WaitMode::Interrupt, false);
        world.setup.time = Time::Stands;
        world.setup.hotplug = hotplug;
        world.restart();
        let ended = Arc::new(AtomicU32::new(0));
        let mut beside = Vec::new();
        for domain in [11, 12] {
            let vif = VifId { domain: DomId(domain), devid: 0 };
            let mut guest = world.guest_of(vif);
            let rings = guest.connect();
            let ended = Arc::clone(&ended);
            world.behind(vif).hook(move |call| {
                ended.fetch_add(u32::from(call == Call::SetLink(false)), SeqCst);
            });
            beside.push((guest, rings));
        }
        let domain = world.boot(GUEST.domain);
        let guest = Hostile::new(domain, GUEST, world.setup.domain);
        let watches = world.table(DomId(0)).store_watches;
        Self { world, guest, rings: None, beside, ended, watches }
    }

    /// Waits until the backend shows one of these states.
    #[track_caller]
    fn shows(&mut self, states: &[S]) {
        let what = format!("the backend's {states:?}");
        let guest = &mut self.guest;
        in_time(self.world.control(), &what, || {
            guest.backend_state().filter(|now| states.contains(now))
        });
    }

    /// Connects from Initialising on, with new rings.
    #[track_caller]
    fn connects(&mut self) {
        if let Some(rings) = self.rings.take() {
            self.guest.events.close(rings.tx_event);
            self.guest.events.close(rings.rx_event);
        }
        self.guest.state(S::Initialising);
        self.shows(&[S::InitWait]);
        let rings = self.guest.rings();
        self.guest.publish(&rings);
        self.guest.state(S::Connected);
        self.rings = Some(rings);
        if self.world.setup.hotplug {
            let path = format!("{}/hotplug-status", self.world.toolstack.back(GUEST));
            self.world.toolstack.store.write(&path, b"connected").unwrap();
        }
        self.shows(&[S::Connected]);
    }

    /// Checks that every guest's frames go through, and that the guests beside noticed nothing.
    #[track_caller]
    fn all_are_served(&mut self) {
        let control = self.world.control();
        let own = self.rings.as_mut().map(|rings| (&mut self.guest, rings));
        let others = self.beside.iter_mut().map(|(guest, rings)| (guest, rings));
        for (guest, rings) in own.into_iter().chain(others) {
            let (_memory, gref) = guest.page(&frame(60));
            rings.put_tx(&[slot(gref, 0, 60, 77, TxFlags::empty())]);
            guest.kick(rings.tx_event);
            let answer = in_time(control, "an answer", || rings.tx_answers().pop());
            assert_eq!((answer.id, answer.status), (77, status::OKAY));
            assert_eq!(guest.backend_state(), Some(S::Connected), "vif {}", guest.vif);
        }
        assert_eq!(self.ended.load(SeqCst), 0, "a vif beside it noticed");
    }

    #[track_caller]
    fn does(&mut self, handshake: Handshake, planned: impl FnOnce(&World)) {
        match handshake {
            Handshake::Connect => {
                planned(&self.world);
                self.world.attach(GUEST, &[("hotplug-status", "")]);
                self.connects();
            }
            Handshake::Reconnect => {
                planned(&self.world);
                self.guest.state(S::Closing);
                self.shows(&[S::Closing, S::Closed]);
                self.guest.state(S::Closed);
                self.shows(&[S::Closed]);
                self.connects();
            }
            Handshake::Fail => {
                planned(&self.world);
                let rings = self.rings.as_mut().unwrap();
                rings.tx.store(Index::ReqProd, rings.tx_prod.wrapping_add(1000));
                self.guest.kick(rings.tx_event);
                self.shows(&[S::Closing]);
                self.guest.state(S::Closed);
                self.shows(&[S::Closed]);
                self.connects();
            }
            Handshake::Takeover => {
                self.world.stop();
                planned(&self.world);
                self.world.start();
                let held = |world: &World| world.control().report().len() == 3;
                in_time(self.world.control(), "all vifs taken up", || {
                    held(&self.world).then_some(())
                });
            }
            Handshake::Detach => {
                planned(&self.world);
                self.world.toolstack.ask_to_close(GUEST);
                self.shows(&[S::Closing, S::Closed]);
                self.guest.state(S::Closed);
                self.shows(&[S::Closed]);
                self.world.toolstack.remove_both(GUEST);
                let world = &self.world;
                in_time(world.control(), "the vif is forgotten", || {
                    world.control().report_of(GUEST).is_none().then_some(())
                });
                world.holds_nothing_of(GUEST.domain);
                let world = &mut self.world;
                let back = world.toolstack.back(GUEST);
                assert_eq!(world.toolstack.read(&back), None, "{back} came back to life");
                assert!(!world.journal(GUEST).exists(), "the journal is left");
                let removed = |world: &World| {
                    let ports = world.ports.ever(GUEST);
                    ports.iter().all(|port| port.look().removed && port.look().handles == 0)
                };
                assert!(removed(world), "the port is left");
                let rings = self.rings.take().unwrap();
                self.guest.events.close(rings.tx_event);
                self.guest.events.close(rings.rx_event);
                let watches = self.watches;
                in_time(self.world.control(), "its watches end", || {
                    (self.world.table(DomId(0)).store_watches == watches).then_some(())
                });
            }
        }
        self.all_are_served();
    }

    /// The handshake again and again, until none of its questions is left to fail.
    #[track_caller]
    fn fails_at_each(&mut self, one: Handshake, asked: Asked, times: usize, errno: StoreErrno) {
        // A backend that cannot watch for vifs does not start.
        let first = usize::from((one, asked) == (Handshake::Takeover, Asked::Watch));
        for before in first.. {
            eprintln!("{one:?}: {asked:?} {before}: {times} times {errno}");
            // What comes before and after it goes well.
            if self.rings.is_some() && one == Handshake::Connect {
                self.does(Handshake::Detach, |_| ());
            } else if self.rings.is_none() && one != Handshake::Connect {
                self.does(Handshake::Connect, |_| ());
            }
            self.does(one, |world| world.setup.faults.plan_store(asked, before, times, errno));
            if self.world.setup.faults.end_row() == times {
                return;
            }
        }
    }
}

#[track_caller]
fn both_ends_meet(asked: Asked, times: usize, errno: StoreErrno) {
    for hotplug in [false, true] {
        let mut scene = Scene::new(hotplug);
        for handshake in HANDSHAKES {
            scene.fails_at_each(handshake, asked, times, errno);
        }
    }
}

/// A toolstack that takes the vif away while it cannot be written is heard.
#[track_caller]
fn is_detached_while(trouble: impl FnOnce(&World, &str)) {
    let mut scene = Scene::new(false);
    let back = scene.world.toolstack.back(GUEST);
    trouble(&scene.world, &back);
    scene.world.attach(GUEST, &[]);
    for _ in 0..50 {
        scene.world.settle();
        scene.world.control().passes(STEP);
    }
    assert_eq!(scene.guest.backend_state(), Some(S::Initialising));
    scene.world.toolstack.ask_to_close(GUEST);
    for _ in 0..50 {
        scene.world.settle();
        scene.world.control().passes(STEP);
    }
    scene.world.setup.faults.end_row();
    scene.shows(&[S::Closed]);
    scene.world.detaches(GUEST);
    scene.all_are_served();
    assert_eq!(scene.world.table(DomId(0)).store_watches, scene.watches);
}

#[test]
fn a_vif_that_cannot_be_offered_is_detached() {
    is_detached_while(|world, back| {
        world.setup.faults.plan(format!("{back}/feature-sg"), StoreErrno::Enospc, usize::MAX);
    });
}

#[test]
fn a_vif_whose_state_cannot_be_written_is_detached_once_it_can_be() {
    is_detached_while(|world, _| {
        world.setup.faults.plan_store(Asked::Commit, 0, usize::MAX, StoreErrno::Enospc);
    });
}

#[test]
fn both_ends_meet_after_a_write_that_fails() {
    both_ends_meet(Asked::Write, 1, StoreErrno::Enospc);
}

#[test]
fn both_ends_meet_after_some_writes_that_fail() {
    both_ends_meet(Asked::Write, 3, StoreErrno::Enomem);
}

#[test]
fn both_ends_meet_after_a_read_that_fails() {
    both_ends_meet(Asked::Read, 1, StoreErrno::Enomem);
}

#[test]
fn both_ends_meet_after_some_reads_that_fail() {
    both_ends_meet(Asked::Read, 3, StoreErrno::Eio);
}

#[test]
fn both_ends_meet_after_a_transaction_that_does_not_begin() {
    both_ends_meet(Asked::Begin, 2, StoreErrno::Enospc);
}

#[test]
fn both_ends_meet_after_a_transaction_that_is_lost_too_often() {
    both_ends_meet(Asked::Commit, 150, StoreErrno::Eagain);
}

#[test]
fn both_ends_meet_after_a_commit_that_fails() {
    both_ends_meet(Asked::Commit, 1, StoreErrno::Eio);
}

#[test]
fn both_ends_meet_after_watches_that_fail() {
    both_ends_meet(Asked::Watch, 1, StoreErrno::Enomem);
    both_ends_meet(Asked::Unwatch, 1, StoreErrno::Enomem);
}
