//! A port that cannot keep up with a guest.

use crate::support::hostile::frame;
use crate::support::rings::slot;
use crate::support::world::World;
use grantway_hypervisor::Access;
use grantway_netif::Offload;
use grantway_netif::tx::{TxFlags, TxResponse, status};
use grantway_ring::{Index, RingMemory};

#[test]
fn packets_for_a_port_that_is_full_stay_on_the_ring() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let behind = world.behind(guest.vif);
    let pages = guest.pages(1, Access::ReadWrite);
    let (_memory, gref) = guest.page(&frame(60));
    for round in 0..30 {
        behind.fill();
        let sent = behind.look().sent;
        rings.put_tx(&[slot(gref, 0, 60, round, TxFlags::empty())]);
        guest.kick(rings.tx_event);
        // Frames to the guest go on, so whole turns of the queue lie between.
        for _ in 0..3 {
            guest.post(&mut rings, &pages.grefs);
            behind.give(frame(80), Offload::default());
            assert_eq!(guest.rx_answers(&mut rings, 1)[0].status, 80);
        }
        assert_eq!((rings.tx.load(Index::RspProd), behind.look().sent), (rings.tx_cons, sent));
        // The guest says nothing further; the port does.
        behind.drain();
        let answers = guest.tx_answers(&mut rings, 1);
        assert_eq!(answers, [TxResponse { id: round, status: status::OKAY }]);
        assert_eq!(behind.look().sent, sent + 1);
    }
    let stats = world.control().report_of(guest.vif).unwrap().stats;
    assert_eq!(stats.tx_dropped_busy, 0);
    world.stands();
}

#[test]
fn a_port_that_is_full_keeps_no_other_guest_waiting() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let behind = world.behind(guest.vif);
    behind.fill();
    let (_memory, gref) = guest.page(&frame(60));
    rings.put_tx(&[slot(gref, 0, 60, 0, TxFlags::empty()); 200]);
    guest.kick(rings.tx_event);
    world.honest().carries(200);
    assert_eq!(behind.look().sent, 0);
    // A vif goes while its port is full.
    world.stands();
}
