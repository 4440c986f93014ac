//! Indices and slots of the shared rings.

use crate::support::hostile::{Hostile, frame};
use crate::support::rings::{SLOTS, page, slot};
use crate::support::world::World;
use crate::support::{Ends, eventually};
use grantway_hypervisor::Access;
use grantway_netif::extra::Extra;
use grantway_netif::tx::{TxFlags, TxRequest, status};
use grantway_netif::{Gso, GsoKind, Offload, XenbusState};
use grantway_ring::{Index, RingMemory};
use grantway_testkit::Numbers;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The vif was disabled for this reason, lets go of everything, and may come
/// back.
#[track_caller]
fn disabled(world: &World, guest: &mut Hostile, why: &str) {
    let said = guest.await_disabled();
    assert!(said.contains(why), "{said:?} does not tell of {why:?}");
    world.holds_nothing_of(guest.vif.domain);
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
}

#[test]
fn xsa_39_absurd_req_prod_on_the_transmit_ring() {
    let mut world = World::new();
    let mut guest = world.guest();
    for ahead in [SLOTS + 1, 0x7fff_ffff, 0x8000_0000, u32::MAX - 256, u32::MAX] {
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        rings.tx.store(Index::ReqProd, rings.tx_prod.wrapping_add(ahead));
        guest.kick(rings.tx_event);
        disabled(&world, &mut guest, "guest transmit ring");
        assert_eq!(rings.tx.load(Index::RspProd), rings.tx_prod, "nothing was answered");
    }
    world.stands();
}

#[test]
fn xsa_39_absurd_req_prod_on_the_receive_ring() {
    let mut world = World::new();
    let mut guest = world.guest();
    for absurd in [SLOTS + 1, 0x8000_0000, u32::MAX] {
        let rings = guest.connect();
        rings.rx.store(Index::ReqProd, absurd);
        guest.kick(rings.rx_event);
        // Nobody looks at this ring before there is something to put in.
        world.behind(guest.vif).give(frame(60), Offload::default());
        disabled(&world, &mut guest, "guest receive ring");
        assert_eq!(rings.rx.load(Index::RspProd), 0, "nothing was answered");
    }
    world.stands();
}

#[test]
fn xsa_39_a_req_prod_that_goes_back() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    for _ in 0..3 {
        guest.is_served(&mut rings);
    }
    rings.tx.store(Index::ReqProd, 2);
    guest.kick(rings.tx_event);
    disabled(&world, &mut guest, "guest transmit ring");
    world.stands();
}

#[test]
fn xsa_39_absurd_indices_before_the_connection() {
    let mut world = World::new();
    let mut guest = world.guest();
    for (req, rsp) in [(SLOTS + 1, 0), (5, 6), (0, u32::MAX - SLOTS), (u32::MAX, 0)] {
        for receive in [false, true] {
            let rings = guest.rings();
            let set = |index, value| match receive {
                false => rings.tx.store(index, value),
                true => rings.rx.store(index, value),
            };
            set(Index::ReqProd, req);
            set(Index::RspProd, rsp);
            guest.start_anew();
            guest.publish(&rings);
            guest.state(XenbusState::Connected);
            disabled(&world, &mut guest, if receive { "guest receive" } else { "guest transmit" });
        }
    }
    world.stands();
}

#[test]
fn xsa_39_rings_whose_indices_begin_anywhere_are_served() {
    let mut world = World::new();
    let mut guest = world.guest();
    for at in [1, 255, 256, 0x7fff_ffff, u32::MAX - 3] {
        let mut rings = guest.rings();
        for (ring_at, ring_cons) in
            [(&mut rings.tx_prod, &mut rings.tx_cons), (&mut rings.rx_prod, &mut rings.rx_cons)]
        {
            (*ring_at, *ring_cons) = (at, at);
        }
        for index in [Index::ReqProd, Index::RspProd] {
            rings.tx.store(index, at);
            rings.rx.store(index, at);
        }
        guest.connect_with(&rings);
        for _ in 0..8 {
            guest.is_served(&mut rings);
        }
        guest.start_anew();
    }
    world.stands();
}

/// Answer that the ring must show for a slot: an id with a good or a bad status, or the answer
/// to an extra.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    Good(u16),
    Bad(u16),
    Extra,
}

#[test]
fn xsa_39_each_slot_is_answered_exactly_once() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let pool = guest.pages(32, Access::ReadOnly);
    for index in 0..32 {
        page(&pool, index).0.write(0, &frame(4096)).unwrap();
    }
    let mut numbers = Numbers::new(39);
    let mut owed: Vec<Owed> = Vec::new();
    let mut seen = 0;
    let mut good = 0;
    while owed.len() < 6000 {
        let mut slots = Vec::new();
        while slots.len() < 200 {
            let before = slots.len();
            let count = match numbers.below(4) {
                0 => 1 + numbers.below(20),
                _ => 1 + numbers.below(2),
            };
            let bad_gref = numbers.once_in(6).then(|| numbers.below(count));
            let short = numbers.once_in(8);
            let segmented = numbers.once_in(5);
            let later = 14 * (count - 1) as u16;
            let total = if short { later + 3 } else { later + 60 };
            let bad = (short && total < 14) || bad_gref.is_some() || count > 19;
            let done = |id| if bad { Owed::Bad(id) } else { Owed::Good(id) };
            for part in 0..count {
                let id = numbers.half();
                let mut flags = TxFlags::empty();
                flags.set(TxFlags::MORE_DATA, part + 1 < count);
                flags.set(TxFlags::EXTRA_INFO, part == 0 && segmented);
                let size = if part == 0 { total } else { 14 };
                let mut gref = pool.grefs[numbers.below(32)];
                if bad_gref == Some(part) {
                    gref.0 = 30_000;
                }
                slots.push(slot(gref, 0, size, id, flags));
                owed.push(done(id));
                if part == 0 && segmented {
                    let gso = Gso { kind: GsoKind::Tcpv4, size: 100 };
                    slots.push(Extra::Gso(gso.try_into().unwrap(), 0).to_tx_words(false));
                    owed.push(Owed::Extra);
                }
            }
            good += u64::from(!bad);
            assert!(slots.len() - before <= 21);
        }
        let answers = guest.transmit(&mut rings, &slots);
        assert_eq!(answers.len(), slots.len());
        for answer in answers {
            let found = match answer.status {
                status::NULL => Owed::Extra,
                status::OKAY => Owed::Good(answer.id),
                _ => Owed::Bad(answer.id),
            };
            assert_eq!(found, owed[seen], "slot {seen}");
            seen += 1;
        }
    }
    // The next answer is to the next request.
    guest.is_served(&mut rings);
    assert_eq!(rings.tx_words(), [[0; 3]; 0], "answered without a request");
    assert_eq!(world.behind(guest.vif).look().sent, good + 1);
    world.stands();
}

/// Connections at least, batches of 32 slots on each, and answers in all.
const CONNECTIONS: usize = 5;
const BATCHES: usize = 400;
const ANSWERED: usize = 40_000;
/// Looks for answers to a batch before the rest of a packet is sent.
const LOOKS: usize = 2000;

#[test]
fn xsa_155_slots_rewritten_while_they_are_read() {
    let mut world = World::new();
    let mut guest = world.guest();
    let (_memory, gref) = guest.page(&frame(4096));
    let (mut connections, mut answered) = (0, 0);
    while connections < CONNECTIONS || answered < ANSWERED {
        // One slot in thousands ends a connection.
        assert!(connections < 1000, "{connections} connections, {answered} answers");
        let mut rings = guest.connect();
        connections += 1;
        // Two packets that are right, and one that is not: any mixture of their
        // words may be read, but only one and the same mixture.
        let choices = [
            slot(gref, 0, 100, 1, TxFlags::empty()),
            slot(gref, 1000, 3000, 2, TxFlags::empty()),
            slot(gref, 4000, 0xffff, 3, TxFlags::MORE_DATA | TxFlags::EXTRA_INFO),
        ];
        let ring = rings.tx.clone();
        let stop = AtomicBool::new(false);
        // While the first is odd nobody writes; the second says that this was seen.
        let [pause, paused] = [(); 2].map(|()| AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _ends = Ends(&stop);
            scope.spawn(|| {
                let mut numbers = Numbers::new(155);
                while !stop.load(SeqCst) {
                    let turn = pause.load(SeqCst);
                    if turn % 2 == 1 {
                        paused.store(turn, SeqCst);
                        std::thread::yield_now();
                        continue;
                    }
                    let harm = if numbers.once_in(2000) { 3 } else { 2 };
                    ring.write_slot(numbers.word(), choices[numbers.below(harm)]);
                }
            });
            for _ in 0..BATCHES {
                if guest.backend_state() != Some(XenbusState::Connected) {
                    break;
                }
                rings.put_tx(&[choices[0]; 32]);
                guest.kick(rings.tx_event);
                for _ in 0..LOOKS {
                    answered += rings.tx_words().len();
                    if rings.tx_cons == rings.tx_prod {
                        break;
                    }
                    std::thread::yield_now();
                }
                if rings.tx_cons == rings.tx_prod {
                    continue;
                }
                // The backend is slow, or waits for the rest of a packet: these slots, which
                // nobody rewrites, are the end of any.
                let turn = pause.fetch_add(1, SeqCst) + 1;
                eventually("nobody writes", || (paused.load(SeqCst) == turn).then_some(()));
                // The first signal is enough for the backend to see each slot: it asks for one at
                // the next slot.
                eventually("the backend saw each slot, or disabled the vif", || {
                    answered += rings.tx_words().len();
                    let asks = rings.tx.load(Index::ReqEvent) == rings.tx_prod.wrapping_add(1);
                    let over = guest.backend_state() != Some(XenbusState::Connected);
                    (asks || over || rings.tx_cons == rings.tx_prod).then_some(())
                });
                rings.put_tx(&[choices[0]; 4]);
                guest.kick(rings.tx_event);
                eventually("each slot is answered, or the vif disabled", || {
                    answered += rings.tx_words().len();
                    let over = guest.backend_state() != Some(XenbusState::Connected);
                    (over || rings.tx_cons == rings.tx_prod).then_some(())
                });
                pause.fetch_add(1, SeqCst);
            }
        });
    }
    // Words of two packets may be mixed, since a slot is no atom; a frame of
    // them is nevertheless within one page and as long as it says.
    for (taken, _) in &world.behind(guest.vif).look().taken {
        let start = if taken[0] == 0 { 0 } else { 1000 };
        assert!((14..=4096 - start).contains(&taken.len()), "{} bytes at {start}", taken.len());
        assert_eq!(taken[..], frame(4096)[start..start + taken.len()], "at {start}");
    }
    world.stands();
}

#[test]
fn xsa_216_responses_are_zero_beyond_their_fields() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    for index in 0..SLOTS {
        rings.tx.write_slot(index, [u32::MAX; 3]);
        rings.rx.write_slot(index, [u32::MAX; 2]);
    }
    let (_memory, gref) = guest.page(&frame(4096));
    let gso = Extra::Gso(Gso { kind: GsoKind::Tcpv4, size: 100 }.try_into().unwrap(), 0xffff);
    rings.put_tx(&[
        slot(gref, 0, 60, 0xffff, TxFlags::empty()),
        slot(gref, 0, 60, 0xfffe, TxFlags::EXTRA_INFO),
        gso.to_tx_words(false),
        slot(gref, 0, 3, 0xfffd, TxFlags::empty()),
        slot(gref, 0, 40, 0xfffc, TxFlags::MORE_DATA),
        slot(gref, 0, 20, 0xfffb, TxFlags::empty()),
    ]);
    guest.kick(rings.tx_event);
    let mut words = Vec::new();
    crate::support::eventually("six answers", || {
        words.extend(rings.tx_words());
        (words.len() == 6).then_some(())
    });
    let null = u32::from(status::NULL as u16) << 16;
    let error = u32::from(status::ERROR as u16) << 16;
    let expected = [0xffff, 0xfffe, null, 0xfffd | error, 0xfffc, 0xfffb];
    assert_eq!(words, expected.map(|word| [word, 0, 0]));

    // Receive: a frame in two pages with an extra between; bytes that are not
    // the frame's stay as the guest left them.
    let buffers = guest.pages(3, Access::ReadWrite);
    for index in 0..3 {
        page(&buffers, index).0.write(0, &[0xa5; 4096]).unwrap();
    }
    guest.post(&mut rings, &buffers.grefs);
    let offload =
        Offload { gso: Some(Gso { kind: GsoKind::Tcpv4, size: 1448 }), ..Offload::default() };
    world.behind(guest.vif).give(frame(5000), offload);
    let mut words = Vec::new();
    crate::support::eventually("three answers", || {
        words.extend(rings.rx_words());
        (words.len() == 3).then_some(())
    });
    // id, offset | flags, status; the extra: type, flags, size | type, features.
    let flags = 1 | 2 | 4 | 8;
    let extra = Extra::Gso(Gso { kind: GsoKind::Tcpv4, size: 1448 }.try_into().unwrap(), 0)
        .to_rx_words(false);
    assert_eq!(words, [[0, flags | 4096 << 16], extra, [2, 904 << 16]]);
    let mut whole = vec![0; 4096];
    page(&buffers, 1).0.read(0, &mut whole).unwrap();
    assert_eq!(whole, [0xa5; 4096], "the page of an extra");
    page(&buffers, 2).0.read(0, &mut whole).unwrap();
    assert_eq!(whole[..904], frame(5000)[4096..]);
    assert_eq!(whole[904..], [0xa5; 4096 - 904], "bytes behind the frame");
    world.stands();
}

#[test]
fn a_request_keeps_its_meaning_when_its_slot_is_an_answer_already() {
    // The ring wraps: slot 0 holds an answer while request 256 is written.
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let (_memory, gref) = guest.page(&frame(4096));
    let mut id = 0u16;
    for burst in [255, 256, 256, 1, 256, 3] {
        let slots: Vec<_> = (0..burst)
            .map(|_| {
                id = id.wrapping_add(1);
                TxRequest { gref: gref.0, offset: 0, flags: TxFlags::empty(), id, size: 64 }
            })
            .collect();
        let words: Vec<_> = slots.iter().map(|slot| slot.to_words()).collect();
        let answers = guest.transmit(&mut rings, &words);
        let ids: Vec<_> = answers.iter().map(|answer| (answer.id, answer.status)).collect();
        let expected: Vec<_> = slots.iter().map(|slot| (slot.id, status::OKAY)).collect();
        assert_eq!(ids, expected);
    }
    world.stands();
}
