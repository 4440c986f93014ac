//! Further pages to receive into, which a queue uses while it is busy.

use crate::ctrl::{Served, serve};
use crate::support::frame;
use crate::support::server::{RESTING, Rings, Server};
use crate::support::world::World;
use grantway_frontend::{LentFrame, Policy, StagingState, Wishes};
use grantway_hypervisor::{Access, GrantRef, Mapper, Platform};
use grantway_netif::ctrl::{CtrlRequest, Status, kind};
use grantway_netif::rx::RxRequest;
use grantway_ring::RingMemory;
use std::collections::BTreeSet;

/// Grants of a queue at rest: two rings, and 272 pages of buffers.
pub const GRANTS: u64 = 2 + 272;
/// Responses without a crowd by which a queue is at rest again, for the first time. Each time it
/// takes twice as many.
pub const CALM: u32 = 65_536;

/// Delivers `count` frames before the guest looks. The `n`-th has the bytes of `frame(60, n)`.
pub fn deliver(world: &World, rings: &mut Rings, count: u32) {
    for n in 0..count {
        rings.deliver(&world.server, &frame(60, n as u8));
    }
}

/// Receives frames, which must be those of [`deliver`], and posts pages again.
pub fn receive(world: &mut World, count: u32) {
    let mut buffer = [0; 100];
    for n in 0..count {
        let received = world.vif.recv(&mut buffer).unwrap().expect("a frame");
        assert_eq!(buffer[..received.len], frame(60, n as u8), "{n} of {count}");
    }
    assert_eq!(world.vif.recv(&mut buffer).unwrap(), None);
    world.vif.arm().unwrap();
    assert_eq!(world.vif.take_failure(), None);
}

/// Has frames come, few at a time, until the queue is at rest for the `times`-th time.
pub fn calm(world: &mut World, rings: &mut Rings, times: u32) {
    for _ in 0..(CALM << times) / 64 - 8 {
        deliver(world, rings, 64);
        receive(world, 64);
        assert_eq!(rings.posted(), 256, "the calm is not long enough");
    }
    for _ in 0..20 {
        deliver(world, rings, 64);
        receive(world, 64);
    }
}

/// Returns the posted pages. None may be posted twice.
pub fn posted(rings: &Rings) -> BTreeSet<u32> {
    let request = |n| RxRequest::from_words(rings.rx.read_slot(rings.rx_cons.wrapping_add(n)));
    let all: BTreeSet<u32> = (0..rings.posted()).map(|n| request(n).gref).collect();
    assert_eq!(all.len(), rings.posted() as usize, "a page is posted twice");
    all
}

#[test]
fn crowd_takes_further_pages_and_calm_puts_them_away() {
    let mut world = World::new();
    let mut rings = world.connect();
    let resting = posted(&rings);
    assert_eq!((resting.len(), world.guest.counters().granted), (128, GRANTS));
    // Less than three quarters of the pages at a time is no crowd.
    for _ in 0..50 {
        deliver(&world, &mut rings, 95);
        receive(&mut world, 95);
    }
    assert_eq!((posted(&rings), world.guest.counters().granted), (resting.clone(), GRANTS));
    for round in 0..3 {
        deliver(&world, &mut rings, 96);
        receive(&mut world, 96);
        let busy = posted(&rings);
        assert_eq!((busy.len(), busy.is_superset(&resting)), (256, true), "round {round}");
        // They are granted once.
        assert_eq!(world.guest.counters().granted, GRANTS + 128, "round {round}");
        deliver(&world, &mut rings, 256);
        receive(&mut world, 256);
        assert_eq!(posted(&rings), busy, "round {round}");
        calm(&mut world, &mut rings, round);
        assert_eq!(posted(&rings), resting, "round {round}");
    }
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn crowd_without_grants_goes_on_with_the_pages_at_rest() {
    let config = grantway_embedded::HostConfig { grant_entries: 300, ..Default::default() };
    let mut world = World::on(config, Wishes::default());
    let mut rings = world.connect();
    let resting = posted(&rings);
    for _ in 0..5 {
        deliver(&world, &mut rings, RESTING);
        receive(&mut world, RESTING);
        assert_eq!((posted(&rings), world.guest.counters().granted), (resting.clone(), GRANTS));
    }
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn crowd_pages_are_mapped_for_as_long_as_the_queue_is_busy() {
    let mut world = World::with(Wishes { policy: Policy::Staging, ..Wishes::default() });
    world.server.key("feature-ctrl-ring", b"1");
    world.published();
    let mut served = Served::attach(&mut world.server);
    let mut rings = world.connect_as_offered();
    let mut mapped = Vec::new();
    staged(&mut world, &mut served, &mut mapped, 272);
    for round in 0..2 {
        // No page is posted before it is mapped.
        for _ in 0..2 {
            deliver(&world, &mut rings, RESTING);
            receive(&mut world, RESTING);
            assert_eq!(posted(&rings).len(), 128, "round {round}");
        }
        staged(&mut world, &mut served, &mut mapped, 400);
        world.vif.arm().unwrap();
        let known: BTreeSet<u32> = mapped.iter().copied().collect();
        let busy = posted(&rings);
        assert!(busy.len() == 256 && known.is_superset(&busy), "round {round}");
        // What the caller wishes for holds for further pages, too.
        world.vif.stage(0, 300).unwrap();
        staged(&mut world, &mut served, &mut mapped, 300);
        world.vif.stage(0, 9999).unwrap();
        staged(&mut world, &mut served, &mut mapped, 400);
        calm(&mut world, &mut rings, round);
        staged(&mut world, &mut served, &mut mapped, 272);
        let known: BTreeSet<u32> = mapped.iter().copied().collect();
        assert!(known.is_superset(&posted(&rings)), "round {round}");
    }
    // A limit below the pages at rest is none of a crowd's business.
    world.vif.stage(0, 100).unwrap();
    staged(&mut world, &mut served, &mut mapped, 100);
    deliver(&world, &mut rings, RESTING);
    receive(&mut world, RESTING);
    world.vif.take_answers().unwrap();
    assert!(served.requests().is_empty());
    // Packets take grant copy anyway, in further pages as in the others.
    world.vif.arm().unwrap();
    assert_eq!(posted(&rings).len(), 256);
    world.works(&mut rings);
    served.close(&mut world.server);
    world.ends(rings);
}

/// Serves the control ring as a backend that can do all, which has the pages `mapped` in the end:
/// `expected` of them.
pub fn staged(world: &mut World, served: &mut Served, mapped: &mut Vec<u32>, expected: usize) {
    world.vif.take_answers().unwrap();
    let server = world.other_end();
    serve(world, served, |request| answer(&server, request, mapped));
    let [StagingState { staged, refusal, .. }] = world.vif.staging()[..] else { panic!("one") };
    assert_eq!((staged, refusal, mapped.len()), (expected, None, expected));
}

pub fn answer(server: &Server, request: CtrlRequest, mapped: &mut Vec<u32>) -> (Status, u32) {
    let [_, list, entries] = request.data;
    if request.kind == kind::GET_GREF_MAPPING_SIZE {
        return (Status::Success, 1024);
    }
    let run = server.domain.map(server.guest, &[GrantRef(list)], Access::ReadWrite).unwrap();
    for n in 0..entries {
        let mut gref = [0; 4];
        run.page(0).unwrap().read(n as usize * 8, &mut gref).unwrap();
        let gref = u32::from_le_bytes(gref);
        let at = mapped.iter().position(|&known| known == gref);
        match (request.kind, at) {
            (kind::ADD_GREF_MAPPING, None) => mapped.push(gref),
            (kind::DEL_GREF_MAPPING, Some(at)) => {
                mapped.remove(at);
                server.fill(list, (n * 8 + 6) as u16, &[0, 0]);
            }
            other => panic!("{gref}: {other:?}"),
        }
    }
    (Status::Success, if request.kind == kind::DEL_GREF_MAPPING { entries } else { 0 })
}

/// The backend may be one that stages nothing for a while. It is asked again, once for each time
/// that the queue becomes busy.
#[test]
fn crowd_pages_that_were_refused_once_are_asked_for_at_the_next_crowd() {
    let mut world = World::with(Wishes { policy: Policy::Staging, ..Wishes::default() });
    world.server.key("feature-ctrl-ring", b"1");
    world.published();
    let mut served = Served::attach(&mut world.server);
    let mut rings = world.connect_as_offered();
    let mut mapped = Vec::new();
    staged(&mut world, &mut served, &mut mapped, 272);
    let mut asked = 0;
    for round in 0..2 {
        for _ in 0..5 {
            deliver(&world, &mut rings, RESTING);
            receive(&mut world, RESTING);
            world.vif.take_answers().unwrap();
            serve(&mut world, &mut served, |request| {
                assert_eq!(request.kind, kind::ADD_GREF_MAPPING, "round {round}");
                asked += 1;
                (Status::NotSupported, 0)
            });
            world.vif.arm().unwrap();
        }
        assert_eq!(asked, round + 1, "once for each crowd");
        let told = world.vif.take_staging_refusal();
        assert_eq!(told.is_some(), round == 0, "it is told once");
        // They take grant copy meanwhile.
        assert_eq!(posted(&rings).len(), 256, "round {round}");
        calm(&mut world, &mut rings, round);
        staged(&mut world, &mut served, &mut mapped, 272);
    }
    for _ in 0..2 {
        deliver(&world, &mut rings, RESTING);
        receive(&mut world, RESTING);
    }
    staged(&mut world, &mut served, &mut mapped, 400);
    world.vif.arm().unwrap();
    assert_eq!(posted(&rings).len(), 256);
    world.works(&mut rings);
    served.close(&mut world.server);
    world.ends(rings);
}

#[test]
fn crowds_and_calms_in_any_order_lose_nothing() {
    let mut world = World::new();
    let mut rings = world.connect();
    let mut numbers = 272u32;
    let mut random = |below: u32| {
        numbers = numbers.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (numbers >> 8) % below
    };
    let mut lent: Vec<(LentFrame, Vec<u8>)> = Vec::new();
    let (mut sizes, mut serial) = (BTreeSet::new(), 0u8);
    for round in 0..12 {
        // Some rounds are of crowds, and most frames come few at a time.
        let most = if round % 3 == 0 { 256 } else { 64 };
        for _ in 0..2 * CALM / 64 {
            let count = (1 + random(most)).min(rings.posted()).min(255);
            let first = serial;
            for _ in 0..count {
                rings.deliver(&world.server, &frame(60, serial));
                serial = serial.wrapping_add(1);
            }
            let (mut at, lends) = (first, random(40) == 0);
            while at != serial {
                let expected = frame(60, at);
                let queue = &mut world.vif.queues()[0];
                if lends {
                    let frame = queue.recv_lent().unwrap().expect("a frame");
                    lent.push((frame, expected));
                } else {
                    let mut buffer = [0; 100];
                    let received = queue.recv(&mut buffer).unwrap().expect("a frame");
                    assert_eq!(buffer[..received.len], expected, "round {round}");
                }
                at = at.wrapping_add(1);
            }
            while lent.len() > random(60) as usize {
                let (frame, expected) = lent.swap_remove(random(lent.len() as u32) as usize);
                let mut bytes = [0; 60];
                assert_eq!((frame.copy_to(&mut bytes), &bytes[..]), (60, &expected[..]));
            }
            match random(3) {
                0 => world.vif.repost().unwrap(),
                _ => drop(world.vif.arm().unwrap()),
            }
            let posted = posted(&rings).len();
            assert!(posted <= 256 && posted + lent.len() >= 64, "{posted} posted");
            sizes.insert(posted > 128);
        }
        // Frames that were lent come back, and all pages in use are posted.
        lent.clear();
        world.vif.arm().unwrap();
    }
    assert_eq!(sizes.len(), 2, "at rest and busy");
    assert_eq!(world.vif.take_failure(), None);
    world.works(&mut rings);
    world.ends(rings);
}
