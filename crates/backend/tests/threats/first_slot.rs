//! XSA-522: stock netfront crashes its guest if the first slot of a frame is shorter than an
//! Ethernet header. No such slot is written, whatever a port has for the guest. Every answer
//! that these tests take off a ring is checked for it (`support::rings`). The bridge's part is
//! in `tests/bridge/first_slot.rs`.

use crate::support::ctrl::Lists;
use crate::support::eventually;
use crate::support::hostile::{Hostile, frame};
use crate::support::inbox::Inbox;
use crate::support::rings::{Rings, SLOTS};
use crate::support::tcp::Tcp;
use crate::support::world::{GUEST, World};
use grantway_backend::WaitMode;
use grantway_backend::policy::Policy;
use grantway_hypervisor::GrantRef;
use grantway_netif::Offload;
use grantway_netif::ctrl::{GrefEntry, GrefFlags};

/// A world whose backend offers no more than this, and whose honest vif rests.
fn world(most: Policy) -> World {
    let mut world = World::of_workers(1, WaitMode::Interrupt, false);
    world.setup.policy.most = most;
    world.restart();
    world.begins_beside();
    world
}

/// A guest whose buffers cross by this policy, and its pages, none of them posted.
fn guest_by(world: &mut World, policy: Policy) -> (Hostile, Rings, Inbox) {
    let mut guest = world.guest();
    let staging = policy == Policy::Staging;
    let (rings, inbox) = if staging {
        let (mut lists, rings) = Lists::connect(&mut guest);
        let inbox = Inbox::new(&guest, &rings);
        let entry =
            |gref: &GrantRef| GrefEntry { gref: gref.0, flags: GrefFlags::empty(), status: 0 };
        // Every other page: the rest takes grant copy.
        let list: Vec<_> = inbox.into.grefs.iter().step_by(2).map(entry).collect();
        assert_eq!(lists.add(&mut guest, &list), Ok(0));
        (rings, inbox)
    } else {
        let persistent = policy == Policy::Persistent;
        let keys = [("feature-persistent", "1")];
        let rings = guest.connect_as(if persistent { &keys } else { &[] });
        let inbox = Inbox::new(&guest, &rings);
        (rings, inbox)
    };
    let found = world.control().report_of(GUEST).unwrap().policy;
    assert_eq!(found, policy);
    (guest, rings, inbox)
}

/// Lengths around every limit of a header and of a page.
fn lengths() -> Vec<usize> {
    let pages = [1, 2, 15, 16].map(|pages| pages * 4096);
    let around = pages.into_iter().flat_map(|end| end - 15..=end + 15);
    let short = (14..=20).chain(40..=80).chain([127, 128, 129, 1514]);
    short.chain(around.filter(|&len| len <= 65_535)).chain([65_535]).collect()
}

/// Gives all frames to the guest, each behind one that is too short, before or after
/// its pages are posted; all but those arrive.
#[track_caller]
fn carries(world: &World, guest: &mut Hostile, rings: &mut Rings, inbox: &mut Inbox, waits: bool) {
    let behind = world.behind(GUEST);
    let stats = || world.control().report_of(GUEST).unwrap().stats;
    let (before, given) = (stats(), behind.look().given);
    let lengths = lengths();
    for (n, &len) in lengths.iter().enumerate() {
        behind.give(vec![0xa5; n % 14], Offload::default());
        behind.give(frame(len), Offload::default());
    }
    if waits {
        eventually("a frame waits", || (behind.look().given > given).then_some(()));
    }
    for &len in &lengths {
        // By one where they wait, so that each frame finds too few first.
        inbox.post(guest, rings, if waits { len.div_ceil(4096) as u32 } else { SLOTS });
        let (bytes, _) = inbox.next(rings);
        assert!(bytes == frame(len), "{len} bytes");
    }
    let spent = stats();
    let short = spent.rx_dropped_too_short - before.rx_dropped_too_short;
    assert_eq!(short, lengths.len() as u64, "what is no frame reached the guest");
    assert_eq!(spent.rx_packets - before.rx_packets, lengths.len() as u64);
}

#[test]
fn xsa_522_no_first_slot_is_shorter_than_an_ethernet_header_by_any_policy() {
    for policy in Policy::ALL {
        let mut world = world(policy);
        let (mut guest, mut rings, mut inbox) = guest_by(&mut world, policy);
        // Pages are posted later than frames come, and are known to the policy the
        // second time.
        for waits in [true, false, true] {
            carries(&world, &mut guest, &mut rings, &mut inbox, waits);
            // What is posted and not used would have the next ones not wait.
            if !waits {
                let left = rings.rx_prod.wrapping_sub(rings.rx_cons);
                for n in 0..left {
                    world.behind(GUEST).give(frame(60 + n as usize % 3), Offload::default());
                    assert_eq!(inbox.next(&mut rings).0.len(), 60 + n as usize % 3);
                }
            }
        }
        world.stands();
    }
}

#[test]
fn xsa_522_short_frames_of_a_port_that_promises_whole_ones_reach_no_guest() {
    // The way of a burst in which each frame takes one page, and what is not as the
    // port said.
    let mut world = world(Policy::Copy);
    world.behind(GUEST).look().short = true;
    let (mut guest, mut rings, mut inbox) = guest_by(&mut world, Policy::Copy);
    for round in 0..130 {
        inbox.post(&mut guest, &mut rings, SLOTS);
        // Each place of a page in turn, and in every second round nothing odd.
        let lengths = [14, 15, 60 + round % 64, 4095, 4096];
        for (n, len) in lengths.into_iter().enumerate() {
            if round % 2 == 0 {
                world.behind(GUEST).give(vec![1; (round + n) % 14], Offload::default());
            }
            world.behind(GUEST).give(frame(len), Offload::default());
        }
        for len in lengths {
            assert!(inbox.next(&mut rings).0 == frame(len), "{len} bytes in round {round}");
        }
    }
    let stats = world.control().report_of(GUEST).unwrap().stats;
    assert_eq!((stats.rx_dropped_too_short, stats.rx_packets), (5 * 65, 5 * 130));
    world.stands();
}

#[test]
fn xsa_522_segments_begin_with_their_headers_however_short_they_are() {
    // Cut for a guest that takes no large frames: some find pages, others wait.
    for policy in [Policy::Copy, Policy::Staging] {
        let mut world = world(policy);
        let (mut guest, mut rings, mut inbox) = guest_by(&mut world, policy);
        for tcp in Tcp::BOTH {
            // The guest offers large frames over IPv4 only.
            for (segment, payload) in [(1, 40), (7, 700), (1448, 20_000), (4000, 60_000)] {
                let payload: Vec<u8> = (0..payload).map(|n| n as u8).collect();
                let whole = tcp.frame([2; 6], [4; 6], &payload);
                inbox.post(&mut guest, &mut rings, 3);
                world.behind(GUEST).give(whole.clone(), tcp.offload(segment));
                let mut got = 0;
                while got < payload.len() {
                    inbox.post(&mut guest, &mut rings, SLOTS);
                    let (bytes, offload) = inbox.next(&mut rings);
                    assert!(bytes[..14] == whole[..14] && bytes.len() > tcp.headers());
                    assert_eq!(offload.gso.is_some(), !tcp.v6);
                    got += bytes.len() - tcp.headers();
                }
                assert_eq!(got, payload.len(), "{tcp:?} by {segment}");
            }
        }
        world.stands();
    }
}
