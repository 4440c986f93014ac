//! Grant references that do not do what they should.

use crate::support::hostile::{Hostile, frame};
use crate::support::rings::{SLOTS, page, slot};
use crate::support::world::World;
use grantway_embedded::Revoke;
use grantway_hypervisor::{Access, DomId, FrontendPlatform, GrantRef};
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Offload, XenbusState};
use grantway_ring::RingMemory;

const NONE: TxFlags = TxFlags::empty();
const MORE: TxFlags = TxFlags::MORE_DATA;

/// References by which the backend can reach nothing.
fn useless(guest: &Hostile) -> Vec<GrantRef> {
    let revoked = guest.pages(1, Access::ReadWrite);
    assert_eq!(guest.domain.revoke(revoked.grefs[0]), Revoke::Revoked);
    let anothers = guest.domain.grant(DomId(5), 1, Access::ReadWrite).unwrap();
    let mut all = vec![revoked.grefs[0], anothers.grefs[0]];
    // Reserved ones, one that is free, and those behind the table.
    let numbers = [0, 1, 7, 30_000, 32_767, 32_768, 65_536, 0x8000_0000, u32::MAX];
    all.extend(numbers.map(GrantRef));
    // Kept until the guest goes: their references name no other page.
    std::mem::forget((revoked, anothers));
    all
}

#[test]
fn xsa_361_each_status_of_a_batch_is_checked() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let (_memory, good) = guest.page(&frame(100));
    let bad = useless(&guest);
    let slots: Vec<_> = (0..200)
        .map(|n: u16| {
            let gref = if n.is_multiple_of(3) { bad[usize::from(n / 3) % bad.len()] } else { good };
            slot(gref, 0, 60 + n % 3, n, NONE)
        })
        .collect();
    let answers = guest.transmit(&mut rings, &slots);
    for (n, answer) in (0u16..).zip(answers) {
        let expected = if n % 3 == 0 { status::ERROR } else { status::OKAY };
        assert_eq!((answer.id, answer.status), (n, expected));
    }
    let lengths: Vec<_> =
        world.behind(guest.vif).look().taken.iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(lengths, (0..200).filter(|n| n % 3 != 0).map(|n| 60 + n % 3).collect::<Vec<_>>());
    assert_eq!(world.table(guest.vif.domain).grants_held, 2, "the two rings and nothing else");
    world.stands();
}

#[test]
fn xsa_362_a_packet_with_one_bad_page_is_undone_as_a_whole() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let (_memory, good) = guest.page(&frame(4096));
    for bad in useless(&guest) {
        for place in [0, 1, 9, 18] {
            let slots: Vec<_> = (0..19u16)
                .map(|n| {
                    let gref = if n == place { bad } else { good };
                    let size = if n == 0 { 19 * 20 } else { 20 };
                    slot(gref, 0, size, n, if n < 18 { MORE } else { NONE })
                })
                .collect();
            let answers = guest.transmit(&mut rings, &slots);
            let all = answers.iter().all(|answer| answer.status == status::ERROR);
            assert!(all, "{bad} at {place}: {answers:?}");
        }
    }
    assert_eq!(world.behind(guest.vif).look().sent, 0, "a part of a packet was sent");
    assert_eq!(world.table(guest.vif.domain).grants_held, 2, "the two rings and nothing else");
    guest.is_served(&mut rings);
    world.stands();
}

/// Connects with one wrong key: refused with a word, nothing held, and a later
/// connection with the right ones is served.
#[track_caller]
fn refused(world: &World, guest: &mut Hostile, key: &str, value: &str) {
    let rings = guest.rings();
    guest.start_anew();
    guest.publish(&rings);
    guest.key(key, value);
    guest.state(XenbusState::Connected);
    let said = guest.await_disabled();
    assert!(!said.is_empty());
    world.holds_nothing_of(guest.vif.domain);
    let inner = world.behind(guest.vif);
    assert_eq!(inner.look().link, Some(false), "{key}={value}: the link is up");
}

#[test]
fn xsa_371_a_connection_that_fails_half_way_leaves_nothing_mapped() {
    let mut world = World::new();
    let mut guest = world.guest();
    let readonly = guest.pages(1, Access::ReadOnly);
    let mut bad = useless(&guest);
    bad.push(readonly.grefs[0]);
    for key in ["tx-ring-ref", "rx-ring-ref"] {
        for gref in &bad {
            refused(&world, &mut guest, key, &gref.to_string());
        }
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn xsa_371_event_channels_that_are_not_ours_leave_nothing_bound() {
    let mut world = World::new();
    let mut guest = world.guest();
    let anothers = guest.events.alloc_unbound(DomId(5)).unwrap();
    let closed = guest.events.alloc_unbound(DomId(0)).unwrap();
    guest.events.close(closed);
    // One that is bound already: to ourselves.
    let loopback = guest.events.alloc_unbound(guest.vif.domain).unwrap();
    let bound = guest.events.bind_interdomain(guest.vif.domain, loopback).unwrap();
    for key in ["event-channel-tx", "event-channel-rx"] {
        for port in [anothers, closed, loopback, bound] {
            refused_event(&world, &mut guest, key, &port.to_string());
        }
        for port in ["0", "4095", "4096", "2147483648", "4294967295"] {
            refused_event(&world, &mut guest, key, port);
        }
    }
    // The same one twice.
    let rings = guest.rings();
    guest.start_anew();
    guest.publish(&rings);
    guest.key("event-channel-rx", &rings.tx_event.to_string());
    guest.state(XenbusState::Connected);
    guest.await_disabled();
    guest.events.close(loopback);
    guest.events.close(bound);
    world.holds_nothing_of(guest.vif.domain);
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    guest.start_anew();
    world.stands();
}

/// Connects with one wrong event channel, like [`refused`], while the guest has two ports bound
/// to itself.
#[track_caller]
fn refused_event(world: &World, guest: &mut Hostile, key: &str, value: &str) {
    let rings = guest.rings();
    guest.start_anew();
    guest.publish(&rings);
    guest.key(key, value);
    guest.state(XenbusState::Connected);
    guest.await_disabled();
    let table = world.table(guest.vif.domain);
    assert_eq!((table.grants_held, table.ports_bound), (0, 2), "{key}={value}: {table:?}");
    guest.events.close(rings.tx_event);
    guest.events.close(rings.rx_event);
}

#[test]
fn receive_pages_that_cannot_be_written() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let readonly = guest.pages(1, Access::ReadOnly);
    let good = guest.pages(3, Access::ReadWrite);
    let mut bad = useless(&guest);
    bad.push(readonly.grefs[0]);
    for (n, gref) in bad.iter().enumerate() {
        // A frame in one page, and one in three whose second cannot be written.
        let posted = [*gref, good.grefs[0], *gref, good.grefs[2], good.grefs[1]];
        let first = rings.rx_prod;
        guest.post(&mut rings, &posted);
        for len in [60, 10_000, 70] {
            world.behind(guest.vif).give(frame(len), Offload::default());
        }
        let answers = guest.rx_answers(&mut rings, 5);
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [-1, -1, -1, -1, 70], "{gref}, round {n}");
        // The guest finds the end of the chain all the same.
        let more: Vec<_> = answers.iter().map(|answer| answer.flags.bits() & 4).collect();
        assert_eq!(more, [0, 4, 4, 0, 0], "{gref}");
        let ids: Vec<_> = answers.iter().map(|answer| u32::from(answer.id)).collect();
        assert_eq!(ids, (first..first + 5).collect::<Vec<_>>());
        let mut bytes = vec![0; 70];
        page(&good, 1).0.read(answers[4].offset.into(), &mut bytes).unwrap();
        assert_eq!(bytes, frame(70));
    }
    let stats = world.control().report_of(guest.vif).unwrap().stats;
    assert_eq!(stats.rx_dropped_grant, 2 * bad.len() as u64);
    assert_eq!(world.table(guest.vif.domain).grants_held, 2, "the two rings and nothing else");
    world.stands();
}

#[test]
fn ring_pages_as_buffers() {
    let mut world = World::new();
    let mut guest = world.guest();
    // Sent: what is in a ring page is the guest's own affair.
    let mut rings = guest.connect();
    for ring in [rings.tx_ring.grefs[0], rings.rx_ring.grefs[0]] {
        let answers = guest.transmit(&mut rings, &[slot(ring, 0, 4096, 1, NONE)]);
        assert_eq!(answers[0].status, status::OKAY);
    }
    // Received: the frame overwrites indices and slots.
    for bytes in [vec![0xff; 4096], vec![0; 4096], frame(4096), vec![1; 60]] {
        for which in [0, 1] {
            let mut rings = guest.connect();
            let ring = if which == 0 { rings.rx_ring.grefs[0] } else { rings.tx_ring.grefs[0] };
            guest.post(&mut rings, &vec![ring; 256]);
            for _ in 0..20 {
                world.behind(guest.vif).give(bytes.clone(), Offload::default());
            }
            world.honest().carries(8);
            guest.kick(rings.tx_event);
            guest.kick(rings.rx_event);
            world.behind(guest.vif).look().waiting.clear();
            guest.start_anew();
        }
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn one_page_for_both_rings() {
    let mut world = World::new();
    let mut guest = world.guest();
    for _ in 0..3 {
        let mut rings = guest.rings();
        guest.start_anew();
        guest.publish(&rings);
        let both = rings.tx_ring.grefs[0].to_string();
        guest.key("rx-ring-ref", &both);
        guest.state(XenbusState::Connected);
        guest.await_backend(XenbusState::Connected);
        let (_memory, gref) = guest.page(&frame(60));
        rings.put_tx(&[slot(gref, 0, 60, 1, NONE); 200]);
        guest.kick(rings.tx_event);
        guest.kick(rings.rx_event);
        for _ in 0..20 {
            world.behind(guest.vif).give(frame(3000), Offload::default());
        }
        world.honest().carries(16);
        guest.start_anew();
        world.holds_nothing_of(guest.vif.domain);
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn one_page_for_all_buffers() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let (memory, gref) = guest.page(&[]);
    guest.post(&mut rings, &vec![gref; SLOTS as usize]);
    for len in 0..128 {
        world.behind(guest.vif).give(frame(60 + len), Offload::default());
    }
    let answers = guest.rx_answers(&mut rings, 128);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!((usize::from(answer.id), answer.status), (n, 60 + n as i16));
    }
    let mut bytes = vec![0; 187];
    memory.read(answers[127].offset.into(), &mut bytes).unwrap();
    assert_eq!(bytes, frame(187));
    // Sent and received by one page at once.
    rings.put_tx(&[slot(gref, 0, 100, 1, NONE); 200]);
    guest.kick(rings.tx_event);
    for _ in 0..100 {
        world.behind(guest.vif).give(frame(200), Offload::default());
    }
    assert_eq!(guest.tx_answers(&mut rings, 200).len(), 200);
    assert_eq!(guest.rx_answers(&mut rings, 100).len(), 100);
    world.stands();
}

#[test]
fn xsa_396_the_guest_revokes_under_the_backend() {
    // Pages that go while packets name them, and rings that cannot go.
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    assert_eq!(guest.domain.revoke(rings.tx_ring.grefs[0]), Revoke::StillMapped);
    assert_eq!(guest.domain.revoke(rings.rx_ring.grefs[0]), Revoke::StillMapped);
    for _ in 0..50 {
        let pool = guest.pages(64, Access::ReadOnly);
        let slots: Vec<_> =
            pool.grefs.iter().map(|&gref| slot(gref, 0, 60, gref.0 as u16, NONE)).collect();
        rings.put_tx(&slots);
        guest.kick(rings.tx_event);
        guest.domain.release(pool);
        let answers = guest.tx_answers(&mut rings, 64);
        for (words, answer) in slots.iter().zip(answers) {
            assert_eq!(answer.id, words[2] as u16);
            assert!([status::OKAY, status::ERROR].contains(&answer.status));
        }
    }
    guest.is_served(&mut rings);
    let left = rings.tx.load(grantway_ring::Index::RspProd);
    assert_eq!(left, rings.tx_prod);
    world.stands();
}
