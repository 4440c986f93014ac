//! Frames whose bytes change while they are read.

use crate::support::Ends;
use crate::support::hostile::frame;
use crate::support::rings::slot;
use crate::support::tcp::Tcp;
use crate::support::world::{GUEST, World};
use grantway_backend::VifId;
use grantway_netif::extra::Extra;
use grantway_netif::tx::{TxFlags, status};
use grantway_testkit::Numbers;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];

#[test]
fn xsa_155_a_payload_that_changes_while_it_is_read_beside_a_second_vif() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut second =
        world.vif_of(Arc::clone(&guest.domain), VifId { domain: GUEST.domain, devid: 1 });
    let (mut rings, mut its_rings) = (guest.connect(), second.connect());
    let good = frame(4096);
    let (_memory, its_gref) = second.page(&good);
    let [v4, v6] = Tcp::BOTH.map(|tcp| tcp.frame(TO, FROM, &vec![0x55; 4096 - tcp.headers()]));
    let (memory, gref) = guest.page(&v4);
    let stop = AtomicBool::new(false);
    let before = world.behind(second.vif).look().sent;
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| {
            // Its family, its lengths, its addresses, all of it, all the while.
            let mut numbers = Numbers::new(155);
            while !stop.load(SeqCst) {
                memory.write(0, if numbers.once_in(2) { &v4 } else { &v6 }).unwrap();
                memory.write(numbers.below(4090), &numbers.word().to_be_bytes()).unwrap();
            }
        });
        for round in 0..400u16 {
            let tcp = Tcp::BOTH[usize::from(round % 2)];
            let flags = TxFlags::EXTRA_INFO | TxFlags::CSUM_BLANK;
            let gso = Extra::Gso(tcp.offload(1000).gso.unwrap().try_into().unwrap(), 0)
                .to_tx_words(false);
            let later = slot(gref, 60, 2000, round, TxFlags::empty());
            let slots = [
                slot(gref, 0, 4096, round, TxFlags::empty()),
                slot(gref, 0, 4000, round, flags),
                gso,
                slot(gref, 0, 4000, round, flags | TxFlags::MORE_DATA),
                gso,
                later,
            ];
            let answers = guest.transmit(&mut rings, &slots);
            let good = answers.iter().all(|answer| answer.status >= status::OKAY);
            assert!(good, "round {round}: {answers:?}");
            let sent = slot(its_gref, 0, 4096, round, TxFlags::empty());
            assert_eq!(second.transmit(&mut its_rings, &[sent])[0].status, status::OKAY);
        }
    });
    let taken = std::mem::take(&mut world.behind(GUEST).look().taken);
    assert_eq!(taken.len(), 3 * 400);
    for (n, (bytes, offload)) in taken.iter().enumerate() {
        // What was said of a frame is what the ring said, whatever its bytes say.
        let (len, size) = [(4096, None), (4000, Some(1000)), (4000, Some(1000))][n % 3];
        assert_eq!((bytes.len(), offload.gso.map(|gso| gso.size)), (len, size), "frame {n}");
    }
    let behind = world.behind(second.vif);
    let inner = behind.look();
    assert_eq!(inner.sent, before + 400);
    assert!(inner.taken.iter().all(|(bytes, _)| *bytes == good), "its neighbour's bytes changed");
    drop(inner);
    world.stands();
}
