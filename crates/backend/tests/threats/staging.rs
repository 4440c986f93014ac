//! Lists of pages to be staged that lie, over the control ring of a real backend.

use crate::ctrl::connected_all;
use crate::support::ctrl::Lists;
use crate::support::hostile::{Hostile, frame};
use crate::support::rings::{Rings, page, slot};
use crate::support::world::{GUEST, World};
use grantway_hypervisor::{Access, Granted, Granter, Revoke};
use grantway_netif::Offload;
use grantway_netif::ctrl::{GrefEntry, GrefFlags, Message, Status};
use grantway_netif::tx::{TxFlags, status};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const REFUSED: Result<u32, Status> = Err(Status::InvalidParameter);
const FAILED: u16 = 2;

fn entry(gref: u32, flags: GrefFlags) -> GrefEntry {
    GrefEntry { gref, flags, status: 77 }
}

fn entries(granted: &Granted, flags: GrefFlags) -> Vec<GrefEntry> {
    granted.grefs.iter().map(|gref| entry(gref.0, flags)).collect()
}

fn two_queues(guest: &mut Hostile) -> (Lists, Vec<Rings>) {
    let (ring, queues) = connected_all(guest, 2);
    let page = guest.pages(1, Access::ReadWrite);
    (Lists { ring, page }, queues)
}

fn mapped(world: &World) -> usize {
    world.control().report_of(GUEST).unwrap().mapped
}

#[test]
fn staging_entry_k_of_add_fails() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, mut queues) = two_queues(&mut guest);
    let good = guest.pages(40, Access::ReadWrite);
    let readonly = guest.pages(1, Access::ReadOnly);
    let revoked = guest.pages(1, Access::ReadWrite);
    assert_eq!(guest.domain.revoke(revoked.grefs[0]), Revoke::Revoked);
    let own = lists.page.grefs[0].0;
    let none = GrefFlags::empty();
    for bad in [
        entry(revoked.grefs[0].0, none),
        entry(readonly.grefs[0].0, none),
        entry(own, GrefFlags::from_bits_retain(2)),
        entry(own, GrefFlags::from_bits_retain(0x8001)),
        entry(7, none),
        entry(0, none),
        entry(u32::MAX, none),
    ] {
        for k in [0, 19, 39] {
            let mut list = entries(&good, none);
            list[k] = bad;
            assert_eq!(lists.add(&mut guest, &list), REFUSED, "entry {k}: {bad:?}");
            assert_eq!(mapped(&world), 0);
        }
    }
    assert_eq!(lists.add(&mut guest, &entries(&good, none)), Ok(0));
    assert_eq!(mapped(&world), 40);
    guest.is_served(&mut queues[0]);
    world.stands();
}

#[test]
fn staging_duplicates_and_a_gref_across_queues() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, _queues) = two_queues(&mut guest);
    let pages = guest.pages(6, Access::ReadWrite);
    let list = entries(&pages, GrefFlags::empty());
    let twice = [list[0], list[1], list[0]];
    assert_eq!(lists.add(&mut guest, &twice), REFUSED);
    assert_eq!(lists.add(&mut guest, &list[..4]), Ok(0));
    for queue in [0, 1] {
        // The same access or another, it is the same page.
        for flags in [GrefFlags::empty(), GrefFlags::READONLY] {
            let again = [entry(list[4].gref, flags), entry(list[3].gref, flags)];
            let message = lists.to_add(queue, &again);
            assert_eq!(lists.ring.ask(&mut guest, message), REFUSED);
        }
    }
    assert_eq!(mapped(&world), 4);
    // What another queue has is nothing to take back here; the second of two is
    // out already.
    let message = lists.to_del(1, &list[..2]);
    assert_eq!(lists.ring.ask(&mut guest, message), Ok(0));
    assert_eq!(lists.statuses(2), [FAILED; 2]);
    let message = lists.to_del(0, &[list[0], list[5], list[0], list[3]]);
    assert_eq!(lists.ring.ask(&mut guest, message), Ok(2));
    assert_eq!(lists.statuses(4), [0, FAILED, FAILED, 0]);
    assert_eq!(mapped(&world), 2);
    world.stands();
}

#[test]
fn staging_more_than_512_and_a_queue_out_of_range() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, _queues) = two_queues(&mut guest);
    let pages = guest.pages(1, Access::ReadWrite);
    let list = lists.page.grefs[0].0;
    lists.write(&entries(&pages, GrefFlags::empty()));
    for (queue, list, entries) in [
        (0, list, 0),
        (0, list, 513),
        (0, list, u32::MAX),
        (2, list, 1),
        (u32::MAX, list, 1),
        (1 << 16, list, 1),
        (0, 4000, 1),
        (0, u32::MAX, 1),
    ] {
        for message in [
            Message::AddGrefMapping { queue, list, entries },
            Message::DelGrefMapping { queue, list, entries },
        ] {
            assert_eq!(lists.ring.ask(&mut guest, message), REFUSED, "{message:?}");
        }
    }
    for queue in [2, 16, u32::MAX] {
        let message = Message::GetGrefMappingSize { queue };
        assert_eq!(lists.ring.ask(&mut guest, message), REFUSED);
    }
    assert_eq!(mapped(&world), 0);
    world.stands();
}

#[test]
fn staging_quota_exhausted() {
    let mut world = World::new();
    world.setup.policy.pages = 10;
    world.restart();
    let mut guest = world.guest();
    let (mut lists, mut queues) = two_queues(&mut guest);
    let pages = guest.pages(11, Access::ReadWrite);
    let list = entries(&pages, GrefFlags::empty());
    for queue in [0, 1] {
        let message = Message::GetGrefMappingSize { queue };
        assert_eq!(lists.ring.ask(&mut guest, message), Ok(10));
    }
    assert_eq!(lists.add(&mut guest, &list), REFUSED);
    assert_eq!(lists.add(&mut guest, &list[..6]), Ok(0));
    // It is the vif's, whichever queue asks.
    let message = lists.to_add(1, &list[6..]);
    assert_eq!(lists.ring.ask(&mut guest, message), REFUSED);
    let message = lists.to_add(1, &list[6..10]);
    assert_eq!(lists.ring.ask(&mut guest, message), Ok(0));
    assert_eq!(lists.del(&mut guest, &list[..1]), Ok(1));
    let message = lists.to_add(1, &list[10..]);
    assert_eq!(lists.ring.ask(&mut guest, message), Ok(0));
    assert_eq!(mapped(&world), 10);
    guest.is_served(&mut queues[0]);
    world.stands_and(|_| ());
}

#[test]
fn staging_readonly_then_rx() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, mut rings) = Lists::connect(&mut guest);
    let pages = guest.pages(1, Access::ReadWrite);
    assert_eq!(lists.add(&mut guest, &entries(&pages, GrefFlags::READONLY)), Ok(0));
    page(&pages, 0).0.write(0, &frame(200)).unwrap();
    let sent = guest.transmit(&mut rings, &[slot(pages.grefs[0], 0, 200, 1, TxFlags::empty())]);
    assert_eq!(sent[0].status, status::OKAY);
    guest.post(&mut rings, &pages.grefs);
    world.behind(GUEST).give(frame(100), Offload::default());
    let answers = guest.rx_answers(&mut rings, 1);
    assert!(answers[0].status < 0, "{answers:?}");
    let mut bytes = vec![0; 200];
    page(&pages, 0).0.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, frame(200), "nothing was written to it");
    guest.is_served(&mut rings);
    world.stands();
}

#[test]
fn xsa_155_a_list_rewritten_during_add_is_taken_whole_or_not() {
    const COUNT: usize = 64;
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, mut rings) = Lists::connect(&mut guest);
    let pages = guest.pages(2 * COUNT, Access::ReadWrite);
    let all = entries(&pages, GrefFlags::empty());
    let memory = lists.page.run.page(0).unwrap();
    let (list, stop) = (lists.page.grefs[0].0, AtomicBool::new(false));
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..60 {
        stop.store(false, SeqCst);
        lists.write(&all[..COUNT]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    // Another page, a duplicate, and one that is reserved.
                    for (at, entry) in all[COUNT..].iter().enumerate() {
                        memory.write(at * 8, &entry.gref.to_le_bytes()).unwrap();
                    }
                    memory.write(8, &all[0].gref.to_le_bytes()).unwrap();
                    memory.write(16, &3u32.to_le_bytes()).unwrap();
                    for (at, entry) in all[..COUNT].iter().enumerate() {
                        memory.write(at * 8, &entry.gref.to_le_bytes()).unwrap();
                    }
                }
            });
            let message = Message::AddGrefMapping { queue: 0, list, entries: COUNT as u32 };
            let done = lists.ring.ask(&mut guest, message);
            stop.store(true, SeqCst);
            match done {
                Ok(0) => taken += 1,
                REFUSED => refused += 1,
                other => panic!("{other:?}"),
            }
            assert_eq!(mapped(&world), if done == Ok(0) { COUNT } else { 0 });
        });
        let gone = lists.del(&mut guest, &all).unwrap();
        assert_eq!((mapped(&world), gone as usize % COUNT), (0, 0));
    }
    println!("{taken} lists taken, {refused} refused");
    guest.is_served(&mut rings);
    world.stands();
}
