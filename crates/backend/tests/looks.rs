//! A guest that sends one packet after another is looked at later, and loses nothing by it
//! (`turn/transmit/later.rs`).

mod support;

use grantway_backend::{Meter, WaitMode};
use std::time::Duration;
use support::flood::{Guest, Habit};
use support::world::World;

/// Packets, one after another: enough for each look to be late that may be.
const PACKETS: u32 = 200;

fn frame() -> Vec<Vec<u8>> {
    vec![vec![2; 64]]
}

#[test]
fn a_caller_that_serves_rounds_finds_each_packet_in_its_round() {
    let mut world = World::counted_in(WaitMode::Busy, false, Meter::counted(|| Duration::ZERO));
    let mut guest = Guest::boot(&mut world, 1);
    for packet in 1..=PACKETS {
        guest.offers_once(&frame());
        world.control().rounds(1);
        assert_eq!(guest.served(), packet);
    }
    drop(guest);
    world.bridge_stands();
}

#[test]
fn two_guests_of_one_worker_are_both_served_in_each_round() {
    let mut world = World::counted_in(WaitMode::Busy, false, Meter::counted(|| Duration::ZERO));
    let mut guests = [1, 2].map(|number| Guest::boot(&mut world, number));
    for packet in 1..=PACKETS {
        guests.iter_mut().for_each(|guest| guest.offers_once(&frame()));
        world.control().rounds(1);
        assert_eq!(guests.each_ref().map(Guest::served), [packet; 2]);
    }
    drop(guests);
    world.bridge_stands();
}

#[test]
fn a_worker_that_looks_later_takes_all_packets() {
    let mut world = World::of_workers(1, WaitMode::Busy, false);
    let mut guest = Guest::boot(&mut world, 1);
    guest.takes_up(Habit::Rests);
    // As many as the ring holds, shown one by one while the worker looks.
    for _ in 0..PACKETS {
        guest.offers_once(&frame());
    }
    support::eventually("all packets", || (guest.served() == PACKETS).then_some(()));
    // One that comes behind a look that found nothing.
    guest.offers_once(&frame());
    support::eventually("one more", || (guest.served() == PACKETS + 1).then_some(()));
    drop(guest);
    world.bridge_stands();
}
