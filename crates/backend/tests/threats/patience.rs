//! XSA-392, in time: what is borne of a guest that gives no pages, and how it
//! comes back.

use crate::support::eventually;
use crate::support::hostile::frame;
use crate::support::rings::{Rings, SLOTS};
use crate::support::world::{GUEST, World};
use grantway_backend::Patience;
use grantway_hypervisor::Access;
use grantway_netif::Offload;
use grantway_netif::rx::RxRequest;
use grantway_ring::{Index, RingMemory};
use std::time::Duration;

const DRAIN: Duration = Duration::from_millis(300);
const STALL: Duration = Duration::from_millis(900);
const TICK: Duration = Duration::from_millis(1);

/// Number of frames that were dropped because the guest did not take them.
fn dropped(world: &World) -> u64 {
    world.control().report_of(GUEST).unwrap().stats.rx_dropped_drained
}

fn short() -> World {
    World::patient(Patience { drain: DRAIN, stall: Some(STALL) })
}

#[test]
fn xsa_392_a_guest_without_pages_is_drained_then_loses_its_carrier_and_comes_back() {
    // None posted, and fewer than the frame needs: both are a stall.
    for posted in [0, 2] {
        let mut world = short();
        let mut guest = world.guest();
        let mut rings = guest.connect();
        let behind = world.behind(guest.vif);
        let buffers = guest.pages(8, Access::ReadWrite);
        guest.post(&mut rings, &buffers.grefs[..posted]);
        for _ in 0..5 {
            behind.give(frame(9000), Offload::default());
        }
        eventually("the first frame is taken", || (behind.look().given == 1).then_some(()));
        world.passes(DRAIN - TICK);
        assert_eq!(dropped(&world), 0, "too early");
        world.passes(2 * TICK);
        eventually("all of them are dropped", || (dropped(&world) == 5).then_some(()));
        assert_eq!(behind.look().link, Some(true), "that alone costs no carrier");
        world.passes(STALL - DRAIN - 2 * TICK);
        assert_eq!(behind.look().link, Some(true), "too early");
        world.passes(2 * TICK);
        eventually("the carrier goes", || (behind.look().link == Some(false)).then_some(()));
        // OpenBSD's xnf was left so: what it sends goes on, and nothing wakes the
        // backend up but pages.
        guest.is_served(&mut rings);
        guest.kick(rings.rx_event);
        world.passes(10 * STALL);
        assert_eq!(behind.look().link, Some(false), "no carrier without pages");
        world.honest().carries(20);
        // Signals where the backend asked for one.
        for _ in posted..3 {
            let old = rings.rx_prod;
            rings.put_rx(&[RxRequest { id: old as u16, gref: buffers.grefs[old as usize].0 }]);
            let event = rings.rx.load(Index::ReqEvent);
            if rings.rx_prod.wrapping_sub(event) < 1 {
                guest.kick(rings.rx_event);
            }
        }
        eventually("the carrier comes back", || (behind.look().link == Some(true)).then_some(()));
        behind.give(frame(9000), Offload::default());
        let lengths: Vec<_> = guest.rx_answers(&mut rings, 3).iter().map(|a| a.status).collect();
        assert_eq!(lengths, [4096, 4096, 808]);
        assert_eq!(dropped(&world), 5);
        world.stands();
    }
}

#[test]
fn openbsd_xnf_a_stall_that_is_over_in_time_costs_nothing() {
    let mut world = short();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let behind = world.behind(guest.vif);
    let buffers = guest.pages(SLOTS as usize, Access::ReadWrite);
    // Longer in all than the carrier would last, a little each time.
    let each = DRAIN - TICK;
    let mut round = 0u32;
    while each * round < 2 * (STALL + DRAIN) {
        behind.give(frame(60), Offload::default());
        let taken = || (behind.look().given > u64::from(round)).then_some(());
        eventually("the frame is taken", taken);
        world.passes(each);
        guest.post(&mut rings, &buffers.grefs[round as usize..=round as usize]);
        assert_eq!(guest.rx_answers(&mut rings, 1)[0].status, 60, "round {round}");
        assert_eq!(behind.look().link, Some(true), "round {round}");
        round += 1;
    }
    let stats = world.control().report_of(guest.vif).unwrap().stats;
    assert_eq!((stats.rx_dropped_drained, stats.rx_packets), (0, round.into()));
    world.stands();
}

#[test]
fn a_guest_without_feature_rx_notify_is_drained_early_and_keeps_its_carrier() {
    for value in ["0", "", "no"] {
        // Little is borne of it, whatever is borne of others.
        let mut world = World::patient(Patience { stall: Some(STALL), ..Patience::LINUX });
        let mut guest = world.guest();
        let mut rings = guest.connect_as(&[("feature-rx-notify", value)]);
        let behind = world.behind(guest.vif);
        for _ in 0..5 {
            behind.give(frame(60), Offload::default());
        }
        eventually("the first frame is taken", || (behind.look().given > 0).then_some(()));
        world.passes(STALL - TICK);
        eventually("all of them are dropped", || (dropped(&world) == 5).then_some(()));
        // Nobody could tell that it is back, so it is never said to be gone.
        world.passes(10 * (STALL + DRAIN));
        assert_eq!(behind.look().link, Some(true), "the carrier stays");
        world.honest().carries(20);
        // It posts, and says nothing. The next frame finds the pages.
        let buffers = guest.pages(SLOTS as usize, Access::ReadWrite);
        let silently = |rings: &mut Rings| {
            let at = rings.rx_prod;
            rings.put_rx(&[RxRequest { id: at as u16, gref: buffers.grefs[at as usize].0 }]);
        };
        silently(&mut rings);
        behind.give(frame(61), Offload::default());
        assert_eq!(guest.rx_answers(&mut rings, 1)[0].status, 61);
        // And a frame that waits is looked after without a signal: it came, or it
        // was too late for it.
        for round in 0..10u16 {
            let before = dropped(&world);
            behind.give(frame(70 + usize::from(round)), Offload::default());
            world.passes(Duration::from_millis(5));
            silently(&mut rings);
            world.passes(STALL / 2);
            let mut came = Vec::new();
            eventually("the frame, or its end", || {
                came.extend(rings.rx_answers());
                (!came.is_empty() || dropped(&world) > before).then_some(())
            });
            if came.is_empty() {
                // The page is there for the next.
                behind.give(frame(60), Offload::default());
                came = guest.rx_answers(&mut rings, 1);
            }
            assert_eq!(came.len(), 1, "round {round}");
        }
        assert!(dropped(&world) < 5 + 10, "each frame that waited was dropped");
        assert_eq!(behind.look().link, Some(true));
        world.stands();
    }
}
