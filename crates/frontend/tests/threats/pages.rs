//! The guest's memory that a backend can see, and for how long.

use crate::support::server::{Rings, Server};
use crate::support::silent::Silent;
use crate::support::world::World;
use crate::support::{eventually, frame};
use grantway_embedded::HostConfig;
use grantway_frontend::{Vif, VifStatus, Wishes};
use grantway_hypervisor::{GrantRef, Platform};
use grantway_netif::tx::{TxRequest, status};
use grantway_netif::{Offload, XenbusState};
use grantway_ring::{SharedPage, SharedRun};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// References that the guest of a test may have in use.
const MOST: u32 = 2048;

/// Maps all pages that the backend can reach, by reference, except for the two rings.
fn reachable(server: &Server, rings: &Rings) -> BTreeMap<u32, (SharedRun, SharedPage)> {
    let all = (0..MOST).filter(|&gref| rings.grefs.iter().all(|ring| ring.0 != gref));
    all.filter_map(|gref| Some((gref, server.peek(GrantRef(gref))?))).collect()
}

fn bytes(page: &SharedPage) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    page.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn xsa_403_pages_hold_nothing_but_frames_for_this_backend() {
    let mut world = World::new();
    let mut rings = world.connect();
    let pages = reachable(&world.server, &rings);
    assert_eq!(
        pages.len(),
        272,
        "a half and a small buffer to send for each slot, and those posted"
    );
    for (gref, (_, page)) in &pages {
        assert_eq!(bytes(page), [0; 4096], "gref {gref}");
    }
    // Frames of every length; a page holds its frame and nothing behind it but
    // zeroes, or what an earlier frame to this very backend left.
    let mut model: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for round in 0..6u8 {
        for len in [14, 60, 1500, 4095, 4096, 4097, 9000, 65_535] {
            world.vif.send(&frame(len, round * 40), Offload::default()).unwrap();
            world.vif.flush().unwrap();
            let first = rings.tx_cons;
            let slots = rings.requests();
            let sent = frame(len, round * 40);
            let mut at = 0;
            let later: usize = slots[1..]
                .iter()
                .map(|&words| usize::from(TxRequest::from_words(words).size))
                .sum();
            for (n, &words) in slots.iter().enumerate() {
                let request = TxRequest::from_words(words);
                let size = if n == 0 { len - later } else { usize::from(request.size) };
                let page = model.entry(request.gref).or_insert_with(|| vec![0; 4096]);
                let start = usize::from(request.offset);
                page[start..start + size].copy_from_slice(&sent[at..at + size]);
                at += size;
                // Each frame is checked at once: the next may hide what this one left behind.
                let (_, seen) = &pages[&request.gref];
                assert!(bytes(seen) == *page, "{len} bytes: gref {} has more", request.gref);
                rings.tx_put(first.wrapping_add(n as u32), request.id, 0);
            }
            assert_eq!(at, len);
            rings.tx_publish(rings.tx_cons);
            world.vif.reap().unwrap();
        }
    }
    for (gref, (_, page)) in &pages {
        let expected = model.remove(gref).unwrap_or_else(|| vec![0; 4096]);
        assert!(bytes(page) == expected, "gref {gref} holds bytes of no frame");
    }
    assert!(model.is_empty(), "frames in pages that were not there before: {:?}", model.keys());
    drop(pages);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn xsa_403_the_rings_themselves_hold_nothing_stale() {
    let mut world = World::new();
    // Use the pages for frames first, then grant them again.
    for _ in 0..3 {
        let mut rings = world.connect();
        for n in 0..256 {
            let _ = world.vif.send(&frame(4096, n as u8), Offload::default());
        }
        world.vif.flush().unwrap();
        let slots = rings.requests();
        assert_eq!(slots.len(), 128);
        for words in &slots {
            let request = TxRequest::from_words(*words);
            assert_eq!((request.offset, request.size), (0, 4096));
        }
        world.server.detach(rings);
        world.server.state(XenbusState::Closing);
        world.look();
        world.server.state(XenbusState::Closed);
        world.look();
        assert_eq!(world.guest.counters().deferred, 0);
    }
    let rings = world.connect();
    for (gref, (_, page)) in reachable(&world.server, &rings) {
        assert_eq!(bytes(&page), [0; 4096], "gref {gref} holds another connection's bytes");
    }
    let whole = bytes(&rings.runs[0].page(0).unwrap());
    // req_prod, req_event, rsp_prod, rsp_event; the backend wrote none of it.
    assert_eq!(whole[..16], [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(whole[16..], [0; 4096 - 16], "the transmit ring holds stale bytes");
    let whole = bytes(&rings.runs[1].page(0).unwrap());
    assert_eq!(whole[16..64], [0; 48], "the padding of the receive ring");
    assert_eq!(whole[64 + 256 * 8..], [0; 4096 - 64 - 256 * 8], "behind the receive slots");
    world.ends(rings);
}

#[test]
fn xsa_396_pages_that_stay_mapped_are_never_used_again() {
    let mut world = World::new();
    let mut rings = world.connect();
    world.works(&mut rings);
    // A dozen pages of either pool, mapped for good, and both rings.
    let mut kept: Vec<(u32, SharedRun, SharedPage)> = Vec::new();
    for (gref, (run, page)) in reachable(&world.server, &rings) {
        if gref % 23 == 0 {
            kept.push((gref, run, page));
        }
    }
    assert!(kept.len() >= 10);
    let stale = rings.grefs;
    let before: Vec<_> = kept.iter().map(|(_, _, page)| bytes(page)).collect();
    world.server.events.close(rings.tx_event);
    world.server.events.close(rings.rx_event);
    world.server.state(XenbusState::Closing);
    world.look();
    world.server.state(XenbusState::Closed);
    world.look();
    let counters = world.guest.counters();
    assert_eq!(counters.deferred as usize, kept.len() + 2, "seen, and counted");
    assert_eq!(counters.granted as usize, kept.len() + 2);
    // Three more connections, full of frames.
    for _ in 0..3 {
        let mut again = world.connect();
        let new = reachable(&world.server, &again);
        for (gref, _, _) in &kept {
            // The page is mapped, so it is still granted; but it is not to be found on a ring.
            assert!(new.contains_key(gref));
        }
        drop(new);
        assert!(again.grefs.iter().all(|gref| !stale.contains(gref)));
        for n in 0..128 {
            world.vif.send(&frame(4096, n as u8), Offload::default()).unwrap();
        }
        world.vif.flush().unwrap();
        for words in again.requests() {
            let gref = TxRequest::from_words(words).gref;
            assert!(kept.iter().all(|(old, _, _)| *old != gref), "gref {gref} is used again");
        }
        while again.posted() > 0 {
            let gref = again.take().gref;
            assert!(kept.iter().all(|(old, _, _)| *old != gref), "gref {gref} is used again");
        }
        let now: Vec<_> = kept.iter().map(|(_, _, page)| bytes(page)).collect();
        assert!(before == now, "the memory behind a kept page was used again");
        world.server.detach(again);
        world.server.state(XenbusState::Closing);
        world.look();
        world.server.state(XenbusState::Closed);
        world.look();
    }
    // Once the backend lets go, they come back.
    drop((kept, rings));
    let mut rings = world.connect();
    assert_eq!(world.guest.counters().deferred, 0);
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn xsa_396_a_backend_that_keeps_everything_is_distinguished_from_a_bug() {
    // Each connection costs what the backend keeps. It ends in an error that
    // names the table, and the vif comes back once the pages do.
    let config = HostConfig { grant_entries: 1024, ..HostConfig::default() };
    let mut world = World::on(config, Wishes::default());
    let mut kept = Vec::new();
    loop {
        world.server.offer();
        eventually("it connects, or says why not", || {
            world.look();
            let shown = world.server.front_state();
            let through = shown == Some(XenbusState::Connected);
            (through || world.vif.status() == VifStatus::Held).then_some(())
        });
        if world.vif.status() == VifStatus::Held {
            break;
        }
        let rings = world.server.attach();
        kept.push((reachable(&world.server, &rings), rings));
        world.server.state(XenbusState::Closing);
        world.until_shown(XenbusState::Closed);
        world.server.state(XenbusState::Closed);
        world.tries_again();
        world.until_shown(XenbusState::Initialising);
    }
    assert_eq!(kept.len(), 3, "1022 entries are three connections of 274");
    let said = world.vif.take_failure().unwrap().to_string();
    assert!(said.contains("the grant table is full"), "{said}");
    let counters = world.guest.counters();
    assert_eq!((counters.granted, counters.deferred), (3 * 274, 3 * 274));
    let table = world.table();
    assert_eq!(table.ports_unbound, 0, "a connection that failed leaves a port");
    for (_, rings) in kept {
        world.server.detach(rings);
    }
    world.vif.restart().unwrap();
    let mut rings = world.connect();
    world.works(&mut rings);
    assert_eq!(world.guest.counters().deferred, 0);
    world.ends(rings);
}

#[test]
fn xsa_396_pages_in_unknown_state_are_never_used_again() {
    // A page is never known to be let go, as with gntalloc on Xen.
    let mut world = World::new();
    let silent = Arc::new(Silent::over(&world.guest));
    let platform: Arc<dyn Platform> = Arc::<Silent>::clone(&silent);
    world.vif = Vif::open(platform, 0, Wishes::default()).unwrap();
    let mut ever = BTreeSet::new();
    for round in 1..=4u8 {
        let mut rings = world.connect();
        let mut used: BTreeSet<u32> = rings.grefs.iter().map(|gref| gref.0).collect();
        let kept: Vec<_> = silent.pages().iter().map(|(_, page)| bytes(page)).collect();
        assert_eq!(kept.len(), (usize::from(round) - 1) * 274, "given back, and kept");
        // Small buffers and whole pages.
        for (len, count) in [(60, 256), (4096, 128)] {
            assert_eq!(world.vif.reap().unwrap(), if len == 60 { 0 } else { 256 });
            for n in 0..count {
                world.vif.send(&frame(len, round ^ n as u8), Offload::default()).unwrap();
            }
            world.vif.flush().unwrap();
            let slots = rings.requests().into_iter().map(TxRequest::from_words);
            for (slot, index) in slots.zip(0..) {
                used.insert(slot.gref);
                rings.tx_put(index, slot.id, status::OKAY);
            }
            if len == 60 {
                rings.tx_publish(256);
            }
        }
        while rings.posted() > 0 {
            used.insert(rings.take().gref);
        }
        assert_eq!(used.len(), 274);
        assert!(ever.is_disjoint(&used), "round {round}: a reference is used again");
        ever.extend(used);
        let now: Vec<_> = silent.pages().iter().map(|(_, page)| bytes(page)).collect();
        assert!(kept == now, "round {round}: a page that was given back is used again");
        world.server.detach(rings);
    }
    world.server.state(XenbusState::Closing);
    world.look();
    world.server.state(XenbusState::Closed);
    world.look();
    let given_back: BTreeSet<u32> = silent.pages().iter().map(|(gref, _)| gref.0).collect();
    assert_eq!(given_back, ever, "each of them once");
}

#[test]
fn xsa_405_a_page_in_use_has_one_owner() {
    // No id and no page is on the rings twice, whatever the order of answers.
    let mut world = World::new();
    let mut rings = world.connect();
    let mut numbers = 405u32;
    let mut out: Vec<TxRequest> = Vec::new();
    let mut answered = rings.tx_cons;
    for _ in 0..200 {
        numbers = numbers.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        for _ in 0..(numbers >> 26) {
            let len = 14 + (numbers >> 16) as usize % 9000;
            if world.vif.send(&frame(len, 1), Offload::default()).is_err() {
                break;
            }
        }
        world.vif.flush().unwrap();
        out.extend(rings.requests().into_iter().map(TxRequest::from_words));
        let mut seen = std::collections::BTreeSet::new();
        for request in &out {
            assert!(seen.insert((request.gref, request.id)), "{request:?} is out twice");
        }
        for _ in 0..out.len() / 2 {
            numbers = numbers.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let request = out.swap_remove((numbers >> 8) as usize % out.len());
            rings.tx_put(answered, request.id, 0);
            answered = answered.wrapping_add(1);
        }
        rings.tx_publish(answered);
        world.vif.reap().unwrap();
    }
    assert_eq!(world.vif.take_failure(), None);
    world.ends(rings);
}
