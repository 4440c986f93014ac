//! A backend that lies about staged pages: in its answers, in the lists that it
//! writes statuses to, in what it offers, and about what it still has mapped.

use crate::ctrl::{Served, serve};
use crate::support::frame;
use crate::support::server::{Rings, Server};
use crate::support::world::World;
use grantway_frontend::{HashState, HashWish, Policy, StagingState, Wishes};
use grantway_hypervisor::{Access, GrantRef, Mapper, Platform};
use grantway_netif::ctrl::{CtrlRequest, CtrlResponse, GrefEntry, HashTypes, Status, kind};
use grantway_netif::tx::TxRequest;
use grantway_netif::{Offload, XenbusState};
use grantway_ring::{Index, RingMemory, SharedRun};
use std::collections::BTreeSet;

/// Pages of a queue at rest.
const PAGES: usize = 16 + 128 + 128;

fn wishes() -> Wishes {
    Wishes { policy: Policy::Staging, ..Wishes::default() }
}

/// Returns a connected vif that wishes for staging; nothing is answered yet.
fn connected() -> (World, Rings, Served) {
    let mut world = World::with(wishes());
    world.server.key("feature-ctrl-ring", b"1");
    world.published();
    let served = Served::attach(&mut world.server);
    let rings = world.connect_as_offered();
    (world, rings, served)
}

fn state(world: &World) -> StagingState {
    let [state] = world.vif.staging()[..] else { panic!("one queue") };
    state
}

fn list(server: &Server, request: CtrlRequest) -> Vec<GrefEntry> {
    let [_, list, entries] = request.data;
    let run = server.domain.map(server.guest, &[GrantRef(list)], Access::ReadWrite).unwrap();
    let mut bytes = vec![0; entries as usize * 8];
    run.page(0).unwrap().read(0, &mut bytes).unwrap();
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let entries = bytes.chunks_exact(8);
    entries.map(|entry| GrefEntry::from_words([word(entry), word(&entry[4..])])).collect()
}

/// Writes the status of each entry of a list.
fn set_statuses(server: &Server, request: CtrlRequest, status: impl Fn(usize) -> u16) {
    let [_, list, entries] = request.data;
    for n in 0..entries as usize {
        server.fill(list, (n * 8 + 6) as u16, &status(n).to_le_bytes());
    }
}

/// Returns the answer of a backend that can do all.
fn willing(server: &Server, request: CtrlRequest) -> (Status, u32) {
    match request.kind {
        kind::GET_GREF_MAPPING_SIZE => (Status::Success, 1024),
        kind::DEL_GREF_MAPPING => {
            set_statuses(server, request, |_| 0);
            (Status::Success, request.data[2])
        }
        _ => (Status::Success, 0),
    }
}

/// Answers each request with the answer of `lie`, or by the rules if that is none. Returns the
/// types of the requests.
fn serve_with(
    world: &mut World,
    served: &mut Served,
    mut lie: impl FnMut(&Server, CtrlRequest) -> Option<(Status, u32)>,
) -> Vec<u16> {
    // A second handle of the domain, for access to the guest's pages meanwhile.
    let server = world.other_end();
    serve(world, served, |request| {
        lie(&server, request).unwrap_or_else(|| willing(&server, request))
    })
}

/// Checks that the vif goes on, by grant copy or not, and ends in order.
fn goes_on(mut world: World, mut rings: Rings, served: Served) {
    world.works(&mut rings);
    assert_eq!(world.vif.take_failure(), None);
    served.close(&mut world.server);
    world.ends(rings);
}

#[test]
fn staging_a_wrong_size_of_get() {
    for (said, staged, asked) in [
        (0, 0, vec![8]),
        (1, 1, vec![8, 9]),
        (271, 271, vec![8, 9]),
        (1 << 31, PAGES, vec![8, 9]),
        (u32::MAX, PAGES, vec![8, 9]),
    ] {
        let (mut world, rings, mut served) = connected();
        let found = serve_with(&mut world, &mut served, |_, request| {
            (request.kind == kind::GET_GREF_MAPPING_SIZE).then_some((Status::Success, said))
        });
        assert_eq!(found, asked, "a size of {said}");
        let state = state(&world);
        assert_eq!((state.staged, state.capacity, state.refusal), (staged, Some(said), None));
        assert!(state.is_settled());
        goes_on(world, rings, served);
    }
}

#[test]
fn staging_an_answer_claims_more_than_was_asked() {
    let (mut world, rings, mut served) = connected();
    // After an ADD only the pages that were asked for count.
    serve_with(&mut world, &mut served, |_, request| {
        (request.kind == kind::ADD_GREF_MAPPING).then_some((Status::Success, u32::MAX))
    });
    assert_eq!((state(&world).staged, state(&world).refusal), (PAGES, None));
    // A DEL cannot give back more than was asked for.
    world.vif.stage(0, PAGES - 28).unwrap();
    serve_with(&mut world, &mut served, |_, request| {
        (request.kind == kind::DEL_GREF_MAPPING).then_some((Status::Success, request.data[2] + 1))
    });
    served.close(&mut world.server);
    world.closed_for(rings, "29 grants of a list of 28");
}

#[test]
fn staging_every_request_refused() {
    for status in [Status::NotSupported, Status::InvalidParameter, Status::BufferOverflow] {
        for (refused, what) in [
            (kind::GET_GREF_MAPPING_SIZE, "say how many pages it takes"),
            (kind::ADD_GREF_MAPPING, "map a list of pages"),
            (kind::DEL_GREF_MAPPING, "give pages back"),
        ] {
            let (mut world, rings, mut served) = connected();
            let answer =
                move |request: CtrlRequest| (request.kind == refused).then_some((status, 0xffff));
            let asked = serve_with(&mut world, &mut served, |_, request| answer(request));
            // A list that is refused comes again by half, a few times.
            assert!(asked.len() <= 8, "{asked:?}");
            if refused == kind::DEL_GREF_MAPPING {
                world.vif.stage(0, 0).unwrap();
                serve_with(&mut world, &mut served, |_, request| answer(request));
                // The backend has them still, and may use them.
                assert_eq!(state(&world).staged, PAGES);
            } else {
                assert_eq!(state(&world).staged, 0);
            }
            let refusal = world.vif.take_staging_refusal().expect("a typed refusal");
            assert_eq!((refusal.queue, refusal.what, refusal.status), (0, what, status));
            assert!(state(&world).is_settled());
            goes_on(world, rings, served);
        }
    }
}

/// Spoils the answer to the first request of a type: the vif closes, says why, and serves a better
/// backend.
fn spoilt(at: u16, spoil: impl Fn(&mut CtrlResponse), why: &str) {
    let (mut world, rings, mut served) = connected();
    for _ in 0..8 {
        let requests = served.requests();
        let [request] = requests[..] else { panic!("one at a time: {requests:?}") };
        let (status, data) = willing(&world.server, request);
        let mut answer = request.answer(status, data);
        if request.kind == at {
            spoil(&mut answer);
        }
        served.answer(&mut world.server, &[answer]);
        world.vif.take_answers().unwrap();
        if request.kind == at {
            break;
        }
        if state(&world).staged == PAGES {
            world.vif.stage(0, 100).unwrap();
        }
    }
    served.close(&mut world.server);
    world.closed_for(rings, why);
}

#[test]
fn staging_wrong_ids_types_and_statuses() {
    for at in [kind::GET_GREF_MAPPING_SIZE, kind::ADD_GREF_MAPPING, kind::DEL_GREF_MAPPING] {
        for bits in [1, 0x7f, 0x80, 0x8000] {
            spoilt(at, |answer| answer.id ^= bits, "which is not outstanding");
        }
        for kind in [0, at % 10 + 1, u16::MAX] {
            spoilt(at, |answer| answer.kind = kind, &format!("is of type {kind}, expected {at}"));
        }
        for status in [4, 0x1_0000, u32::MAX] {
            spoilt(at, |answer| answer.status = status, &format!("has status {status}"));
        }
    }
}

#[test]
fn staging_answers_never_asked_for() {
    // Repeats an old answer, answers what was never asked, and moves indices alone.
    for again in 0..3 {
        let (mut world, rings, mut served) = connected();
        let [get] = served.requests()[..] else { panic!("one request") };
        let answer = get.answer(Status::Success, 64);
        served.answer(&mut world.server, &[answer]);
        world.vif.take_answers().unwrap();
        let [add] = served.requests()[..] else { panic!("one request") };
        let why = match again {
            0 => {
                served.answer(&mut world.server, &[answer]);
                "which is not outstanding"
            }
            1 => {
                let other = CtrlRequest { id: add.id ^ 1, ..add };
                served.answer(&mut world.server, &[other.answer(Status::Success, 0)]);
                "which is not outstanding"
            }
            _ => {
                let produced = served.back.memory().load(Index::RspProd);
                served.back.memory().store(Index::RspProd, produced.wrapping_add(2));
                "control ring"
            }
        };
        world.vif.take_answers().unwrap();
        served.close(&mut world.server);
        world.closed_for(rings, why);
    }
}

#[test]
fn staging_answers_out_of_order() {
    let mut world = World::with(wishes());
    world.server.key("feature-ctrl-ring", b"1");
    world.published();
    let mut served = Served::attach(&mut world.server);
    let rings = world.connect_as_offered();
    // A change of the hash is under way beside staging, and the later request is answered first.
    let wish = HashWish { types: HashTypes::all(), key: [7; 40], mapping: vec![0; 9] };
    world.vif.set_hash(Some(wish)).unwrap();
    let mut most = 0;
    loop {
        let mut requests = served.requests();
        most = most.max(requests.len());
        requests.reverse();
        if requests.is_empty() {
            break;
        }
        let answers: Vec<_> = requests
            .iter()
            .map(|&request| {
                let (status, data) = match request.kind {
                    kind::GET_HASH_FLAGS => (Status::Success, 15),
                    kind::GET_HASH_MAPPING_SIZE => (Status::Success, 128),
                    _ => willing(&world.server, request),
                };
                request.answer(status, data)
            })
            .collect();
        served.answer(&mut world.server, &answers);
        world.vif.take_answers().unwrap();
    }
    assert_eq!(most, 2, "both at once");
    assert_eq!((state(&world).staged, world.vif.hash().1), (PAGES, HashState::Set));
    goes_on(world, rings, served);
}

#[test]
fn staging_statuses_are_garbage() {
    let (mut world, rings, mut served) = connected();
    serve_with(&mut world, &mut served, |_, _| None);
    let before = state(&world).staged;
    assert_eq!(before, PAGES);
    world.vif.stage(0, 144).unwrap();
    let mut tries = 0;
    let mut asked = BTreeSet::new();
    serve_with(&mut world, &mut served, |server, request| {
        tries += 1;
        asked.insert(list(server, request).len());
        // Every third page is said to be gone, and the list is filled with other things.
        let [_, gref, entries] = request.data;
        for n in 0..entries as usize {
            server.fill(gref, (n * 8) as u16, &0xdead_beef_u32.to_le_bytes());
        }
        set_statuses(server, request, |n| if n % 3 == 0 { 0 } else { 1 + n as u16 * 511 });
        Some((Status::Success, 0))
    });
    // The frontend asks for the pages that are left, a bounded number of times, and lets them be.
    assert!(tries == 8 && asked.first() < asked.last(), "{tries} times {asked:?}");
    let refusal = world.vif.take_staging_refusal().expect("a typed refusal");
    assert_eq!(refusal.what, "give pages back");
    assert_eq!(state(&world).staged, 144, "it counts on the first ones only");
    // Pages in doubt are asked about no more.
    world.vif.stage(0, 0).unwrap();
    world.vif.stage(0, PAGES).unwrap();
    assert_eq!(serve_with(&mut world, &mut served, |_, _| None), []);
    goes_on(world, rings, served);
}

#[test]
fn staging_pages_come_back_in_two_steps() {
    // A packet in flight keeps some where they are for a while.
    let (mut world, rings, mut served) = connected();
    serve_with(&mut world, &mut served, |_, _| None);
    for round in 0..3 {
        world.vif.stage(0, 144).unwrap();
        let mut lists = Vec::new();
        serve_with(&mut world, &mut served, |server, request| {
            lists.push(list(server, request).len());
            set_statuses(server, request, |n| if lists.len() == 1 && n >= 60 { 2 } else { 0 });
            Some((Status::Success, lists[0].min(60) as u32))
        });
        assert_eq!(lists, [128, 68], "round {round}");
        assert_eq!((state(&world).staged, state(&world).refusal), (144, None));
        world.vif.stage(0, PAGES).unwrap();
        let asked = serve_with(&mut world, &mut served, |_, _| None);
        assert_eq!((asked, state(&world).staged), (vec![kind::ADD_GREF_MAPPING], PAGES));
    }
    // Some went, and then the backend has no such request: staged is what was not asked back.
    world.vif.stage(0, 144).unwrap();
    let mut first = true;
    serve_with(&mut world, &mut served, |server, request| {
        set_statuses(server, request, |n| if n == 0 { 0 } else { 2 });
        let answer = if first { (Status::Success, 1) } else { (Status::NotSupported, 0) };
        first = false;
        Some(answer)
    });
    let refusal = world.vif.take_staging_refusal().expect("a typed refusal");
    assert_eq!((state(&world).staged, refusal.status), (144, Status::NotSupported));
    goes_on(world, rings, served);
}

#[test]
fn staging_the_backend_never_answers() {
    for answered in 0..2 {
        let (mut world, mut rings, mut served) = connected();
        for _ in 0..answered {
            let [request] = served.requests()[..] else { panic!("one request") };
            let (status, data) = willing(&world.server, request);
            served.answer(&mut world.server, &[request.answer(status, data)]);
            world.vif.take_answers().unwrap();
        }
        for _ in 0..50 {
            world.works(&mut rings);
            world.vif.take_answers().unwrap();
        }
        assert!(!state(&world).is_settled());
        goes_on(world, rings, served);
    }
}

/// Maps the pages of a list, and keeps them mapped.
fn holds(server: &Server, request: CtrlRequest) -> (SharedRun, Vec<GrantRef>) {
    let grefs: Vec<_> = list(server, request).iter().map(|entry| GrantRef(entry.gref)).collect();
    let run = server.domain.map(server.guest, &grefs, Access::ReadOnly).unwrap();
    (run, grefs)
}

#[test]
fn staging_a_page_in_doubt_is_not_used_for_anything_else() {
    // The backend says that it gave pages back, and has them mapped all the same.
    let (mut world, rings, mut served) = connected();
    let mut held = Vec::new();
    serve_with(&mut world, &mut served, |server, request| {
        if request.kind == kind::ADD_GREF_MAPPING {
            held.push(holds(server, request));
        }
        None
    });
    let kept: BTreeSet<GrantRef> = held.iter().flat_map(|(_, grefs)| grefs).copied().collect();
    assert_eq!(kept.len(), PAGES);
    world.vif.stage(0, 0).unwrap();
    serve_with(&mut world, &mut served, |_, _| None);
    assert_eq!(state(&world).staged, 0, "it says so");
    // A connection later none of those pages is lent again, whatever was said.
    served.close(&mut world.server);
    world.server.detach(rings);
    world.server.state(XenbusState::Closing);
    world.look();
    world.server.state(XenbusState::Closed);
    world.until_shown(XenbusState::Initialising);
    assert_eq!(world.guest.counters().deferred, PAGES as u64, "a visible count");
    world.server.offer();
    world.until_shown(XenbusState::Connected);
    let mut served = Served::attach(&mut world.server);
    let mut rings = world.connect_as_offered();
    let mut used = BTreeSet::new();
    serve_with(&mut world, &mut served, |server, request| {
        if request.kind == kind::ADD_GREF_MAPPING {
            used.extend(list(server, request).iter().map(|entry| GrantRef(entry.gref)));
        }
        None
    });
    for n in 0..300u32 {
        world.vif.send(&frame(1000, n as u8), Offload::default()).unwrap();
        world.vif.flush().unwrap();
        let words = rings.requests();
        used.extend(words.iter().map(|&words| GrantRef(TxRequest::from_words(words).gref)));
        for (n, words) in (0..).zip(words) {
            let index = rings.tx_cons.wrapping_sub(1).wrapping_add(n);
            rings.tx_put(index, TxRequest::from_words(words).id, 0);
        }
        rings.tx_publish(rings.tx_cons);
        world.vif.reap().unwrap();
    }
    assert!(used.len() >= PAGES && used.is_disjoint(&kept), "a page that is still mapped");
    // Once it lets go they are the guest's again.
    drop(held);
    goes_on(world, rings, served);
}

#[test]
fn staging_flips_of_what_is_offered() {
    let flips: [&[u8]; 7] = [b"0", b"2", b"", b"-1", b"1\0", b"yes", &[0xff; 300]];
    for key in ["feature-ctrl-ring", "feature-persistent"] {
        for flip in flips {
            let (mut world, mut rings, mut served) = connected();
            // While it is connected, and in the middle of an answer.
            world.server.key(key, flip);
            world.look();
            serve_with(&mut world, &mut served, |_, _| None);
            world.server.key(key, b"1");
            world.look();
            assert_eq!(state(&world).staged, PAGES, "agreed on, whatever it says later");
            world.works(&mut rings);
            // The value counts on the next connection.
            served.close(&mut world.server);
            world.server.detach(rings);
            world.server.key(key, flip);
            world.server.state(XenbusState::Closing);
            world.until_shown(XenbusState::Closed);
            let mut rings = world.connect();
            let expected = match key {
                "feature-ctrl-ring" => Policy::Copy,
                _ => Policy::Staging,
            };
            assert_eq!(world.vif.features().policy, expected, "{key} {flip:?}");
            world.works(&mut rings);
            world.ends(rings);
        }
    }
}

#[test]
fn staging_that_is_not_offered_is_the_next_best() {
    for (says, persistent, expected) in [
        (&b"0"[..], &b"1"[..], Policy::Persistent),
        (b" 0\n", b"1", Policy::Persistent),
        (b"0", b"0", Policy::Copy),
        (b"1", b"1", Policy::Staging),
        (b"2", b"1", Policy::Staging),
        (b"", b"0", Policy::Staging),
    ] {
        let mut world = World::with(wishes());
        world.server.key("feature-ctrl-ring", b"1");
        world.server.key("feature-staging", says);
        world.server.key("feature-persistent", persistent);
        world.published();
        let mut served = Served::attach(&mut world.server);
        let rings = world.connect_as_offered();
        assert_eq!(world.vif.features().policy, expected, "{says:?} {persistent:?}");
        let shown = world.server.front_key("feature-persistent");
        assert_eq!(shown.as_deref() == Some("1"), expected == Policy::Persistent);
        // Staging that was not agreed on is not asked for.
        let asked = served.requests().len();
        assert_eq!(asked, usize::from(expected == Policy::Staging));
        assert_eq!(world.vif.staging().len(), asked);
        goes_on(world, rings, served);
    }
}

#[test]
fn staging_an_offer_that_flips_between_the_two_ends_states() {
    // Taken away after the frontend published, and before the backend connects.
    let mut world = World::with(wishes());
    world.server.key("feature-ctrl-ring", b"1");
    world.published();
    world.server.key("feature-ctrl-ring", b"0");
    let mut rings = world.connect_as_offered();
    world.works(&mut rings);
    assert_eq!((state(&world).staged, state(&world).is_settled()), (0, false));
    world.ends(rings);
}
