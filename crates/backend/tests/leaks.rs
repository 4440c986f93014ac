//! A guest that fails and comes back again and again costs nothing that stays:
//! neither descriptors nor mappings nor memory. Alone in its process, which is
//! what is measured.

mod support;

use grantway_hypervisor::{Access, DomId, FrontendPlatform};
use grantway_netif::{Offload, XenbusState};
use grantway_ring::{Index, RingMemory};
use support::eventually;
use support::hostile::{Hostile, frame};
use support::world::World;

/// Descriptors, mappings and threads of this process.
fn held() -> [usize; 3] {
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    [count("/proc/self/fd"), maps, count("/proc/self/task")]
}

/// Lets a vif fail in one way, and ends it in order.
fn round(world: &mut World, guest: &mut Hostile, way: usize) {
    let mut rings = guest.rings();
    guest.start_anew();
    guest.publish(&rings);
    match way {
        0 => guest.key("rx-ring-ref", "30000"),
        1 => guest.key("event-channel-rx", "4000"),
        2 => guest.key("tx-ring-ref", "junk"),
        _ => {}
    }
    guest.state(XenbusState::Connected);
    if way < 3 {
        guest.await_backend(XenbusState::Closing);
    } else {
        guest.await_backend(XenbusState::Connected);
        let pool = guest.pages(32, Access::ReadWrite);
        guest.post(&mut rings, &pool.grefs);
        for _ in 0..8 {
            world.behind(guest.vif).give(frame(9000), Offload::default());
        }
        if way == 3 {
            rings.tx.store(Index::ReqProd, 5000);
            guest.kick(rings.tx_event);
            guest.await_backend(XenbusState::Closing);
        }
        guest.domain.release(pool);
        world.behind(guest.vif).look().waiting.clear();
    }
    guest.events.close(rings.tx_event);
    guest.events.close(rings.rx_event);
    guest.start_anew();
}

#[test]
fn dpdk_cve_2022_0669_unused_descriptors_are_closed() {
    let mut world = World::new();
    let mut guest = world.guest();
    for way in 0..5 {
        round(&mut world, &mut guest, way);
    }
    let mut before = held();
    for turn in 0..200 {
        round(&mut world, &mut guest, turn % 5);
    }
    // Whole vifs, too.
    for _ in 0..20 {
        world.detaches(guest.vif);
        world.attach(guest.vif, &[]);
        guest.await_backend(XenbusState::InitWait);
    }
    // The test's own: what was behind each of those vifs.
    before[0] += 20;
    // The allocator may map an arena or two more. The host may still be at the last end.
    for (at, what) in ["descriptors", "mappings", "threads"].iter().enumerate() {
        eventually(&format!("no more {what} than {} and 8", before[at]), || {
            (held()[at] <= before[at] + 8).then_some(())
        });
    }
    assert_eq!(world.table(DomId(9)).grants_held, 0);
    world.stands();
}
