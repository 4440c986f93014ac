//! Large packets that a port reads in pages that stay mapped: which bytes arrive, which bytes
//! the guest can change meanwhile, and when a page can be removed.

use crate::support::ctrl::Lists;
use crate::support::hostile::{Hostile, frame};
use crate::support::port::Call;
use crate::support::rings::Rings;
use crate::support::world::{GUEST, World};
use crate::support::{PROMPT, eventually};
use arrayvec::ArrayVec;
use grantway_backend::VifStatsSnapshot;
use grantway_embedded::Revoke;
use grantway_frontend::{Policy, SendError, TxMeta, Vif, VifStatus, Wishes};
use grantway_hypervisor::{Access, GrantRef, Granted, Platform};
use grantway_netif::ctrl::{GrefEntry, GrefFlags};
use grantway_netif::slots::tx::{TxFragment, write_tx};
use grantway_netif::tx::{TxResponse, status};
use grantway_netif::{Checksum, Gso, GsoKind, Offload};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Instant;

/// Bytes of a packet that are copied, and judged.
const HEAD: usize = 128;
/// Bytes of the longest large packet that is copied as a whole.
const COPIED: usize = 2048;
const PLAIN: Offload = Offload { checksum: Checksum::Partial, gso: None };
const LARGE: Offload =
    Offload { checksum: Checksum::Partial, gso: Some(Gso { kind: GsoKind::Tcpv4, size: 1448 }) };
/// Bytes by which a guest replaces all others.
const CHANGED: u8 = 0xee;

/// A packet in pages of its own.
struct Packet {
    slots: Vec<[u32; 3]>,
    pages: Granted,
    bytes: Vec<u8>,
}

impl Packet {
    fn new(guest: &Hostile, len: usize, offload: Offload) -> Self {
        let bytes = frame(len);
        let pages = guest.pages(len.div_ceil(4000), Access::ReadOnly);
        let mut fragments = Vec::new();
        for (n, part) in bytes.chunks(4000).enumerate() {
            let (memory, gref) = pages.page(n).unwrap();
            memory.write(n, part).unwrap();
            let (offset, size) = (n as u16, part.len() as u16);
            fragments.push(TxFragment { gref: gref.0, offset, size, id: n as u16 });
        }
        let mut slots = ArrayVec::new();
        write_tx(&fragments, len as u16, offload, None, None, &mut slots).unwrap();
        Self { slots: slots.to_vec(), pages, bytes }
    }

    fn entries(&self) -> Vec<GrefEntry> {
        let entry =
            |gref: &GrantRef| GrefEntry { gref: gref.0, flags: GrefFlags::READONLY, status: 0 };
        self.pages.grefs.iter().map(entry).collect()
    }
}

fn stats(world: &World) -> VifStatsSnapshot {
    world.control().report_of(GUEST).unwrap().stats
}

fn taken(world: &World) -> Vec<(Vec<u8>, Offload)> {
    std::mem::take(&mut world.behind(GUEST).look().taken)
}

fn are_okay(answers: &[TxResponse]) {
    let okay = |answer: &TxResponse| [status::OKAY, status::NULL].contains(&answer.status);
    assert!(answers.iter().all(okay), "{answers:?}");
}

/// A guest that stages pages, in a world whose honest vif rests.
fn connected() -> (World, Hostile, Lists, Rings) {
    let mut world = World::new();
    world.honest().count(0);
    let mut guest = world.guest();
    let (lists, rings) = Lists::connect(&mut guest);
    (world, guest, lists, rings)
}

/// Lets the guest write over all of a packet's pages once the port is called.
fn changes(world: &World, packet: &Packet) {
    let count = packet.pages.grefs.len();
    let pages: Vec<_> = (0..count).map(|n| packet.pages.page(n).unwrap().0).collect();
    world.behind(GUEST).hook(move |call| {
        if call == Call::Send {
            pages.iter().for_each(|page| page.write(0, &[CHANGED; 4096]).unwrap());
        }
    });
}

/// Checks that a packet arrived whose bytes from `from` on the guest changed in flight.
#[track_caller]
fn arrived(world: &World, packet: &Packet, from: usize, offload: Offload) {
    let [(bytes, found)] = &taken(world)[..] else { panic!("one packet was sent") };
    assert_eq!((bytes.len(), *found), (packet.bytes.len(), offload));
    assert!(bytes[..from] == packet.bytes[..from], "judged bytes were read again");
    assert!(bytes[from..].iter().all(|&byte| byte == CHANGED), "bytes behind {from} were copied");
}

#[test]
fn only_large_packets_in_staged_pages_are_read_in_place_and_only_their_heads_are_judged() {
    let (world, mut guest, mut lists, mut rings) = connected();
    for len in [60, 129, 2000, COPIED, COPIED + 1, 4000, 4001, 9000, 30_000, 65_535] {
        for offload in [LARGE, PLAIN] {
            let packet = Packet::new(&guest, len, offload);
            assert_eq!(lists.add(&mut guest, &packet.entries()), Ok(0));
            let before = (stats(&world), world.control().counters());
            // The guest leaves the pages alone first.
            are_okay(&guest.transmit(&mut rings, &packet.slots));
            arrived(&world, &packet, len, offload);
            changes(&world, &packet);
            are_okay(&guest.transmit(&mut rings, &packet.slots));
            world.behind(GUEST).unhook();
            let in_place = offload == LARGE && len > COPIED;
            arrived(&world, &packet, if in_place { HEAD } else { len }, offload);
            let (after, spent) = (stats(&world), world.control().counters().since(&before.1));
            assert_eq!(after.mapped_misses, before.0.mapped_misses, "{len} bytes");
            assert_eq!((spent.copies, spent.maps, spent.unmaps), (0, 0, 0), "{len} bytes");
            assert_eq!(
                lists.del(&mut guest, &packet.entries()),
                Ok(packet.pages.grefs.len() as u32)
            );
        }
    }
    world.honest().go_on();
    world.stands();
}

#[test]
fn packets_of_all_kinds_keep_their_order() {
    let (world, mut guest, mut lists, mut rings) = connected();
    let kinds =
        [(60, PLAIN), (9000, LARGE), (200, PLAIN), (300, LARGE), (30_000, LARGE), (60, PLAIN)];
    let packets: Vec<_> =
        kinds.iter().map(|&(len, offload)| Packet::new(&guest, len, offload)).collect();
    for packet in &packets {
        assert_eq!(lists.add(&mut guest, &packet.entries()), Ok(0));
    }
    for _ in 0..50 {
        let slots: Vec<_> = packets.iter().flat_map(|packet| packet.slots.clone()).collect();
        are_okay(&guest.transmit(&mut rings, &slots));
        let found = taken(&world);
        assert_eq!(found.len(), packets.len());
        for ((bytes, offload), (packet, kind)) in found.iter().zip(packets.iter().zip(kinds)) {
            assert!(*bytes == packet.bytes && *offload == kind.1, "{} bytes", bytes.len());
        }
    }
    world.honest().go_on();
    world.stands();
}

#[test]
fn a_page_that_is_removed_meanwhile_stays_mapped_until_the_port_is_done() {
    let (world, mut guest, mut lists, mut rings) = connected();
    let packet = Packet::new(&guest, 20_000, LARGE);
    assert_eq!(lists.add(&mut guest, &packet.entries()), Ok(0));
    let (domain, grefs) = (Arc::clone(&guest.domain), packet.pages.grefs.clone());
    let (called, is_called) = channel();
    let (asked, is_asked) = channel();
    let pinned = Arc::new(AtomicU64::new(0));
    let pins = Arc::clone(&pinned);
    world.behind(GUEST).hook(move |call| {
        if call == Call::Send {
            called.send(()).unwrap();
            is_asked.recv_timeout(PROMPT).unwrap();
            // Time for the control thread to unmap what it should not.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let held = |gref: &&GrantRef| domain.revoke(**gref) == Revoke::StillMapped;
            pins.store(grefs.iter().filter(held).count() as u64, SeqCst);
        }
    });
    rings.put_tx(&packet.slots);
    guest.kick(rings.tx_event);
    is_called.recv_timeout(PROMPT).unwrap();
    assert_eq!(rings.tx_answers(), [], "answered before the port is done");
    let message = lists.to_del(0, &packet.entries());
    lists.ring.put(&[message.request(1)]);
    guest.kick(lists.ring.event);
    asked.send(()).unwrap();
    let answers = guest.tx_answers(&mut rings, packet.slots.len());
    are_okay(&answers);
    assert_eq!(pinned.load(SeqCst), packet.pages.grefs.len() as u64);
    lists.ring.answers(&mut guest, 1);
    world.behind(GUEST).unhook();
    arrived(&world, &packet, packet.bytes.len(), LARGE);
    eventually("the pages to be free", || {
        let free = |&gref: &GrantRef| guest.domain.revoke(gref) == Revoke::Revoked;
        packet.pages.grefs.iter().all(free).then_some(())
    });
    world.honest().go_on();
    world.stands();
}

#[test]
fn a_packet_with_a_page_that_is_not_mapped_is_copied_whole_and_so_are_the_next() {
    let (world, mut guest, mut lists, mut rings) = connected();
    let packet = Packet::new(&guest, 20_000, LARGE);
    let mut entries = packet.entries();
    let left_out = entries.remove(3);
    assert_eq!(lists.add(&mut guest, &entries), Ok(0));
    changes(&world, &packet);
    are_okay(&guest.transmit(&mut rings, &packet.slots));
    world.behind(GUEST).unhook();
    arrived(&world, &packet, packet.bytes.len(), LARGE);
    assert_eq!(stats(&world).mapped_misses, 1);
    // Some turns later packets are read in place again.
    assert_eq!(lists.add(&mut guest, &[left_out]), Ok(0));
    for turn in 0..80 {
        let packet = Packet::new(&guest, 3000, LARGE);
        assert_eq!(lists.add(&mut guest, &packet.entries()), Ok(0));
        changes(&world, &packet);
        are_okay(&guest.transmit(&mut rings, &packet.slots));
        world.behind(GUEST).unhook();
        match turn {
            0..60 => arrived(&world, &packet, packet.bytes.len(), LARGE),
            70.. => arrived(&world, &packet, HEAD, LARGE),
            _ => drop(taken(&world)),
        }
        assert_eq!(lists.del(&mut guest, &packet.entries()), Ok(1));
    }
    world.honest().go_on();
    world.stands();
}

#[test]
fn an_invalid_reference_drops_only_its_own_packet() {
    let (world, mut guest, mut lists, mut rings) = connected();
    let packets: Vec<_> = (0..3).map(|_| Packet::new(&guest, 9000, LARGE)).collect();
    for packet in &packets {
        assert_eq!(lists.add(&mut guest, &packet.entries()), Ok(0));
    }
    for (round, bad) in [0, 30_000, u32::MAX].into_iter().enumerate() {
        let mut slots: Vec<_> = packets.iter().map(|packet| packet.slots.clone()).collect();
        // The last page of the second packet.
        slots[1].last_mut().unwrap()[0] = bad;
        let answers = guest.transmit(&mut rings, &slots.concat());
        let each = packets[0].slots.len();
        are_okay(&answers[..each]);
        are_okay(&answers[2 * each..]);
        let broken = &answers[each..2 * each];
        assert!(broken.iter().all(|answer| answer.status != status::OKAY), "{broken:?}");
        assert_eq!((taken(&world).len(), stats(&world).tx_dropped_grant), (2, 1 + round as u64));
    }
    world.honest().go_on();
    world.stands();
}

#[test]
fn a_packet_that_a_busy_port_refuses_is_answered_and_counted() {
    let (world, mut guest, mut lists, mut rings) = connected();
    let packet = Packet::new(&guest, 9000, LARGE);
    assert_eq!(lists.add(&mut guest, &packet.entries()), Ok(0));
    world.behind(GUEST).look().busy = true;
    are_okay(&guest.transmit(&mut rings, &packet.slots));
    world.behind(GUEST).look().busy = false;
    assert_eq!((taken(&world).len(), stats(&world).tx_dropped_busy), (0, 1));
    are_okay(&guest.transmit(&mut rings, &packet.slots));
    arrived(&world, &packet, packet.bytes.len(), LARGE);
    world.honest().go_on();
    world.stands();
}

#[test]
fn frames_whose_length_is_known_last_arrive_unchanged() {
    let mut world = World::new();
    let domain = world.boot(GUEST.domain);
    world.attach(GUEST, &[]);
    world.expects(GUEST);
    let wishes = Wishes { policy: Policy::Persistent, ..Wishes::default() };
    let mut vif = Vif::open(domain as Arc<dyn Platform>, 0, wishes).unwrap();
    eventually("the connection", || {
        (vif.store_changed().unwrap() == VifStatus::Connected).then_some(())
    });
    let sizes = [60, 9000, COPIED + 1, 65_535, 4096, 40_000];
    let (mut sent, start) = (0, Instant::now());
    while sent < 300 {
        let queue = &mut vif.queues()[0];
        let bytes = frame(sizes[sent % 6]);
        let filled = queue.lend_room(|pages| {
            let mut left = &bytes[..];
            for page in pages {
                let (part, behind) = left.split_at(left.len().min(page.len()));
                page.write(0, part).unwrap();
                left = behind;
            }
            assert!(left.is_empty(), "room for the longest frame");
            (Some(TxMeta { len: bytes.len(), offload: LARGE }), ())
        });
        match filled {
            Ok(((), taken)) => {
                assert_eq!(taken, Ok(true));
                sent += 1;
            }
            Err(full) => {
                assert_eq!(full, SendError::Full);
                queue.flush().unwrap();
                queue.reap().unwrap();
                assert!(start.elapsed() < PROMPT, "{sent} frames");
            }
        }
    }
    vif.flush().unwrap();
    eventually("all frames to arrive", || (world.behind(GUEST).look().sent == 300).then_some(()));
    for (n, (bytes, offload)) in taken(&world).into_iter().enumerate() {
        assert!(bytes == frame(sizes[n % 6]) && offload == LARGE, "frame {n}");
    }
    // Pages are copied when they are seen first, and found mapped from then on.
    let found = stats(&world);
    assert!(found.mapped_hits > found.mapped_misses, "{found:?}");
    drop(vif);
    world.stands();
}
