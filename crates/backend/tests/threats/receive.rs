//! Guests that give too little to receive into.

use crate::support::eventually;
use crate::support::hostile::frame;
use crate::support::rings::{SLOTS, page};
use crate::support::world::World;
use grantway_hypervisor::Access;
use grantway_netif::rx::RxRequest;
use grantway_netif::{Gso, GsoKind, Offload};
use grantway_ring::{Index, RingMemory};
use std::time::Duration;

#[test]
fn xsa_392_a_guest_that_posts_no_pages() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let behind = world.behind(guest.vif);
    for n in 0..600 {
        behind.give(frame(60 + n % 500), Offload::default());
    }
    eventually("the first frame was taken", || (behind.look().given > 0).then_some(()));
    // Whole turns of this queue lie between the answers to what it sends.
    for _ in 0..20 {
        guest.is_served(&mut rings);
        assert!(behind.look().given <= 1, "no more than one frame waits in the backend");
    }
    world.honest().carries(50);
    // It goes on once there is room, and lost nothing.
    let buffers = guest.pages(SLOTS as usize, Access::ReadWrite);
    let mut lengths = Vec::new();
    while lengths.len() < 600 {
        let room = SLOTS - rings.rx_prod.wrapping_sub(rings.rx_cons);
        let grefs: Vec<_> = (0..room).map(|n| buffers.grefs[n as usize]).collect();
        guest.post(&mut rings, &grefs);
        lengths.extend(guest.rx_answers(&mut rings, 1).iter().map(|answer| answer.status));
    }
    assert_eq!(lengths, (0..600).map(|n| 60 + n % 500).collect::<Vec<i16>>());
    world.stands();
}

#[test]
fn xsa_392_a_guest_that_posts_too_few_pages() {
    // A stall is: fewer posted than this frame needs; not: none posted.
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let behind = world.behind(guest.vif);
    let buffers = guest.pages(SLOTS as usize, Access::ReadWrite);
    let gso = Offload { gso: Some(Gso { kind: GsoKind::Tcpv4, size: 1448 }), ..Default::default() };
    for (len, offload, needed) in
        [(60, Offload::default(), 1), (9000, Offload::default(), 3), (65_535, gso, 17)]
    {
        for round in 0..5 {
            let before = world.control().report_of(guest.vif).unwrap().stats.rx_stalls;
            behind.give(frame(len), offload);
            if round == 0 {
                // The frame is there before the first page is, and waits.
                eventually("a stall is counted", || {
                    let stats = world.control().report_of(guest.vif).unwrap().stats;
                    (stats.rx_stalls == before + 1).then_some(())
                });
            }
            for posted in 1..=needed {
                assert_eq!(rings.rx.load(Index::RspProd), rings.rx_cons, "before {posted} pages");
                if posted % 2 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
                // Signals only where the backend asked for one.
                let old = rings.rx_prod;
                let gref = buffers.grefs[(old % SLOTS) as usize];
                rings.put_rx(&[RxRequest { id: old as u16, gref: gref.0 }]);
                let event = rings.rx.load(Index::ReqEvent);
                let new = rings.rx_prod;
                if new.wrapping_sub(event) < new.wrapping_sub(old) {
                    guest.kick(rings.rx_event);
                }
            }
            let answers = guest.rx_answers(&mut rings, needed);
            assert_eq!(answers.len(), needed);
            assert!(answers.iter().all(|answer| answer.status >= 0));
        }
    }
    let stats = world.control().report_of(guest.vif).unwrap().stats;
    assert_eq!(stats.rx_packets, 15);
    assert!((3..=15).contains(&stats.rx_stalls), "once for a frame at most: {stats:?}");
    world.stands();
}

#[test]
fn xsa_392_a_vif_is_closed_while_a_frame_waits_for_pages() {
    let mut world = World::new();
    let mut guest = world.guest();
    for posted in [0, 2] {
        let mut rings = guest.connect();
        let behind = world.behind(guest.vif);
        let buffers = guest.pages(2, Access::ReadWrite);
        guest.post(&mut rings, &buffers.grefs[..posted]);
        for _ in 0..3 {
            behind.give(frame(9000), Offload::default());
        }
        eventually("a frame waits", || (behind.look().waiting.len() == 2).then_some(()));
        guest.start_anew();
        world.holds_nothing_of(guest.vif.domain);
        behind.look().waiting.clear();
    }
    let rings = guest.connect();
    world.behind(guest.vif).give(frame(9000), Offload::default());
    world.honest().carries(8);
    drop(rings);
    world.stands();
}

#[test]
fn frames_that_are_too_large_or_too_short_for_the_guest_are_dropped() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.rings();
    guest.publish(&rings);
    guest.start_anew();
    guest.publish(&rings);
    guest.key("feature-sg", "0");
    guest.state(grantway_netif::XenbusState::Connected);
    guest.await_backend(grantway_netif::XenbusState::Connected);
    let behind = world.behind(guest.vif);
    assert!(!behind.look().offloads.tso4, "segmentation without scatter-gather");
    let buffers = guest.pages(4, Access::ReadWrite);
    guest.post(&mut rings, &buffers.grefs);
    for len in [4097, 13, 65_535, 4096, 0, 60] {
        behind.give(frame(len), Offload::default());
    }
    let answers = guest.rx_answers(&mut rings, 2);
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [4096, 60]);
    let mut bytes = vec![0; 4096];
    page(&buffers, 0).0.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, frame(4096));
    let stats = world.control().report_of(guest.vif).unwrap().stats;
    assert_eq!((stats.rx_dropped_too_large, stats.rx_dropped_too_short), (2, 2));
    world.stands();
}
