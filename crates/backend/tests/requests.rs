//! No guest makes others wait for the control thread, neither by requests on its control ring
//! nor by pages that a successor has to map again for it. Work is counted: the pages that the
//! platform is asked to map, in the order of these requests.

mod support;

use grantway_backend::{VifId, WaitMode};
use grantway_hypervisor::{Access, DomId, Granted};
use grantway_netif::ctrl::{GrefEntry, GrefFlags, Message, Status};
use support::ctrl::Lists;
use support::eventually;
use support::hostile::Hostile;
use support::rings::Rings;
use support::world::World;

/// Entries of the longest list.
const LIST: usize = 512;
/// Requests that a control ring has room for, and more than are served at a time.
const REQUESTS: usize = 32;
/// No guest granted this.
const BAD: u32 = 30_000;

struct Guest {
    hostile: Hostile,
    lists: Lists,
    rings: Rings,
}

fn boot(world: &mut World, domain: u16) -> Guest {
    let mut hostile = world.guest_of(VifId { domain: DomId(domain), devid: 0 });
    let (lists, rings) = Lists::connect(&mut hostile);
    Guest { hostile, lists, rings }
}

fn entry(gref: u32) -> GrefEntry {
    GrefEntry { gref, flags: GrefFlags::empty(), status: 0 }
}

fn entries(pages: &Granted) -> Vec<GrefEntry> {
    pages.grefs.iter().map(|gref| entry(gref.0)).collect()
}

impl Guest {
    /// Puts this request `times` times, without a signal.
    fn puts(&mut self, message: Message, times: usize) {
        let requests: Vec<_> = (0..times).map(|id| message.request(id as u16)).collect();
        self.lists.ring.put(&requests);
    }

    fn id(&self) -> DomId {
        self.hostile.vif.domain
    }
}

/// Checks that no step of the control thread exceeded its limit of work.
fn steps_are_bounded(world: &World) {
    let (most, limit) = world.control().with(|backend| backend.control_work());
    assert!(most > 0 && most <= limit, "{most} of {limit}");
}

#[test]
fn requests_take_turns_by_their_work() {
    let mut world = World::of_workers(1, WaitMode::Interrupt, false);
    let mut hostile: Vec<Guest> = (30..36).map(|domain| boot(&mut world, domain)).collect();
    // The last in any order.
    let mut honest = boot(&mut world, 40);
    world.stop();
    let mut pages = Vec::new();
    for guest in &mut hostile {
        let granted = guest.hostile.pages(LIST - 1, Access::ReadWrite);
        let mut list = entries(&granted);
        list.push(entry(BAD));
        let message = guest.lists.to_add(0, &list);
        guest.puts(message, REQUESTS);
        pages.push(granted);
    }
    let granted = honest.hostile.pages(1, Access::ReadWrite);
    let message = honest.lists.to_add(0, &entries(&granted));
    honest.puts(message, 1);
    let _ = world.setup.faults.maps();
    world.start();
    let answers = honest.lists.ring.answers(&mut honest.hostile, 1);
    assert_eq!(answers[0].status().unwrap(), Status::Success);
    for guest in &mut hostile {
        let answers = guest.lists.ring.answers(&mut guest.hostile, REQUESTS);
        let refused = |answer: &grantway_netif::ctrl::CtrlResponse| {
            answer.status().unwrap() == Status::InvalidParameter
        };
        assert!(answers.iter().all(refused));
    }
    let maps = world.setup.faults.maps();
    // Behind its two rings and its control ring.
    let of_honest =
        |(number, map): (usize, &(DomId, usize))| (map.0 == honest.id()).then_some(number);
    let at = maps.iter().enumerate().filter_map(of_honest).nth(3).expect("its list is mapped");
    let before = maps[..at].iter().filter(|map| map.1 == LIST).count();
    assert!(before <= hostile.len(), "{before} lists of others were mapped before one page");
    steps_are_bounded(&world);
    drop((hostile, honest));
    world.bridge_stands();
}

#[test]
fn all_vifs_are_taken_over_before_anything_is_staged_again() {
    let mut world = World::of_workers(1, WaitMode::Interrupt, false);
    let mut hostile: Vec<Guest> = (30..33).map(|domain| boot(&mut world, domain)).collect();
    let mut honest = boot(&mut world, 40);
    let mut pages = Vec::new();
    for guest in &mut hostile {
        for _ in 0..2 {
            let granted = guest.hostile.pages(LIST, Access::ReadWrite);
            assert_eq!(guest.lists.add(&mut guest.hostile, &entries(&granted)), Ok(0));
            pages.push(granted);
        }
    }
    // A second successor finds what the first left for later.
    for _ in 0..2 {
        world.stop();
        let _ = world.setup.faults.maps();
        world.start();
    }
    honest.hostile.is_served(&mut honest.rings);
    for guest in &hostile {
        eventually("what was staged is mapped again", || {
            let report = world.control().report_of(guest.hostile.vif)?;
            (report.mapped == 2 * LIST).then_some(())
        });
    }
    let maps = world.setup.faults.maps();
    let last_ring = maps.iter().rposition(|map| map.1 == 1).unwrap();
    let first_list = maps.iter().position(|map| map.1 > 1).unwrap();
    let rings = maps.iter().filter(|map| map.1 == 1).count();
    assert_eq!(rings, 4 * 3, "{maps:?}");
    assert!(last_ring < first_list, "a list was mapped before a ring: {maps:?}");
    steps_are_bounded(&world);
    // The same lists are there, and can be taken back.
    for (guest, pages) in hostile.iter_mut().zip(pages.chunks(2)) {
        for granted in pages {
            let gone = guest.lists.del(&mut guest.hostile, &entries(granted));
            assert_eq!(gone, Ok(LIST as u32));
        }
        guest.hostile.is_served(&mut guest.rings);
    }
    drop((hostile, honest));
    world.bridge_stands();
}
