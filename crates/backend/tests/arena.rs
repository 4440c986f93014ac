//! Frames that a port left in the worker's arena, so that the next time it writes only the
//! bytes that differ. They must be whole if they are still there, and written anew if anybody
//! else wrote to the arena.

mod support;

use grantway_backend::{Meter, VifId};
use grantway_hypervisor::DomId;
use grantway_netif::Offload;
use grantway_ports::{Checker, Generator, GeneratorConfig, monotonic};
use std::time::Duration;
use support::flood::{ETHERNET, Guest, Habit, LARGEST};
use support::hostile::frame;
use support::port::{Flow, UPLINK, checker};
use support::world::World;

/// Bytes of the port's frames: more than a port writes each time.
const BYTES: usize = 300;
/// Frames of a burst.
const BURST: u64 = 64;

/// Guests of workers that have no threads. Behind the first two are ports that leave frames.
struct Scene {
    world: World,
    guests: [Guest; 4],
    checkers: [Checker; 2],
}

fn vif(number: u16) -> VifId {
    VifId { domain: DomId(20 + number), devid: 0 }
}

/// Returns a generator that has frames at each look.
fn generator() -> Generator {
    let burst = u32::MAX;
    let config = GeneratorConfig { size: BYTES, flows: 4, burst, ..GeneratorConfig::default() };
    Generator::new(config, monotonic()).unwrap()
}

impl Scene {
    fn new(bridged: bool, workers: usize) -> Self {
        let mut world = World::counted(bridged, Meter::counted(|| Duration::ZERO));
        if workers > 1 {
            world.setup.workers = workers;
            world.restart();
        }
        for number in [1, 2] {
            world.ports.set_apart(vif(number));
        }
        let guests = [1, 2, 3, 4].map(|number| Guest::boot(&mut world, number));
        for number in [1, 2] {
            let behind = world.ports.of(vif(number));
            let mut inner = behind.look();
            inner.flow = Some(Flow { to_guest: generator(), ..Flow::new(BYTES) });
            (inner.keeps, inner.short) = (true, true);
        }
        let mut scene = Self { world, guests, checkers: [checker(), checker()] };
        scene.rounds(20);
        scene
    }

    fn rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for guest in &mut self.guests {
                guest.sends();
            }
            self.world.control().rounds(1);
        }
    }

    /// Returns the number of frames that a port found.
    fn found(&self, number: u16) -> usize {
        self.world.ports.of(vif(number)).look().found
    }

    /// Lets a burst of numbered frames go to one of the first two guests, which has pages for it.
    fn credit(&mut self, number: u16) {
        let at = usize::from(number) - 1;
        self.guests[at].receives();
        let arrived = self.checkers[at].total().received;
        self.world.ports.of(vif(number)).credit(BURST, arrived);
    }

    /// Has one of the first two guests check the frames that came. Returns their number.
    fn check(&mut self, number: u16) -> usize {
        let at = usize::from(number) - 1;
        let (frames, checker) = (self.guests[at].takes(), &mut self.checkers[at]);
        for frame in &frames {
            checker.check(frame);
        }
        assert_eq!((checker.corrupt(), checker.foreign()), (0, 0), "of {}", frames.len());
        let total = checker.total();
        assert_eq!((total.lost, total.duplicated, total.stale), (0, 0, 0));
        frames.len()
    }

    /// Gives one of the first two guests a burst of numbered frames, which it checks.
    fn burst(&mut self, number: u16) {
        self.credit(number);
        self.world.control().rounds(4);
        assert!(self.check(number) > 0, "nothing came");
    }

    /// Calls `act` before the middle one of some rounds, each of which gives frames to the
    /// first guest.
    fn while_frames_flow(&mut self, act: impl FnOnce(&mut Self)) {
        let (mut act, mut came) = (Some(act), 0);
        for round in 0..12 {
            self.credit(1);
            if round == 6 {
                act.take().into_iter().for_each(|act| act(self));
            }
            self.world.control().rounds(1);
            came += usize::from(self.check(1) > 0);
        }
        assert!(came > 8, "frames came in {came} rounds");
    }

    /// Lets `write` write to the arena between two bursts, and checks that each frame of the
    /// bursts is whole. `voids` is true if no frame is found in the arena afterwards.
    fn between(&mut self, what: &str, voids: bool, write: impl FnOnce(&mut Self)) {
        println!("{what}");
        self.burst(1);
        self.burst(1);
        write(self);
        let found = self.found(1);
        self.burst(1);
        assert_eq!(self.found(1) == found, voids, "{what}");
        self.burst(1);
    }

    /// Lets a guest send by its habit, for some rounds.
    fn acts(&mut self, number: usize, habit: Habit) {
        let served = self.guests[number - 1].served();
        self.guests[number - 1].takes_up(habit);
        self.rounds(4);
        self.guests[number - 1].takes_up(Habit::Rests);
        while self.guests[number - 1].served() != self.guests[number - 1].rings.tx_prod {
            self.rounds(1);
        }
        self.rounds(4);
        assert_ne!(self.guests[number - 1].served(), served);
    }

    fn ends(self) {
        drop(self.guests);
        self.world.bridge_stands();
    }
}

#[test]
fn frames_that_a_port_left_are_whole_after_others_write_to_the_arena() {
    let mut scene = Scene::new(false, 1);
    scene.between("nobody", false, |_| ());
    scene.between("nobody, in further rounds", false, |scene| scene.rounds(10));
    scene.between("the guest, by packets of one slot", true, |scene| scene.acts(1, ETHERNET));
    scene.between("the guest, by packets of many slots", true, |scene| scene.acts(1, LARGEST));
    scene.between("another guest", true, |scene| scene.acts(3, ETHERNET));
    scene.between("another port of the same kind", true, |scene| scene.burst(2));
    let third = scene.world.ports.of(vif(3));
    scene.between("another port", true, |scene| {
        scene.guests[2].receives();
        third.give(frame(4000), Offload::default());
        scene.rounds(4);
        assert_eq!(scene.guests[2].takes().len(), 1);
    });
    // A frame waits for a page, and the first guest gets frames meanwhile.
    third.look().short = true;
    let posted = 255;
    (0..posted).for_each(|_| third.give(frame(60), Offload::default()));
    scene.rounds(20);
    third.give(frame(4000), Offload::default());
    third.give(frame(4000), Offload::default());
    scene.rounds(4);
    scene.while_frames_flow(|scene| scene.guests[2].receives());
    assert_eq!(scene.guests[2].takes().len(), 2);
    scene.ends();
}

#[test]
fn frames_that_a_port_left_are_whole_beside_a_bridge() {
    for workers in [1, 2] {
        let mut scene = Scene::new(true, workers);
        let on_bridge = |scene: &mut Scene| {
            scene.guests[2..].iter_mut().for_each(Guest::receives);
            scene.rounds(8);
        };
        on_bridge(&mut scene);
        scene.between("nobody", false, |_| ());
        let uplink = scene.world.behind(UPLINK);
        scene.while_frames_flow(|_| {
            let mut to_all = frame(4000);
            to_all[..6].fill(0xff);
            (0..8).for_each(|_| uplink.give(to_all.clone(), Offload::default()));
        });
        assert!(uplink.look().waiting.is_empty());
        // One of them belongs to another worker than the first guest, if there are two.
        for sender in [2, 3] {
            on_bridge(&mut scene);
            scene.while_frames_flow(|scene| {
                let mut to_all = frame(64);
                to_all[..6].fill(0xff);
                to_all[6..12].copy_from_slice(&scene.guests[sender].own);
                scene.guests[sender].offers_once(&vec![to_all; BURST as usize]);
            });
            let receiver = 5 - sender;
            assert_eq!(scene.guests[receiver].takes().len(), BURST as usize);
        }
        scene.ends();
    }
}
