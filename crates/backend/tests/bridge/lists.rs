//! Packets that are sent as a list, and the same packets sent one by one: each receiver gets
//! the same frames in the same order.

use crate::guest::{BROADCAST, Guest, NOBODY, frame, three};
use crate::support::port::UPLINK;
use crate::support::rings::{page, slot};
use crate::support::world::World;
use grantway_netif::Offload;
use grantway_netif::tx::{TxFlags, status};
use grantway_testkit::Numbers;

/// A frame, and which guest sends it.
type Sent = (usize, Vec<u8>);

/// An address that is now one guest's and now another's.
const ROAMING: [u8; 6] = [2, 0, 0, 0, 1, 1];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 1, 2];

/// Bursts of frames of three guests.
fn bursts(numbers: &mut Numbers, own: [[u8; 6]; 3]) -> Vec<Vec<Sent>> {
    let mut sequence = 0u32;
    let mut burst = |numbers: &mut Numbers| {
        let (sender, count) = (numbers.below(3), 1 + numbers.below(24));
        let longest = if numbers.once_in(3) { 3000 } else { 400 };
        let one = |_| {
            let to = match numbers.below(12) {
                0 => BROADCAST,
                1 => NOBODY,
                2 => own[sender],
                3 | 4 => ROAMING,
                other => own[other % 3],
            };
            let from = if numbers.once_in(10) { ROAMING } else { own[sender] };
            let mut bytes = frame(to, from, 60 + numbers.below(longest));
            // Each is another.
            sequence += 1;
            bytes[14..18].copy_from_slice(&sequence.to_be_bytes());
            (sender, bytes)
        };
        (0..count).map(one).collect()
    };
    (0..20).map(|_| burst(numbers)).collect()
}

/// Frames that each guest and the uplink received.
#[derive(Debug, PartialEq, Eq)]
struct Given {
    guests: [Vec<Vec<u8>>; 3],
    uplink: Vec<Vec<u8>>,
}

/// Pages that are posted and not used, once all that came was read.
fn posted(guest: &Guest) -> usize {
    guest.rings.rx_prod.wrapping_sub(guest.rings.rx_cons) as usize
}

/// Sends the frames of a seed, and publishes at most `most` packets at a time. Returns the
/// frames that arrived.
fn carry(seed: u64, most: usize) -> Given {
    let mut world = World::bridged();
    let mut guests = three(&mut world);
    let own = [0, 1, 2].map(|n| guests[n].address);
    let uplink = world.behind(UPLINK);
    let known = uplink.look().taken.len();
    let mut given = Given { guests: Default::default(), uplink: Vec::new() };
    let mut numbers = Numbers::new(seed);
    for burst in bursts(&mut numbers, own) {
        // Now and then there are fewer pages than frames, and some wait.
        for guest in &mut guests {
            let wanted = numbers.below(30);
            guest.posts(wanted.saturating_sub(posted(guest)));
            while posted(guest) > wanted {
                uplink.give(frame(guest.address, OUTSIDE, 60), Offload::default());
                guest.gets();
            }
        }
        for part in burst.chunks(most) {
            let sender = &mut guests[part[0].0];
            let lay = |(index, (_, bytes)): (usize, &Sent)| {
                let (memory, gref) = page(&sender.out, index);
                memory.write(0, bytes).unwrap();
                slot(gref, 0, bytes.len() as u16, index as u16, TxFlags::empty())
            };
            let slots: Vec<_> = part.iter().enumerate().map(lay).collect();
            let answers = sender.hostile.transmit(&mut sender.rings, &slots);
            assert!(answers.iter().all(|answer| answer.status == status::OKAY));
        }
        // What waits comes before this.
        let last = frame(BROADCAST, OUTSIDE, 60);
        for guest in &mut guests {
            guest.posts(80 - posted(guest));
        }
        uplink.give(last.clone(), Offload::default());
        for (guest, given) in guests.iter_mut().zip(&mut given.guests) {
            loop {
                let frame = guest.gets();
                if frame == last {
                    break;
                }
                given.push(frame);
            }
        }
    }
    given.uplink = uplink.look().taken[known..].iter().map(|(bytes, _)| bytes.clone()).collect();
    drop(guests);
    world.bridge_stands();
    given
}

#[test]
fn lists_reach_the_receivers_of_their_single_packets_in_the_same_order() {
    for seed in 1..=4 {
        let (lists, one_by_one) = (carry(seed, 24), carry(seed, 1));
        let count: usize = lists.guests.iter().map(Vec::len).sum();
        assert!(count > 100 && !lists.uplink.is_empty(), "{count}");
        for (n, (list, one)) in lists.guests.iter().zip(&one_by_one.guests).enumerate() {
            let at = list.iter().zip(one).position(|(list, one)| list != one);
            assert!(list == one, "seed {seed}, guest {n}: differs from frame {at:?} on");
        }
        assert!(lists.uplink == one_by_one.uplink, "seed {seed}");
    }
}

#[test]
fn frames_fetched_for_the_uplink_or_for_all_are_in_whole_pages_of_the_arena() {
    let mut world = World::bridged();
    let [mut a, mut b, mut c] = three(&mut world);
    let uplink = world.behind(UPLINK);
    // From now on it is known where that is.
    uplink.give(frame(a.address, OUTSIDE, 60), Offload::default());
    a.posts(1);
    a.gets();
    let mut sends = |to: [u8; 6], lead: usize| {
        let bytes = frame(to, a.address, lead + 2 * 4096 + 10);
        let mut cuts = [lead, 4096, 4096, 10].into_iter();
        let slots = a.slots(&bytes, &mut || cuts.next().unwrap(), 7);
        let known = uplink.look().taken.len();
        // Four in a turn.
        a.sends_slots(&slots.repeat(4));
        let taken = uplink.look().taken.split_off(known);
        assert!(taken.len() == 4 && taken.iter().all(|(found, _)| *found == bytes), "{lead}");
        bytes
    };
    let straddling = || world.setup.faults.straddling();
    for lead in [14, 66, 127, 128, 129, 1000, 4095, 4096] {
        sends(OUTSIDE, lead);
    }
    assert_eq!(straddling(), [0, 0], "copies from the sender, to the uplink");
    for lead in [14, 1000, 4096] {
        b.posts(16);
        c.posts(16);
        let bytes = sends(BROADCAST, lead);
        for guest in [&mut b, &mut c] {
            assert!((0..4).all(|_| guest.gets() == bytes), "{lead}");
        }
    }
    assert_eq!(straddling()[1], 0, "copies to the receivers of a flood");
    drop((a, b, c));
    world.bridge_stands();
}
