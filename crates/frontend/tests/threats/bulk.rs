//! Further pages to send from, which a queue uses while it is busy with large frames.

use crate::crowd::{CALM, GRANTS, answer, deliver, posted, receive, staged};
use crate::ctrl::{Served, serve};
use crate::support::frame;
use crate::support::server::{RESTING, Rings, Server};
use crate::support::world::World;
use grantway_embedded::HostConfig;
use grantway_frontend::{Policy, SendError, Wishes};
use grantway_hypervisor::Platform;
use grantway_netif::Offload;
use grantway_netif::ctrl::{Status, kind};
use grantway_netif::tx::{TxFlags, TxRequest, status};
use grantway_ring::{Index, RingMemory};
use grantway_testkit::Numbers;
use std::collections::BTreeSet;

/// Length of the longest frame, which takes sixteen pages.
const LARGE: usize = 65_535;

/// Sends large frames until none finds room, and returns the grants of the pages that they lie in.
/// Their bytes must be those that were sent.
fn fill(world: &mut World, rings: &mut Rings) -> BTreeSet<u32> {
    let mut sent = 0u8;
    loop {
        match world.vif.send(&frame(LARGE, sent), Offload::default()) {
            Ok(()) => sent += 1,
            Err(why) => break assert_eq!(why, SendError::Full),
        }
    }
    world.vif.flush().unwrap();
    let slots = peek(rings);
    let frames = read(&world.server, &slots);
    for (n, found) in (0..sent).zip(&frames) {
        assert!(*found == frame(LARGE, n), "frame {n}");
    }
    assert_eq!(frames.len(), sent.into());
    slots.iter().map(|request| request.gref).collect()
}

/// Returns the requests that are out, and leaves them out.
fn peek(rings: &mut Rings) -> Vec<TxRequest> {
    let first = rings.tx_cons;
    let slots = rings.requests();
    rings.tx_cons = first;
    slots.into_iter().map(TxRequest::from_words).collect()
}

/// Returns the frames of these requests, none of which has extras.
fn read(server: &Server, slots: &[TxRequest]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = slots;
    while !rest.is_empty() {
        let chained =
            rest.iter().take_while(|slot| slot.flags.contains(TxFlags::MORE_DATA)).count();
        let (chain, behind) = rest.split_at(chained + 1);
        let later: u16 = chain.iter().skip(1).map(|slot| slot.size).sum();
        let mut bytes = Vec::new();
        for (n, slot) in chain.iter().enumerate() {
            let size = if n == 0 { slot.size - later } else { slot.size };
            bytes.extend(server.bytes(slot.gref, slot.offset, size));
        }
        frames.push(bytes);
        rest = behind;
    }
    frames
}

/// Answers all frames that are out, and has the frontend take the answers.
fn drain(world: &mut World, rings: &mut Rings) {
    rings.serve_tx();
    world.vif.reap().unwrap();
    world.vif.arm().unwrap();
    assert_eq!(world.vif.take_failure(), None);
}

/// Sends short frames, until it is calm for the `times`-th time.
fn calm(world: &mut World, rings: &mut Rings, times: u32) {
    for _ in 0..(CALM << times) / 64 + 8 {
        for n in 0..64 {
            world.vif.send(&frame(60, n), Offload::default()).unwrap();
        }
        world.vif.flush().unwrap();
        drain(world, rings);
    }
}

#[test]
fn large_frames_take_further_pages_and_calm_puts_them_away() {
    let mut world = World::new();
    let mut rings = world.connect();
    assert_eq!(world.guest.counters().granted, GRANTS);
    // A ring of frames of half a page needs no further ones.
    for round in 0..3 {
        for n in 0..=255 {
            world.vif.send(&frame(2048, n), Offload::default()).unwrap();
        }
        assert_eq!(world.vif.send(&frame(2048, 0), Offload::default()), Err(SendError::Full));
        world.vif.flush().unwrap();
        drain(&mut world, &mut rings);
        assert_eq!(world.guest.counters().granted, GRANTS, "round {round}");
    }
    let mut resting = BTreeSet::new();
    for round in 0..3 {
        let pages = fill(&mut world, &mut rings);
        assert_eq!(pages.len(), 128, "round {round}: eight frames");
        assert!(round == 0 || resting == pages);
        resting = pages;
        drain(&mut world, &mut rings);
        for _ in 0..3 {
            let busy = fill(&mut world, &mut rings);
            assert_eq!((busy.len(), busy.is_superset(&resting)), (256, true), "round {round}");
            // They are granted once.
            assert_eq!(world.guest.counters().granted, GRANTS + 128, "round {round}");
            drain(&mut world, &mut rings);
        }
        calm(&mut world, &mut rings, round);
    }
    assert_eq!(fill(&mut world, &mut rings), resting);
    drain(&mut world, &mut rings);
    world.works(&mut rings);
    world.ends(rings);
}

/// Frames fit without waiting, so none of them ever finds too little room. The pages stay in use.
#[test]
fn large_frames_that_find_room_in_further_pages_keep_them() {
    let mut world = World::new();
    let mut rings = world.connect();
    fill(&mut world, &mut rings);
    drain(&mut world, &mut rings);
    let full = world.vif.stats().tx_full;
    for _ in 0..CALM / 192 + 50 {
        for n in 0..12 {
            world.vif.send(&frame(LARGE, n), Offload::default()).unwrap();
        }
        world.vif.flush().unwrap();
        drain(&mut world, &mut rings);
    }
    assert_eq!(world.vif.stats().tx_full, full);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn large_frames_without_grants_go_on_with_the_pages_at_rest() {
    let config = HostConfig { grant_entries: 300, ..Default::default() };
    let mut world = World::on(config, Wishes::default());
    let mut rings = world.connect();
    for _ in 0..5 {
        assert_eq!(fill(&mut world, &mut rings).len(), 128);
        drain(&mut world, &mut rings);
        assert_eq!(world.guest.counters().granted, GRANTS);
    }
    world.works(&mut rings);
    world.ends(rings);
}

/// Returns a vif whose pages at rest are staged.
fn staging() -> (World, Served, Rings, Vec<u32>) {
    let mut world = World::with(Wishes { policy: Policy::Staging, ..Wishes::default() });
    world.server.key("feature-ctrl-ring", b"1");
    world.published();
    let mut served = Served::attach(&mut world.server);
    let rings = world.connect_as_offered();
    let mut mapped = Vec::new();
    staged(&mut world, &mut served, &mut mapped, 272);
    (world, served, rings, mapped)
}

/// Fills the ring and drains it. All pages must be mapped.
fn carries(world: &mut World, rings: &mut Rings, mapped: &[u32], pages: usize) {
    let known: BTreeSet<u32> = mapped.iter().copied().collect();
    let used = fill(world, rings);
    assert_eq!((used.len(), known.is_superset(&used)), (pages, true));
    drain(world, rings);
}

#[test]
fn large_frames_use_no_further_page_before_it_is_staged() {
    let (mut world, mut served, mut rings, mut mapped) = staging();
    for round in 0..2 {
        for _ in 0..3 {
            carries(&mut world, &mut rings, &mapped, 128);
        }
        staged(&mut world, &mut served, &mut mapped, 400);
        world.vif.arm().unwrap();
        carries(&mut world, &mut rings, &mapped, 256);
        // The calm takes twice as long each time.
        calm(&mut world, &mut rings, round);
        staged(&mut world, &mut served, &mut mapped, 272);
    }
    world.works(&mut rings);
    served.close(&mut world.server);
    world.ends(rings);
}

/// A backend has no room for all of them. The queue gives those that it has back, goes on with its
/// pages at rest, and asks again after a calm.
#[test]
fn large_frames_go_on_with_the_pages_at_rest_if_some_are_refused() {
    for room in [0, 40, 100] {
        let (mut world, mut served, mut rings, mut mapped) = staging();
        for round in 0..2 {
            let mut adds = 0;
            for _ in 0..4 {
                carries(&mut world, &mut rings, &mapped, 128);
                world.vif.take_answers().unwrap();
                let server = world.other_end();
                serve(&mut world, &mut served, |request| {
                    let [_, _, entries] = request.data;
                    let is_add = request.kind == kind::ADD_GREF_MAPPING;
                    adds += u32::from(is_add);
                    match is_add && mapped.len() + entries as usize > 272 + room {
                        true => (Status::InvalidParameter, 0),
                        false => answer(&server, request, &mut mapped),
                    }
                });
            }
            assert!((3..=5).contains(&adds), "{room} pages: {adds} lists");
            carries(&mut world, &mut rings, &mapped, 128);
            staged(&mut world, &mut served, &mut mapped, 272);
            calm(&mut world, &mut rings, 0);
            assert!(world.vif.take_staging_refusal().is_some() == (round == 0), "it is told once");
        }
        carries(&mut world, &mut rings, &mapped, 128);
        staged(&mut world, &mut served, &mut mapped, 400);
        world.vif.arm().unwrap();
        carries(&mut world, &mut rings, &mapped, 256);
        world.works(&mut rings);
        served.close(&mut world.server);
        world.ends(rings);
    }
}

/// A queue has one set of further pages. A crowd that is received gets it, once the frames that
/// were sent from it are answered. Nothing is mapped or unmapped for that.
#[test]
fn further_pages_are_received_into_first() {
    let (mut world, mut served, mut rings, mut mapped) = staging();
    carries(&mut world, &mut rings, &mapped, 128);
    staged(&mut world, &mut served, &mut mapped, 400);
    world.vif.arm().unwrap();
    let sending = fill(&mut world, &mut rings);
    assert_eq!(sending.len(), 256);
    for _ in 0..2 {
        deliver(&world, &mut rings, RESTING);
        receive(&mut world, RESTING);
        let into = posted(&rings);
        assert_eq!((into.len(), into.is_disjoint(&sending)), (128, true), "still sent from");
    }
    drain(&mut world, &mut rings);
    world.vif.arm().unwrap();
    assert_eq!(posted(&rings).len(), 256);
    // Frames that are sent meanwhile have the pages at rest.
    for _ in 0..3 {
        carries(&mut world, &mut rings, &mapped, 128);
        world.vif.take_answers().unwrap();
        assert!(served.requests().is_empty());
    }
    // Both directions are at rest, and frames that are sent may have the further pages again.
    crate::crowd::calm(&mut world, &mut rings, 0);
    assert_eq!(posted(&rings).len(), 128);
    staged(&mut world, &mut served, &mut mapped, 272);
    carries(&mut world, &mut rings, &mapped, 128);
    staged(&mut world, &mut served, &mut mapped, 400);
    world.vif.arm().unwrap();
    carries(&mut world, &mut rings, &mapped, 256);
    world.works(&mut rings);
    served.close(&mut world.server);
    world.ends(rings);
}

/// An application that sends no more need not reap: a crowd gets further pages whose frames were answered.
#[test]
fn a_crowd_gets_further_pages_that_nobody_reaped() {
    let (mut world, mut served, mut rings, mut mapped) = staging();
    carries(&mut world, &mut rings, &mapped, 128);
    staged(&mut world, &mut served, &mut mapped, 400);
    world.vif.arm().unwrap();
    fill(&mut world, &mut rings);
    rings.serve_tx();
    for round in 0..3 {
        deliver(&world, &mut rings, RESTING);
        let mut buffer = [0; 100];
        while world.vif.recv(&mut buffer).unwrap().is_some() {}
        world.vif.repost().unwrap();
        // The frame that found no room is told once that there is some now.
        assert_eq!(world.vif.arm().unwrap(), round == 0, "round {round}");
    }
    assert_eq!(posted(&rings).len(), 256);
    served.close(&mut world.server);
    world.ends(rings);
}

/// A sender that finds no room, and to which no buffer came back, sleeps only if a signal will come.
#[test]
fn room_in_further_pages_is_reported_before_the_sender_sleeps() {
    for answered in [false, true] {
        let mut world = World::new();
        let mut rings = world.connect();
        fill(&mut world, &mut rings);
        assert_eq!(world.vif.reap().unwrap(), 0);
        if answered {
            // The answers' signal comes before the sender's last look.
            rings.serve_tx();
            while world.vif.take_events().unwrap() {}
        }
        assert!(world.vif.arm().unwrap(), "answered: {answered}");
        assert_eq!(world.vif.send(&frame(LARGE, 0), Offload::default()), Ok(()));
        world.ends(rings);
    }
}

/// Frames of all lengths go both ways, and those that were sent are answered in any order. Further
/// pages are sent from at first, and received into after the first crowd.
#[test]
fn bulk_and_crowds_in_any_order_lose_nothing() {
    let (mut received_into, mut sent_from, mut waited) = (0, 0, 0);
    for seed in 1..=24 {
        let mut numbers = Numbers::new(seed);
        let mut world = World::new();
        let mut rings = world.connect();
        // The requests that are out, and the bytes that each is to have until it is answered.
        let mut out: Vec<(TxRequest, Vec<u8>)> = Vec::new();
        let mut serial = 0u8;
        // True from a frame that found no room on, until the sender was told of some.
        let mut waits = false;
        for round in 0..200 {
            let bulk = round / 25 % 2 == 0;
            for _ in 0..numbers.below(if bulk { 20 } else { 5 }) {
                serial = serial.wrapping_add(1);
                let longest = if bulk { LARGE } else { 3000 };
                let bytes = frame(14 + numbers.below(longest - 13), serial);
                let sent = world.vif.send(&bytes, Offload::default());
                assert!(matches!(sent, Ok(()) | Err(SendError::Full)), "{sent:?}");
                waits = sent.is_err();
            }
            world.vif.flush().unwrap();
            let slots: Vec<_> = rings.requests().into_iter().map(TxRequest::from_words).collect();
            let frames = read(&world.server, &slots);
            let pieces = frames.iter().flat_map(|bytes| bytes.chunks(4096).map(<[u8]>::to_vec));
            out.extend(slots.into_iter().zip(pieces));
            let left = numbers.below(1 + out.len());
            let mut to = rings.tx.load(Index::RspProd);
            while out.len() > left {
                let (slot, bytes) = out.swap_remove(numbers.below(out.len()));
                let found = world.server.bytes(slot.gref, slot.offset, bytes.len() as u16);
                assert!(found == bytes, "{seed}, {round}: a page that is out was written to");
                rings.tx_put(to, slot.id, status::OKAY);
                to = to.wrapping_add(1);
            }
            rings.tx_publish(to);
            let most = if round > 100 && numbers.once_in(10) { 256 } else { 60 };
            let count = rings.posted().min(numbers.below(most) as u32);
            deliver(&world, &mut rings, count);
            let mut buffer = [0; 100];
            for n in 0..count {
                let received = world.vif.recv(&mut buffer).unwrap().expect("a frame");
                assert_eq!(buffer[..received.len], frame(60, n as u8), "{seed}, {round}");
            }
            for _ in 0..=numbers.below(2) {
                match numbers.below(3) {
                    0 => waits &= world.vif.reap().unwrap() == 0,
                    1 => world.vif.repost().unwrap(),
                    _ if world.vif.arm().unwrap() => waits = false,
                    _ if waits => {
                        let sent = world.vif.send(&frame(60, 0), Offload::default());
                        assert_eq!(sent, Err(SendError::Full), "{seed}, {round}: it would sleep");
                        waited += 1;
                    }
                    _ => {}
                }
            }
            assert_eq!(world.vif.take_failure(), None, "{seed}, {round}");
            let into = posted(&rings);
            let from: BTreeSet<u32> = out.iter().map(|(slot, _)| slot.gref).collect();
            assert!(into.is_disjoint(&from), "{seed}, {round}: a page is used both ways");
            received_into += u32::from(into.len() > 128);
            // At rest there are 16 pages of small buffers and 128 others.
            sent_from += u32::from(from.len() > 144);
        }
        assert_eq!(world.guest.counters().granted, GRANTS + 128);
        world.ends(rings);
    }
    assert!(
        received_into > 20 && sent_from > 20 && waited > 20,
        "{received_into}, {sent_from}, {waited}"
    );
}

/// The pages that are worth staging change by the last look before a sleep.
#[test]
fn further_pages_are_asked_for_before_the_sender_sleeps() {
    let (mut world, mut served, mut rings, mapped) = staging();
    carries(&mut world, &mut rings, &mapped, 128);
    world.vif.arm().unwrap();
    assert!(!served.requests().is_empty(), "nothing was asked for");
    served.close(&mut world.server);
    world.ends(rings);
}
