//! Guests on the bridge with XDP programs: each frame that reaches them begins behind their
//! headroom.

use crate::guest::{BROADCAST, Guest, frame, know_each_other, three_as};
use crate::rules::by_rules;
use crate::support::eventually;
use crate::support::port::UPLINK;
use crate::support::tcp::Tcp;
use crate::support::world::{CREWS, World};
use grantway_backend::policy::Policy;
use grantway_netif::{Checksum, Offload};

const ROOM: u16 = 256;

/// The next frame of a guest with a program.
#[track_caller]
fn gets(guest: &mut Guest) -> Vec<u8> {
    let bytes = guest.gets();
    assert_eq!(guest.offset, ROOM, "{} bytes", bytes.len());
    bytes
}

/// Frames of one guest, of the uplink, and of one guest to all, however long, and whether they find
/// pages or wait for some.
#[track_caller]
fn carries(world: &World, a: &mut Guest, b: &mut Guest, c: &mut Guest) {
    for len in [60, 128, 129, 512, 513, 1514, 3840, 3841, 4096, 9014, 65_535] {
        let bytes = frame(b.address, a.address, len);
        for waits in [false, true] {
            if !waits {
                b.posts(18);
            }
            a.sends(&bytes);
            if waits {
                b.posts(18);
            }
            assert!(gets(b) == bytes, "{len} bytes, waits: {waits}");
            uses_up(a, b);
        }
        let bytes = frame(BROADCAST, a.address, len);
        b.posts(18);
        c.posts(18);
        a.sends(&bytes);
        assert!(gets(b) == bytes && c.gets() == bytes, "{len} bytes to all");
        uses_up(a, b);
        uses_up(a, c);
        let bytes = frame(b.address, [2, 0, 0, 0, 1, 2], len);
        b.posts(18);
        world.behind(UPLINK).give(bytes.clone(), Offload::default());
        assert!(gets(b) == bytes, "{len} bytes from the uplink");
        uses_up(a, b);
    }
}

/// Fills the posted pages that are left.
fn uses_up(from: &mut Guest, to: &mut Guest) {
    while to.rings.rx_prod != to.rings.rx_cons {
        let bytes = frame(to.address, from.address, 60);
        from.sends(&bytes);
        assert_eq!(to.gets(), bytes);
    }
}

#[test]
fn frames_over_the_bridge_begin_behind_the_headroom() {
    for (most, staged, rules) in [
        (Policy::Copy, false, false),
        (Policy::Map, false, false),
        (Policy::Staging, true, false),
        (Policy::Copy, false, true),
    ] {
        let mut world = World::bridged();
        world.setup.policy.most = most;
        world.restart();
        let mut world = if rules { by_rules(world, "") } else { world };
        let mut guests = three_as(&mut world, false, staged);
        guests[1].hostile.reconfigure("256");
        let [a, b, c] = &mut guests;
        carries(&world, a, b, c);
        if !rules {
            world.restart();
            eventually("all guests are on the bridge again", || {
                let report = world.control().report();
                (report.iter().filter(|vif| vif.connected).count() == 3).then_some(())
            });
            // The bridge has to learn them anew.
            know_each_other(&mut guests);
            let [a, b, c] = &mut guests;
            carries(&world, a, b, c);
        }
        drop(guests);
        world.bridge_stands();
    }
}

#[test]
fn a_large_frame_of_a_guest_is_cut_for_a_guest_with_a_program() {
    for workers in CREWS {
        let mut world = World::bridged_by(workers);
        let [mut a, mut b, c] = three_as(&mut world, false, false);
        let tcp = Tcp { v6: false };
        let payload: Vec<u8> = (0..30_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        let whole = tcp.frame(b.address, a.address, &payload);
        for program in [false, true, false] {
            b.hostile.reconfigure(if program { "256" } else { "0" });
            if !program {
                // The room goes behind Connected.
                eventually("a frame begins where its page does", || {
                    b.posts(2);
                    a.sends(&frame(b.address, a.address, 4096));
                    b.gets();
                    (b.offset == 0).then_some(())
                });
                uses_up(&mut a, &mut b);
            }
            let large = a.unfinished(&whole, &mut || 4096, tcp.offload(1448).gso.unwrap());
            b.posts(30);
            let answers = a.hostile.transmit(&mut a.rings, &large);
            assert!(answers.iter().all(|answer| answer.status >= 0), "{answers:?}");
            if program {
                let mut got = Vec::new();
                while got.len() < payload.len() {
                    let segment = gets(&mut b);
                    got.extend_from_slice(tcp.check(&segment, Checksum::Partial).1);
                }
                assert!(got == payload);
            } else {
                let (frame, offload) = b.gets_unfinished();
                assert!(frame == whole && offload == tcp.offload(1448));
            }
            uses_up(&mut a, &mut b);
        }
        drop((a, b, c));
        world.bridge_stands();
    }
}
