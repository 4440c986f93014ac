//! A vif's `rate`, exact to the byte: time stands still but for what the test lets pass.

use crate::support::hostile::frame;
use crate::support::rings::{SLOTS, page, slot};
use crate::support::world::{GUEST, World};
use grantway_backend::Patience;
use grantway_hypervisor::Access;
use grantway_netif::tx::{TxFlags, TxResponse, status};
use std::time::Duration;

/// Bytes that the rate gives in a period. A guest begins with the bytes of one period.
const BYTES: usize = 8_000;
const PERIOD: Duration = Duration::from_millis(50);
const LEN: usize = 1_000;

#[test]
fn exactly_the_bytes_of_the_rate_pass() {
    let mut world = World::patient(Patience::default());
    world.attach(GUEST, &[("rate", "8000,50000")]);
    world.expects(GUEST);
    let domain = world.boot(GUEST.domain);
    let mut guest = crate::support::hostile::Hostile::new(domain, GUEST, world.setup.domain);
    let mut rings = guest.connect();
    let out = guest.pages(1, Access::ReadOnly);
    page(&out, 0).0.write(0, &frame(LEN)).unwrap();
    let words = slot(out.grefs[0], 0, LEN as u16, 1, TxFlags::empty());
    let (mut offered, mut passed) = (0, 0);
    let mut since = Duration::ZERO;
    // One look is late, behind the begin of a period: the next comes in time all the same.
    for step in [0, 1, 10, 39, 50, 70, 30, 25, 25, 7, 43, 100] {
        let time = Duration::from_millis(step);
        world.passes(time);
        since += time;
        // The ring is kept full.
        loop {
            let room = SLOTS as usize - (offered - passed);
            rings.put_tx(&vec![words; room]);
            offered += room;
            guest.kick(rings.tx_event);
            world.passes(Duration::ZERO);
            let answers: Vec<TxResponse> = rings.tx_answers();
            assert!(answers.iter().all(|answer| answer.status == status::OKAY));
            passed += answers.len();
            if answers.is_empty() {
                break;
            }
        }
        let allowed = BYTES + BYTES * since.as_millis() as usize / PERIOD.as_millis() as usize;
        assert!(passed * LEN <= allowed, "{passed} packets of {LEN} after {since:?}");
    }
    assert_eq!(since, 8 * PERIOD);
    assert_eq!(passed * LEN, 9 * BYTES, "each period's bytes passed, and one period's before");
    world.stands();
}

#[test]
fn a_queue_held_by_its_rate_uses_a_new_rate_at_once() {
    let mut world = World::patient(Patience::default());
    world.attach(GUEST, &[("rate", "8000,3600000000")]);
    world.expects(GUEST);
    let domain = world.boot(GUEST.domain);
    let mut guest = crate::support::hostile::Hostile::new(domain, GUEST, world.setup.domain);
    let mut rings = guest.connect();
    let out = guest.pages(1, Access::ReadOnly);
    page(&out, 0).0.write(0, &frame(LEN)).unwrap();
    let words = slot(out.grefs[0], 0, LEN as u16, 1, TxFlags::empty());
    // A first frame says that the guest is served.
    let sent = 1 + 40;
    assert_eq!(guest.transmit(&mut rings, &[words]).len(), 1);
    rings.put_tx(&vec![words; sent - 1]);
    guest.kick(rings.tx_event);
    world.passes(Duration::ZERO);
    assert_eq!(1 + rings.tx_answers().len(), BYTES / LEN, "the others are held for an hour");
    // Time stands still, and the guest says nothing. A lower rate gives its own first period.
    let node = format!("{}/rate", world.toolstack.back(GUEST));
    for (rate, more) in [("4000,3600000000", 4), ("12000,3600000000", 12)] {
        world.toolstack.store.write(&node, rate.as_bytes()).unwrap();
        world.settle();
        world.passes(Duration::ZERO);
        assert_eq!(rings.tx_answers().len(), more, "{rate}");
    }
    world.toolstack.remove(&node);
    world.settle();
    world.passes(Duration::ZERO);
    assert_eq!(rings.tx_answers().len(), sent - 8 - 4 - 12, "without a limit all go");
    world.stands();
}
