//! Lists of pages to be staged that lie, over the control ring of a real backend.

use crate::ctrl::connected_all;
use crate::restart::lost_at_most;
use crate::support::ctrl::Lists;
use crate::support::hostile::{Hostile, frame};
use crate::support::port::{Behind, Call, UPLINK};
use crate::support::rings::{Rings, page, slot};
use crate::support::world::{GUEST, World};
use crate::support::{PROMPT, eventually};
use grantway_backend::policy::QUEUE_AREAS;
use grantway_backend::{VifId, WaitMode};
use grantway_embedded::Revoke;
use grantway_hypervisor::{Access, DomId, Granted};
use grantway_netif::Offload;
use grantway_netif::ctrl::{GrefEntry, GrefFlags, Message, Status};
use grantway_netif::tx::{TxFlags, status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

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
fn staging_a_list_with_one_bad_entry_is_refused_as_a_whole() {
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
fn staging_a_refused_list_is_logged_once_with_its_reason() {
    let mut world = World::new();
    world.setup.policy.pages = 10;
    world.restart();
    for (number, why) in (30..).zip([
        "entry 1: flags 0x6, expected 1 (readonly) or none",
        "entry 1: reference 7, expected 8 or more",
        "is in the list twice, expected once",
        "grant 1048576 of domain 33: not granted to us",
        "12 pages, of which 10 can be staged now; stage fewer, or raise --mapped-pages",
    ]) {
        // Each a guest of its own: what one may write into the log is bounded.
        let mut guest = world.guest_of(VifId { domain: DomId(number), devid: 0 });
        let pages = guest.pages(12, Access::ReadWrite);
        let good = entries(&pages, GrefFlags::empty());
        let bad = |gref, bits| vec![good[0], entry(gref, GrefFlags::from_bits_retain(bits))];
        let list = match number {
            30 => bad(9000, 6),
            31 => bad(7, 0),
            32 => bad(good[0].gref, 0),
            33 => bad(1 << 20, 0),
            _ => good,
        };
        let (mut lists, mut rings) = Lists::connect(&mut guest);
        world.control().log.clear();
        for _ in 0..50 {
            assert_eq!(lists.add(&mut guest, &list), REFUSED);
        }
        guest.is_served(&mut rings);
        let said = world.control().log.complaints();
        let [line] = &said[..] else { panic!("one line for one reason: {said:?}") };
        assert!(line.contains(&format!("vif{number}.0: queue 0")) && line.contains(why), "{line}");
        assert!(line.contains("its pages are copied"), "{line}");
    }
    world.stands_and(|_| ());
}

#[test]
fn staging_a_readonly_page_cannot_receive_a_frame() {
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

#[test]
fn staging_del_in_flight_while_packets_go() {
    // A list waits for a turn as long as it takes, or is refused while it goes on.
    deletes_in_flight(PROMPT, 5);
    deletes_in_flight(Duration::from_millis(100), 0);
}

/// Takes a list back while a turn uses it. The backend waits `lease` for the turn; `gone` of
/// the list's pages are gone when it answers.
fn deletes_in_flight(lease: Duration, gone: u32) {
    let mut world = World::new();
    world.setup.policy.lease = lease;
    world.restart();
    let mut guest = world.guest();
    let (mut lists, mut rings) = Lists::connect(&mut guest);
    let pages = guest.pages(8, Access::ReadWrite);
    for n in 0..8 {
        page(&pages, n).0.write(0, &frame(200)).unwrap();
    }
    let all = entries(&pages, GrefFlags::empty());
    let sends = |guest: &mut Hostile, rings: &mut Rings, ids: std::ops::Range<u16>| {
        let slots = ids.map(|n| slot(pages.grefs[usize::from(n % 8)], 0, 200, n, TxFlags::empty()));
        rings.put_tx(&slots.collect::<Vec<_>>());
        guest.kick(rings.tx_event);
    };
    let part = &all[..5];
    let status = if gone == 0 { FAILED } else { 0 };
    for round in 0..6u16 {
        // A turn before it may not be quite over, although it answered.
        eventually("the list is taken", || (lists.add(&mut guest, &all) == Ok(0)).then_some(()));
        // The worker hands a frame over in the middle of its turn, and goes on when it may.
        let [inside, goes_on] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (seen, may, mut first) = (Arc::clone(&inside), Arc::clone(&goes_on), true);
        world.behind(GUEST).hook(move |call| {
            if call == Call::Send && std::mem::take(&mut first) {
                seen.store(true, SeqCst);
                eventually("the turn may go on", || may.load(SeqCst).then_some(()));
            }
        });
        sends(&mut guest, &mut rings, 0..16);
        eventually("a turn under way", || inside.load(SeqCst).then_some(()));
        let message = lists.to_del(0, part);
        lists.ring.put(&[message.request(1)]);
        guest.kick(lists.ring.event);
        if gone > 0 {
            // While the list waits, in some of the rounds.
            std::thread::sleep(Duration::from_millis(10) * u32::from(round % 2));
            goes_on.store(true, SeqCst);
        }
        let answer = lists.ring.answers(&mut guest, 1)[0];
        goes_on.store(true, SeqCst);
        assert_eq!((answer.status().unwrap(), answer.data), (Status::Success, gone));
        assert_eq!(lists.statuses(part.len()), vec![status; part.len()]);
        assert_eq!(mapped(&world), 8 - gone as usize);
        let answers = guest.tx_answers(&mut rings, 16);
        assert!(answers.iter().all(|answer| answer.status == status::OKAY), "{answers:?}");
        world.behind(GUEST).unhook();
        // Once it is over they go, and packets in them take grant copy.
        eventually("the rest of them goes", || {
            (lists.del(&mut guest, &all) == Ok(8 - gone)).then_some(())
        });
        assert_eq!(mapped(&world), 0);
        sends(&mut guest, &mut rings, 0..16);
        assert_eq!(guest.tx_answers(&mut rings, 16).len(), 16);
    }
    let behind = world.behind(GUEST);
    let inner = behind.look();
    assert_eq!(inner.taken.len(), 6 * 32);
    assert!(inner.taken.iter().all(|(bytes, _)| *bytes == frame(200)));
    drop(inner);
    world.stands_and(lost_at_most(1));
}

/// A place at which the worker stops: whether it is there, and whether it may go on.
type Stop = [Arc<AtomicBool>; 2];

/// Lets the worker stop once at each of these calls, one after the other.
fn stops<const N: usize>(behind: &Behind, calls: [Call; N]) -> [Stop; N] {
    let stops: [Stop; N] = calls.map(|_| Stop::default());
    let mut left = calls.into_iter().zip(stops.clone()).peekable();
    behind.hook(move |call| {
        if let Some((_, [there, may])) = left.next_if(|(at, _)| *at == call) {
            there.store(true, SeqCst);
            eventually("the worker may go on", || may.load(SeqCst).then_some(()));
        }
    });
    stops
}

fn is_at([there, _]: &Stop) {
    eventually("the worker stops", || there.load(SeqCst).then_some(()));
}

/// The lists of a guest are taken back while its worker does something else, which goes on until
/// that is answered. The guest has a turn before it, and more to send. `begins` has the worker do
/// so after the turn in which it stops first.
fn goes_beside_its_turns(
    world: &mut World,
    guest: &mut Hostile,
    (first, then): (Stop, Stop),
    begins: impl FnOnce(),
) {
    const PACKETS: u16 = 192;
    let (mut lists, mut rings) = Lists::connect(guest);
    let pages = guest.pages(8, Access::ReadWrite);
    for n in 0..8 {
        page(&pages, n).0.write(0, &frame(60)).unwrap();
    }
    let all = entries(&pages, GrefFlags::empty());
    assert_eq!(lists.add(guest, &all), Ok(0));
    let slots = (0..PACKETS).map(|n| {
        let gref = pages.grefs[usize::from(n % 8)];
        slot(gref, 0, 60, n, TxFlags::empty())
    });
    rings.put_tx(&slots.collect::<Vec<_>>());
    guest.kick(rings.tx_event);
    is_at(&first);
    begins();
    first[1].store(true, SeqCst);
    is_at(&then);
    let gone = lists.del(guest, &all);
    then[1].store(true, SeqCst);
    assert_eq!((gone, mapped(world)), (Ok(8), 0));
    let answers = guest.tx_answers(&mut rings, PACKETS.into());
    assert!(answers.iter().all(|answer| answer.status == status::OKAY), "{answers:?}");
}

/// A backend of one worker, whose control thread does not wait for long.
fn impatient(bridged: bool) -> World {
    let mut world = World::of_workers(1, WaitMode::Interrupt, bridged);
    world.setup.policy.lease = Duration::from_millis(500);
    world.restart();
    world
}

#[test]
fn a_list_waits_for_no_turn_of_another_guest() {
    let mut world = impatient(false);
    let other = VifId { domain: DomId(10), devid: 0 };
    let (mut guest, mut beside) = (world.guest(), world.guest_of(other));
    let mut rings = beside.connect();
    beside.is_served(&mut rings);
    let (behind, behind_other) = (world.behind(GUEST), world.behind(other));
    let ([first], [then]) = (stops(&behind, [Call::Send]), stops(&behind_other, [Call::Send]));
    let (_memory, gref) = beside.page(&frame(60));
    goes_beside_its_turns(&mut world, &mut guest, (first, then), || {
        rings.put_tx(&[slot(gref, 0, 60, 1, TxFlags::empty())]);
        beside.kick(rings.tx_event);
    });
    assert_eq!(beside.tx_answers(&mut rings, 1).len(), 1);
}

#[test]
fn a_list_waits_for_no_burst_of_the_uplink() {
    let mut world = impatient(true);
    let mut guest = world.guest();
    let uplink = world.behind(UPLINK);
    let [first, then] = stops(&uplink, [Call::Send, Call::Recv]);
    goes_beside_its_turns(&mut world, &mut guest, (first, then), || {
        uplink.give(frame(60), Offload::default());
    });
}

#[test]
fn staging_entries_that_went_stale_before_a_takeover() {
    // While nobody serves, a guest revokes what it had staged, and the backend's
    // mappings of it are gone with its process.
    let mut world = World::new();
    let mut guest = world.guest();
    let (mut lists, mut rings) = Lists::connect(&mut guest);
    let (kept, stale) = (guest.pages(10, Access::ReadWrite), guest.pages(5, Access::ReadWrite));
    let [kept_list, stale_list] = [&kept, &stale].map(|pages| entries(pages, GrefFlags::empty()));
    assert_eq!(lists.add(&mut guest, &kept_list[..5]), Ok(0));
    assert_eq!(lists.add(&mut guest, &stale_list), Ok(0));
    assert_eq!(lists.add(&mut guest, &kept_list[5..]), Ok(0));
    page(&kept, 7).0.write(0, &frame(200)).unwrap();
    for restart in 0..3 {
        world.stop();
        if restart == 0 {
            for gref in &stale.grefs {
                assert_eq!(guest.domain.revoke(*gref), Revoke::Revoked);
            }
        }
        world.start();
        // Those that can be are mapped; the others are nobody's, and no error.
        guest.is_served(&mut rings);
        assert_eq!(mapped(&world), 10, "after {restart} restarts more");
    }
    let answers = guest.transmit(
        &mut rings,
        &[
            slot(kept.grefs[7], 0, 200, 1, TxFlags::empty()),
            slot(stale.grefs[2], 0, 200, 2, TxFlags::empty()),
        ],
    );
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [status::OKAY, status::ERROR]);
    // They cannot be taken back, and do not count.
    let message = lists.to_del(0, &stale_list);
    assert_eq!(lists.ring.ask(&mut guest, message), Ok(0));
    assert_eq!(lists.statuses(5), [FAILED; 5]);
    assert_eq!(lists.del(&mut guest, &kept_list), Ok(10));
    assert_eq!(mapped(&world), 0);
    world.stands_and(lost_at_most(3));
}

/// Sixteen guests list all their pages one by one, as much as each of them may; the next
/// one connects, and stages as much.
#[test]
fn sixteen_guests_that_stage_pages_one_by_one_leave_room_for_the_next() {
    const GUESTS: u16 = 16;
    const PAGES: usize = 100;
    let mut world = World::new();
    let areas = |world: &World| {
        let counters = world.control().counters();
        counters.map_batches - counters.unmap_batches
    };
    let mut all = Vec::new();
    for number in 0..=GUESTS {
        let mut guest = world.guest_of(VifId { domain: DomId(30 + number), devid: 0 });
        let (mut lists, rings) = Lists::connect(&mut guest);
        let before = areas(&world);
        let pages = guest.pages(PAGES, Access::ReadWrite);
        for &gref in &pages.grefs {
            assert_eq!(lists.add(&mut guest, &[entry(gref.0, GrefFlags::empty())]), Ok(0));
        }
        assert!(areas(&world) - before <= QUEUE_AREAS as u64, "guest {number}");
        let report = world.control().report_of(guest.vif).unwrap();
        assert_eq!(report.mapped, PAGES);
        all.push((guest, lists, rings, pages));
    }
    let (guest, _, rings, _) = all.last_mut().unwrap();
    guest.is_served(rings);
    world.stands();
}
