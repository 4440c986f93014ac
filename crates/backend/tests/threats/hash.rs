//! The real frontend sets key and table over the real control ring, and each
//! frame comes by the queue that the published vectors say, its hash beside it.

use crate::support::ctrl::{KEY, VECTORS, frame_of};
use crate::support::eventually;
use crate::support::hostile::frame;
use crate::support::port::UPLINK;
use crate::support::rings::slot;
use crate::support::world::{CREWS, GUEST, World};
use grantway_backend::VifId;
use grantway_frontend::{HashRefusal, HashState, HashWish, Vif, VifStatus, Wishes};
use grantway_hypervisor::{DomId, Platform};
use grantway_netif::ctrl::HashTypes;
use grantway_netif::tx::TxFlags;
use grantway_netif::{Hash, Offload};
use std::sync::Arc;

fn wish(mapping: &[u16]) -> HashWish {
    HashWish { types: HashTypes::all(), key: KEY, mapping: mapping.to_vec() }
}

#[track_caller]
fn until(vif: &mut Vif, what: &str, mut stands: impl FnMut(&mut Vif) -> bool) {
    eventually(what, || {
        vif.store_changed().unwrap();
        vif.take_events().unwrap();
        assert_eq!(vif.take_failure(), None);
        stands(vif).then_some(())
    });
}

#[track_caller]
fn sets(vif: &mut Vif, mapping: &[u16]) {
    vif.set_hash(Some(wish(mapping))).unwrap();
    until(vif, "the hash is set", |vif| vif.hash().1 == HashState::Set);
}

/// Gives the vectors' frames to the guest; each comes by its queue.
#[track_caller]
fn arrive(world: &World, vif: &mut Vif, mapping: &[u16]) {
    let behind = world.behind(GUEST);
    arrive_by(vif, mapping, |bytes| behind.give(bytes.to_vec(), Offload::default()));
}

/// Sends the vectors' frames to the guest by `give`; each comes by its queue.
#[track_caller]
fn arrive_by(vif: &mut Vif, mapping: &[u16], mut give: impl FnMut(&mut [u8])) {
    for (vector, (.., tcp)) in VECTORS.into_iter().enumerate() {
        let mut bytes = frame_of(vector, 6);
        give(&mut bytes);
        let queue = usize::from(mapping[tcp as usize % mapping.len()]);
        let mut buffer = vec![0; 65_536];
        let received = eventually("the frame", || {
            vif.take_events().unwrap();
            let found = vif.queues()[queue].recv(&mut buffer).unwrap();
            vif.queues()[queue].repost().unwrap();
            found
        });
        assert_eq!(buffer[..received.len], bytes);
        assert_eq!(received.hash, Some(Hash { kind: 1, algorithm: 1, value: tcp }));
        for queue in vif.queues() {
            assert_eq!(queue.recv(&mut buffer).unwrap(), None, "twice");
        }
    }
}

#[test]
fn the_hash_end_to_end_over_workers_restarts_and_reconnects() {
    let mut world = World::new();
    world.setup.workers = 3;
    world.restart();
    let domain = world.boot(GUEST.domain);
    world.attach(GUEST, &[]);
    world.expects(GUEST);
    let platform: Arc<dyn Platform> = Arc::clone(&domain) as _;
    let wishes = Wishes { queues: 4, ..Wishes::default() };
    let mut vif = Vif::open(platform, 0, wishes).unwrap();
    // Wished for before anybody is there.
    let mapping = [0, 1, 2, 3, 3, 1, 0];
    vif.set_hash(Some(wish(&mapping))).unwrap();
    assert_eq!(vif.hash().1, HashState::Waiting);
    until(&mut vif, "the hash is set", |vif| vif.hash().1 == HashState::Set);
    arrive(&world, &mut vif, &mapping);
    let long: Vec<u16> = (0..128).map(|n| n % 4).collect();
    sets(&mut vif, &long);
    arrive(&world, &mut vif, &long);
    world.restart();
    arrive(&world, &mut vif, &long);
    let stats = world.control().report_of(GUEST).unwrap().stats;
    assert_eq!((stats.rx_packets, stats.rx_dropped_steered, stats.ctrl_requests), (5, 0, 0));
    // A table that is too long, and one of a queue too many.
    vif.set_hash(Some(wish(&[0; 129]))).unwrap();
    let refused = HashState::Refused(HashRefusal::Mapping { asked: 129, most: 128 });
    until(&mut vif, "the refusal", |vif| vif.hash().1 == refused);
    sets(&mut vif, &mapping);
    vif.shutdown().unwrap();
    until(&mut vif, "gone", |vif| vif.status() == VifStatus::Gone);
    // Another connection begins with nothing set.
    let platform: Arc<dyn Platform> = Arc::clone(&domain) as _;
    let mut vif = Vif::open(platform, 0, wishes).unwrap();
    until(&mut vif, "connected", |vif| vif.status() == VifStatus::Connected);
    assert_eq!(vif.hash().1, HashState::Unset);
    sets(&mut vif, &mapping);
    arrive(&world, &mut vif, &mapping);
    vif.set_hash(None).unwrap();
    until(&mut vif, "no hash", |vif| vif.hash().1 == HashState::Unset);
    vif.shutdown().unwrap();
    until(&mut vif, "gone", |vif| vif.status() == VifStatus::Gone);
    world.stands_and(|_| ());
}

#[test]
fn the_hash_on_the_bridge_from_the_uplink_and_from_guest_to_guest() {
    for workers in CREWS {
        const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
        let mut world = World::bridged_by(workers);
        let domain = world.boot(GUEST.domain);
        world.attach(GUEST, &[]);
        let platform: Arc<dyn Platform> = Arc::clone(&domain) as _;
        let mut vif = Vif::open(platform, 0, Wishes { queues: 4, ..Wishes::default() }).unwrap();
        until(&mut vif, "connected", |vif| vif.status() == VifStatus::Connected);
        let mapping = [3, 1, 2, 0, 1];
        sets(&mut vif, &mapping);
        let uplink = world.behind(UPLINK);
        // To everybody, then to the guest alone, once it is known.
        for to in [[0xff; 6], MAC] {
            if to == MAC {
                let mut hello = frame(60);
                hello[..6].fill(0xff);
                hello[6..12].copy_from_slice(&MAC);
                vif.send(&hello, Offload::default()).unwrap();
                vif.flush().unwrap();
                eventually("the guest is known", || (uplink.look().sent > 0).then_some(()));
            }
            arrive_by(&mut vif, &mapping, |bytes| {
                bytes[..6].copy_from_slice(&to);
                bytes[6..12].fill(4);
                uplink.give(bytes.to_vec(), Offload::default());
            });
        }
        let mut sender = world.guest_of(VifId { domain: DomId(30), devid: 0 });
        let mut rings = sender.connect();
        arrive_by(&mut vif, &mapping, |bytes| {
            bytes[..6].copy_from_slice(&MAC);
            bytes[6..12].fill(6);
            let (_memory, gref) = sender.page(bytes);
            sender.transmit(&mut rings, &[slot(gref, 0, 60, 1, TxFlags::empty())]);
        });
        vif.shutdown().unwrap();
        until(&mut vif, "gone", |vif| vif.status() == VifStatus::Gone);
        world.detaches(GUEST);
        drop((sender, rings));
        world.bridge_stands();
    }
}
