//! Guests on the backend's own bridge: what one sends reaches whom it is for, byte
//! for byte, and what one does wrong is nothing to the others.

#[path = "../support/mod.rs"]
mod support;

mod checksums;
mod datagrams;
mod first_slot;
mod guest;
mod headroom;
mod idle;
mod lists;
mod merge;
mod mesh;
mod own_nodes;
mod rules;

use grantway_backend::WaitMode;
use grantway_backend::policy::Policy;
use grantway_hypervisor::GrantRef;
use grantway_netif::extra::Extra;
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Checksum, Offload, XenbusState};
use grantway_ring::{Index, RingMemory};
use grantway_testkit::Numbers;
use guest::{BROADCAST, Guest, NOBODY, frame, know_each_other, three, three_as, uplink_takes};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use support::port::UPLINK;
use support::rings::{page, slot};
use support::tcp::{SEQUENCE, Tcp};
use support::world::{CREWS, World};
use support::{Ends, eventually};

#[test]
fn frames_of_every_length_and_cut_arrive_whole_where_they_belong() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = three(&mut world);
        let mut numbers = Numbers::new(7);
        c.posts(40);
        let lengths = [14, 15, 60, 127, 128, 129, 130, 1514, 4095, 4096, 4097, 4224, 9014, 65_535];
        for len in lengths {
            for way in 0..6 {
                let bytes = frame(b.address, a.address, len);
                let smallest = len.div_ceil(18).max(1);
                let slots = a.slots(
                    &bytes,
                    &mut || match way {
                        0 => 4096,
                        1 => smallest,
                        2 => (smallest + 1).max(100),
                        3 => (smallest + 1).max(128),
                        _ => smallest.max(1 + numbers.below(4096)),
                    },
                    7,
                );
                b.posts(len.div_ceil(4096));
                a.sends_slots(&slots);
                assert_eq!(b.gets(), bytes, "{len} bytes in {} slots", slots.len());
            }
        }
        c.gets_nothing();
        // The head goes by private memory; the rest crosses in one copy.
        let copies = |world: &World| world.control().counters().copies;
        let before = copies(&world);
        b.posts(1);
        let bytes = frame(b.address, a.address, 1514);
        a.sends(&bytes);
        assert_eq!(b.gets(), bytes);
        assert_eq!(copies(&world) - before, 3, "head in, head out, the rest across");
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn frames_between_staged_pages_need_no_hypervisor_call() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let mut guests = [0, 1, 2].map(|number| Guest::boot_staged(&mut world, number, &[]));
        know_each_other(&mut guests);
        let before = world.control().counters();
        let mut numbers = Numbers::new(17);
        for round in 0..200 {
            let (from, to) = (round % 3, (round + 1) % 3);
            let whole = frame(guests[to].address, guests[from].address, 60 + numbers.below(9000));
            guests[to].posts(3);
            let slots = guests[from].slots(&whole, &mut || 4096, 7);
            guests[from].sends_slots(&slots);
            assert!(guests[to].gets() == whole, "round {round}");
        }
        let spent = world.control().counters().since(&before);
        assert_eq!(spent.grant_ops(), 0, "{spent:?}");
        drop(guests);
        world.bridge_stands();
    }
}

#[test]
fn under_the_policy_map_frames_to_a_guest_are_copied() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        world.setup.policy.most = Policy::Map;
        world.restart();
        let [mut a, mut b, mut c] = three(&mut world);
        let before = world.control().counters();
        for len in [60_usize, 129, 1514, 4096, 9014, 65_535] {
            b.posts(len.div_ceil(4096));
            let bytes = frame(b.address, a.address, len);
            a.sends(&bytes);
            assert_eq!(b.gets(), bytes, "{len} bytes");
        }
        // To all of them, by private memory.
        b.posts(3);
        c.posts(3);
        let bytes = frame(BROADCAST, a.address, 9014);
        a.sends(&bytes);
        assert_eq!((b.gets(), c.gets()), (bytes.clone(), bytes));
        let spent = world.control().counters().since(&before);
        assert_eq!((spent.maps, spent.unmaps), (0, 0));
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn a_broadcast_reaches_all_and_a_frame_to_its_own_sender_no_guest() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = three(&mut world);
        for guest in [&mut b, &mut c] {
            guest.posts(3);
        }
        let bytes = frame(BROADCAST, a.address, 5000);
        a.sends(&bytes);
        assert_eq!(b.gets(), bytes);
        assert_eq!(c.gets(), bytes);
        // The uplink has seen it, and every flooded frame before.
        assert_eq!(uplink_takes(&world.behind(UPLINK), 1), [(bytes, Offload::default())]);
        a.sends(&frame(a.address, [2, 0, 0, 0, 7, 7], 60));
        b.gets_nothing();
        c.gets_nothing();
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn the_uplink_is_one_more_receiver() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, c] = three(&mut world);
        let uplink = world.behind(UPLINK);
        let outside = [2, 0, 0, 0, 1, 0];
        let bytes = frame(a.address, outside, 3000);
        a.posts(1);
        uplink.give(bytes.clone(), Offload::default());
        assert_eq!(a.gets(), bytes);
        // Its address is learnt: an answer goes there and nowhere else.
        b.posts(1);
        let answer = frame(outside, a.address, 2000);
        a.sends(&answer);
        assert_eq!(uplink_takes(&uplink, 1), [(answer, Offload::default())]);
        b.gets_nothing();
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn an_uplink_that_is_deleted_costs_the_uplink_only() {
    // It is noticed by what the uplink would give, or by what a guest sends to it.
    for told in [true, false] {
        let mut world = World::bridged();
        let [mut a, mut b, c] = three(&mut world);
        let uplink = world.behind(UPLINK);
        uplink.delete(told);
        b.posts(1);
        // To all, so to the uplink.
        a.sends(&frame(BROADCAST, a.address, 60));
        assert_eq!(b.gets(), frame(BROADCAST, a.address, 60));
        let log = || world.control().log.complaints();
        let lost = || log().iter().filter(|line| line.contains("uplink")).count();
        eventually("a line of the log", || (lost() > 0).then_some(()));
        for len in [60, 3000] {
            b.posts(1);
            let bytes = frame(b.address, a.address, len);
            a.sends(&bytes);
            assert_eq!(b.gets(), bytes, "the guests' own frames go on");
        }
        assert_eq!(lost(), 1, "{:?}", log());
        assert_eq!(uplink.look().handles, 0, "it was let go of");
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn a_receiver_without_pages_loses_only_its_own_frames() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = three(&mut world);
        // Far more than may wait.
        let frames: Vec<_> = (0..400).map(|n| frame(b.address, a.address, 3000 + n)).collect();
        for bytes in &frames {
            a.sends(bytes);
        }
        let bytes = frame(c.address, a.address, 9000);
        c.posts(3);
        a.sends(&bytes);
        assert_eq!(c.gets(), bytes, "others do not wait");
        // What waited comes first and in order.
        for bytes in frames.iter().take(100) {
            b.posts(1);
            assert_eq!(b.gets(), *bytes);
        }
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn a_broken_receiver_is_disabled_and_its_sender_goes_on() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = three(&mut world);
        b.rings.rx.store(Index::ReqProd, b.rings.rx_prod.wrapping_add(10_000));
        a.sends(&frame(b.address, a.address, 60));
        b.hostile.await_disabled();
        c.posts(1);
        let bytes = frame(c.address, a.address, 1514);
        a.sends(&bytes);
        assert_eq!(c.gets(), bytes);
        // Its address is nobody's now: what is for it goes to all others.
        c.posts(1);
        let bytes = frame(b.address, a.address, 200);
        a.sends(&bytes);
        assert_eq!(c.gets(), bytes);
        assert_eq!(a.hostile.backend_state(), Some(XenbusState::Connected));
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn a_sender_that_breaks_its_receiver_and_itself_in_one_turn_costs_nobody_else() {
    // The receiver stands before the sender among those that the worker serves, an honest
    // guest behind them, or nobody.
    for honest in [true, false] {
        let mut world = World::of_workers(1, WaitMode::Busy, true);
        let [mut b, mut a] = [1, 2].map(|number| Guest::boot_as(&mut world, number, &[]));
        let mut c = honest.then(|| Guest::boot_as(&mut world, 3, &[]));
        // The bridge learns where the receiver is.
        b.sends(&frame(NOBODY, b.address, 60));
        b.rings.rx.store(Index::ReqProd, b.rings.rx_prod.wrapping_add(10_000));
        let mut slots = a.slots(&frame(b.address, a.address, 60), &mut || 4096, 1);
        let Some(&[gref, rest, id]) = slots.first() else { panic!("a slot") };
        // A packet that goes on, and nothing behind it.
        slots.push([gref, rest | u32::from(TxFlags::MORE_DATA.bits()) << 16, id]);
        a.rings.put_tx(&slots);
        a.hostile.kick(a.rings.tx_event);
        a.hostile.await_disabled();
        b.hostile.await_disabled();
        if let Some(c) = &mut c {
            for _ in 0..100 {
                c.hostile.is_served(&mut c.rings);
            }
        }
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn each_packet_to_a_receiver_that_breaks_is_counted() {
    let mut world = World::of_workers(1, WaitMode::Busy, true);
    let [mut b, mut a] = [1, 2].map(|number| Guest::boot_as(&mut world, number, &[]));
    // The bridge learns where the receiver is.
    b.sends(&frame(NOBODY, b.address, 60));
    b.rings.rx.store(Index::ReqProd, b.rings.rx_prod.wrapping_add(10_000));
    // Long packets, whose rest would cross from page to page, and a short one among them.
    let long = a.slots(&frame(b.address, a.address, 1000), &mut || 4096, 1);
    let short = a.slots(&frame(b.address, a.address, 60), &mut || 4096, 2);
    let slots: Vec<_> =
        [&long, &long, &short, &long, &long].into_iter().flatten().copied().collect();
    a.rings.put_tx(&slots);
    a.hostile.kick(a.rings.tx_event);
    b.hostile.await_disabled();
    let answers = a.hostile.tx_answers(&mut a.rings, 5);
    assert!(answers.iter().all(|answer| answer.status == status::OKAY), "{answers:?}");
    let stats = rules::stats(&world, &a);
    assert_eq!(stats.tx_packets + stats.tx_dropped_port, 5, "{stats:?}");
    drop((a, b));
    world.bridge_stands();
}

#[test]
fn pages_that_cannot_be_read_or_written_give_errors_to_both_and_stale_bytes_to_none() {
    let mut world = World::bridged();
    let [mut a, mut b, c] = three(&mut world);
    let bytes = frame(b.address, a.address, 1514);
    // The head is good, the rest is nobody's page.
    let mut slots = a.slots(&bytes, &mut || 500, 7);
    let nowhere = GrantRef(30_000);
    slots[2] = slot(nowhere, 0, 500, 7, TxFlags::MORE_DATA);
    b.posts(1);
    let answers = a.hostile.transmit(&mut a.rings, &slots);
    assert!(answers.iter().all(|answer| answer.status == status::ERROR), "{answers:?}");
    let [answer] = b.hostile.rx_answers(&mut b.rings, 1)[..] else { panic!() };
    assert_eq!(answer.status, status::ERROR);
    // The receiver's page is nobody's.
    b.hostile.post(&mut b.rings, &[nowhere]);
    let slots = a.slots(&bytes, &mut || 4096, 7);
    let _ = a.hostile.transmit(&mut a.rings, &slots);
    let [answer] = b.hostile.rx_answers(&mut b.rings, 1)[..] else { panic!() };
    assert_eq!(answer.status, status::ERROR);
    b.posts(1);
    a.sends(&bytes);
    assert_eq!(b.gets(), bytes);
    drop((a, b, c));
    world.bridge_stands();
}

#[test]
fn a_super_frame_reaches_a_guest_without_gso_in_segments() {
    for workers in CREWS {
        // Also with headers across descriptors (DPDK's CVE-2022-2132).
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = three_as(&mut world, true, false);
        c.posts(4);
        let payload: Vec<u8> = (0..30_000u32).map(|n| ((n * 5) >> 3) as u8).collect();
        for tcp in Tcp::BOTH {
            for step in [4096, 1000, tcp.headers() - 3] {
                // The most slots there may be.
                let len = if step < 100 { 4000 } else { 30_000.min(step * 17) };
                let payload = &payload[..len];
                let bytes = tcp.frame(b.address, a.address, payload);
                let gso = tcp.offload(1448).gso.unwrap();
                let mut first = true;
                let mut cuts =
                    || if std::mem::take(&mut first) || step > 100 { step } else { 4096 };
                let slots = a.unfinished(&bytes, &mut cuts, gso);
                b.posts(len.div_ceil(1448));
                let answers = a.hostile.transmit(&mut a.rings, &slots);
                assert!(answers.iter().all(|answer| answer.status >= 0), "{answers:?}");
                let mut got = Vec::new();
                while got.len() < len {
                    let segment = b.gets();
                    let (sequence, part) = tcp.check(&segment, Checksum::Complete);
                    assert_eq!(sequence, SEQUENCE.wrapping_add(got.len() as u32), "{tcp:?} {step}");
                    assert!(part.len() <= 1448, "{} bytes", part.len());
                    got.extend_from_slice(part);
                }
                assert!(got == payload, "{tcp:?} by {step}");
            }
        }
        c.gets_nothing();
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn xsa_155_a_payload_that_changes_while_it_is_read() {
    a_payload_changes(false, &Tcp::BOTH);
}

#[test]
fn staging_payload_rewritten_after_the_header_was_read() {
    // Here the page is mapped, and its writer sees nothing of the copy: heads of two
    // kinds would be read half the one and half the other, which is no fault of ours.
    for kind in Tcp::BOTH {
        a_payload_changes(true, &[kind]);
    }
}

/// Changes a payload while the backend reads it. The receiver, the kind and the checksum of a
/// frame must be judged on the bytes that are sent on, even if the sender's page changes
/// meanwhile.
fn a_payload_changes(staged: bool, kinds: &[Tcp]) {
    const ROUNDS: u16 = 300;
    /// The writer may get no processor for a while.
    const ROUNDS_MOST: u16 = 60_000;
    for plain in [false, true] {
        let mut world = World::bridged();
        let [mut a, b, c] = three_as(&mut world, plain, staged);
        let mut receivers = [b, c];
        let frames: Vec<_> = receivers
            .iter()
            .flat_map(|to| {
                kinds.iter().map(|tcp| {
                    let payload = vec![0x55; 2000 - tcp.headers()];
                    tcp.frame(to.address, a.address, &payload)
                })
            })
            .collect();
        let (memory, gref) = page(&a.out, 0);
        memory.write(0, &frames[0]).unwrap();
        let stop = AtomicBool::new(false);
        let mut judged = [0u32; 2];
        std::thread::scope(|scope| {
            let _ends = Ends(&stop);
            scope.spawn(|| {
                let mut numbers = Numbers::new(155);
                while !stop.load(SeqCst) {
                    // In pieces, so that any mixture may be read.
                    let new = &frames[numbers.below(frames.len())];
                    memory.write(0, &new[..6]).unwrap();
                    memory.write(12, &new[12..1000]).unwrap();
                    memory.write(1000, &numbers.word().to_be_bytes()).unwrap();
                }
            });
            for round in 0..ROUNDS_MOST {
                if round >= ROUNDS && judged.iter().all(|&n| n > 10) {
                    break;
                }
                for guest in &mut receivers {
                    let posted = guest.rings.rx_prod.wrapping_sub(guest.rings.rx_cons);
                    guest.posts(64usize.saturating_sub(posted as usize));
                }
                let flags = TxFlags::CSUM_BLANK;
                let mut slots = vec![slot(gref, 0, 2000, round, flags)];
                if plain {
                    let kind = kinds[usize::from(round) % kinds.len()];
                    let gso = kind.offload(700).gso.unwrap();
                    slots.push(slot(gref, 0, 2000, round, flags | TxFlags::EXTRA_INFO));
                    slots.push(Extra::Gso(gso.try_into().unwrap(), 0).to_tx_words(false));
                }
                let answers = a.hostile.transmit(&mut a.rings, &slots);
                assert!(answers.iter().all(|answer| answer.status >= 0), "{answers:?}");
                for (guest, judged) in receivers.iter_mut().zip(&mut judged) {
                    *judged += guest.takes_what_is_its_own(plain);
                }
            }
        });
        assert!(judged.iter().all(|&n| n > 10), "frames to the one and the other: {judged:?}");
        let [b, c] = receivers;
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn xsa_405_a_frame_that_waits_outlives_its_sender() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, mut c] = three(&mut world);
        let bytes = frame(b.address, a.address, 9000);
        a.sends(&bytes);
        // The sender's pages are something else, and then gone, before there is room.
        for index in 0..3 {
            page(&a.out, index).0.write(0, &[0xee; 4096]).unwrap();
        }
        let gone = a.hostile.vif;
        drop(a);
        world.detaches(gone);
        b.posts(3);
        assert_eq!(b.gets(), bytes);
        c.gets_nothing();
        drop((b, c));
        world.bridge_stands();
    }
}
