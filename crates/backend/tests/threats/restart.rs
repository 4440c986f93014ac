//! The backend is dropped or killed and started again while frames flow.

use crate::support::eventually;
use crate::support::honest::Honest;
use crate::support::hostile::{Hostile, frame};
use crate::support::panics;
use crate::support::port::Call;
use crate::support::rings::{Rings, SLOTS, slot};
use crate::support::world::{GUEST, World};
use grantway_backend::{PlugEvent, WaitMode};
use grantway_hypervisor::{Access, DomId, GrantRef, Granted};
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::{TxFlags, status};
use grantway_netif::{Offload, XenbusState};
use grantway_ring::{Index, RingMemory};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const NONE: TxFlags = TxFlags::empty();

/// Returns a check of an honest vif after `kills` kills: each kill may cost one frame each way
/// that waited in the backend, and nothing else.
pub fn lost_at_most(kills: u64) -> impl FnOnce(&Honest) {
    move |honest| {
        for (way, tally) in ["from the guest", "to the guest"].iter().zip(honest.count(kills)) {
            assert_eq!((tally.again, tally.damaged), (0, 0), "{way}: {tally:?}");
            assert!(tally.lost <= kills, "{way}: {kills} kills: {tally:?}");
        }
        assert_eq!(honest.connections(), 1, "the guest noticed");
    }
}

/// Pages whose frames tell their own number.
fn numbered(guest: &Hostile, count: usize) -> Granted {
    let pool = guest.pages(count, Access::ReadOnly);
    for n in 0..count {
        let mut bytes = frame(60);
        bytes[14..16].copy_from_slice(&(n as u16).to_be_bytes());
        pool.page(n).unwrap().0.write(0, &bytes).unwrap();
    }
    pool
}

/// The numbers of the frames that left through the guest's port.
fn left(world: &World) -> Vec<u16> {
    let behind = world.behind(GUEST);
    let inner = behind.look();
    let number = |bytes: &[u8]| u16::from_be_bytes([bytes[14], bytes[15]]);
    inner.taken.iter().map(|(bytes, _)| number(bytes)).collect()
}

fn still_connected(guest: &mut Hostile) {
    assert_eq!(guest.backend_state(), Some(XenbusState::Connected), "the guest noticed");
}

#[test]
fn restart_under_load_answers_each_slot_once() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let (_memory, gref) = guest.page(&frame(60));
    let mut id = 0u16;
    let mut answered = 0u16;
    for restart in 0..12 {
        for _ in 0..4 {
            let room = SLOTS - rings.tx_prod.wrapping_sub(rings.tx_cons);
            let slots: Vec<_> = (0..room.min(150))
                .map(|_| {
                    id = id.wrapping_add(1);
                    slot(gref, 0, 60, id, NONE)
                })
                .collect();
            rings.put_tx(&slots);
            guest.kick(rings.tx_event);
            for answer in rings.tx_answers() {
                answered = answered.wrapping_add(1);
                assert_eq!((answer.id, answer.status), (answered, status::OKAY));
            }
            if restart % 2 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        world.restart();
        still_connected(&mut guest);
        guest.kick(rings.tx_event);
    }
    while answered != id {
        for answer in guest.tx_answers(&mut rings, 1) {
            answered = answered.wrapping_add(1);
            assert_eq!((answer.id, answer.status), (answered, status::OKAY));
        }
    }
    // The next answer is to the next request.
    guest.is_served(&mut rings);
    assert_eq!(rings.tx_words().len(), 0);
    let sent = world.behind(GUEST).look().sent;
    assert_eq!(sent, u64::from(id) + 1, "no turn was cut, so each frame was sent once");
    world.stands_and(lost_at_most(12));
}

#[test]
fn a_lower_limit_of_queues_applies_to_the_next_connection() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut queues = [guest.rings(), guest.rings(), guest.rings()];
    guest.start_anew();
    guest.publish_all(&queues);
    guest.state(XenbusState::Connected);
    guest.await_backend(XenbusState::Connected);
    queues.iter_mut().for_each(|rings| guest.is_served(rings));
    world.stop();
    world.setup.queues = 2;
    world.start();
    // What is connected keeps its queues, and the backend still looks at its nodes.
    queues.iter_mut().for_each(|rings| guest.is_served(rings));
    assert_eq!(world.behind(GUEST).look().queues, 3, "a port of fewer queues was asked for");
    still_connected(&mut guest);
    world.settle();
    still_connected(&mut guest);
    // The next connection has what it is offered.
    guest.start_anew();
    assert_eq!(guest.backend_key("multi-queue-max-queues").as_deref(), Some("2"));
    let mut queues = [guest.rings(), guest.rings(), guest.rings()];
    guest.publish_all(&queues);
    guest.state(XenbusState::Connected);
    let said = guest.await_disabled();
    assert!(said.contains("multi-queue-num-queues"), "{said}");
    guest.start_anew();
    guest.publish_all(&queues[..2]);
    guest.state(XenbusState::Connected);
    guest.await_backend(XenbusState::Connected);
    queues[..2].iter_mut().for_each(|rings| guest.is_served(rings));
    world.stands_and(lost_at_most(1));
}

/// Lets the worker die as it hands over the frame of this number.
fn dies_at_send(world: &World, number: u32) {
    let mut sends = 0;
    world.behind(GUEST).hook(move |call| {
        if call == Call::Send {
            sends += 1;
            if sends > number {
                panics::die();
            }
        }
    });
}

#[test]
fn a_worker_that_panics_ends_the_whole_backend() {
    let mut world = World::of_workers(2, WaitMode::Interrupt, false);
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let pool = numbered(&guest, 1);
    dies_at_send(&world, 0);
    rings.put_tx(&[slot(pool.grefs[0], 0, 60, 7, NONE)]);
    guest.kick(rings.tx_event);
    // Not only the worker, and not only its vifs.
    let why = world.falls();
    assert!(why.contains("a worker panicked"), "{why}");
    world.behind(GUEST).unhook();
    world.start();
    still_connected(&mut guest);
    assert_eq!(guest.tx_answers(&mut rings, 1)[0].id, 7);
    guest.is_served(&mut rings);
}

/// Kills the backend as it sends the packet of this number, of 64.
fn falls_amid_packets(
    world: &mut World,
    guest: &mut Hostile,
    rings: &mut Rings,
    pool: &Granted,
    kill: u32,
) {
    world.behind(GUEST).look().taken.clear();
    dies_at_send(world, kill);
    let first = rings.tx_prod;
    let slots: Vec<_> =
        (0..64).map(|n| slot(pool.grefs[n], 0, 60, 1000 + n as u16, NONE)).collect();
    rings.put_tx(&slots);
    guest.kick(rings.tx_event);
    world.falls();
    assert_eq!(rings.tx_answers().len(), 0, "published in the middle of a turn");
    // While nobody serves the ring the guest scribbles over what it owes:
    // neither ids nor references are read from there again.
    for index in 0..64 {
        rings.tx.write_slot(first.wrapping_add(index), slot(GrantRef(7), 1, 14, 9, NONE));
    }
    world.behind(GUEST).unhook();
}

/// Checks that a successor answers the 64 packets, and that `sent` were sent in all, each once.
fn each_answered_and_none_sent_again(
    world: &World,
    guest: &mut Hostile,
    rings: &mut Rings,
    sent: u32,
) {
    let answers = guest.tx_answers(rings, 64);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!((usize::from(answer.id), answer.status), (1000 + n, status::OKAY));
    }
    let found = left(world);
    let once: BTreeSet<_> = found.iter().collect();
    assert_eq!(once.len(), found.len(), "sent twice: {found:?}");
    assert_eq!(found.len(), sent as usize);
}

#[test]
fn restart_a_kill_within_a_turn_sends_and_answers_nothing_twice() {
    let mut world = World::new();
    let mut guest = world.guest();
    let pool = numbered(&guest, 64);
    for kill in [0, 1, 31, 63] {
        let mut rings = guest.connect();
        falls_amid_packets(&mut world, &mut guest, &mut rings, &pool, kill);
        world.start();
        still_connected(&mut guest);
        each_answered_and_none_sent_again(&world, &mut guest, &mut rings, kill);
        guest.is_served(&mut rings);
        assert_eq!(rings.tx_words().len(), 0);
        guest.start_anew();
    }
    world.stands_and(lost_at_most(200));
}

#[test]
fn restart_owed_extras_get_the_answers_of_extras() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let pool = numbered(&guest, 4);
    dies_at_send(&world, 1);
    let gso = grantway_netif::Gso { kind: grantway_netif::GsoKind::Tcpv4, size: 9 };
    let extra = grantway_netif::Extra::Gso(gso.try_into().unwrap(), 0).to_tx_words(false);
    let flags = TxFlags::EXTRA_INFO | TxFlags::MORE_DATA;
    let packet = |id: u16| {
        [slot(pool.grefs[0], 0, 80, id, flags), extra, slot(pool.grefs[1], 0, 20, id + 1, NONE)]
    };
    // The last one is refused, in the same turn.
    let mut slots = [packet(10), packet(20), packet(30)].concat();
    slots.push(slot(pool.grefs[0], 0, 3, 40, NONE));
    rings.put_tx(&slots);
    guest.kick(rings.tx_event);
    world.falls();
    world.behind(GUEST).unhook();
    world.start();
    let answers = guest.tx_answers(&mut rings, 10);
    let seen: Vec<_> = answers.iter().map(|answer| (answer.id, answer.status)).collect();
    let null = (0, status::NULL);
    let expected =
        [(10, 0), null, (11, 0), (20, 0), null, (21, 0), (30, 0), null, (31, 0), (40, 0)];
    assert_eq!(seen, expected);
    guest.is_served(&mut rings);
    world.stands_and(lost_at_most(50));
}

/// Returns the statuses of the receive answers so far. Their ids must be in the order of the
/// ring, whatever the length.
fn in_order(rings: &mut Rings, next: &mut u16) -> Vec<i16> {
    let mut lengths = Vec::new();
    for answer in rings.rx_answers() {
        assert_eq!(answer.id, *next, "answered out of order, or twice");
        *next = next.wrapping_add(1);
        lengths.push(answer.status);
    }
    lengths
}

#[test]
fn restart_a_kill_within_a_receive_turn_uses_each_page_once() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let buffers = guest.pages(SLOTS as usize, Access::ReadWrite);
    guest.post(&mut rings, &buffers.grefs);
    let mut next = 0;
    let mut lengths = Vec::new();
    for kill in [1u32, 5, 33, 64] {
        let mut seen = 0;
        world.behind(GUEST).hook(move |call| {
            if call == Call::Recv {
                seen += 1;
                if seen > kill {
                    panics::die();
                }
            }
        });
        for _ in 0..100 {
            world.behind(GUEST).give(frame(5000), Offload::default());
        }
        world.falls();
        world.behind(GUEST).unhook();
        world.behind(GUEST).look().waiting.clear();
        lengths.extend(in_order(&mut rings, &mut next));
        world.start();
        still_connected(&mut guest);
        // Whoever takes over writes into what is left, from the first page on.
        for _ in 0..4 {
            world.behind(GUEST).give(frame(5000), Offload::default());
        }
        let before = lengths.len();
        eventually("eight answers", || {
            lengths.extend(in_order(&mut rings, &mut next));
            (lengths.len() >= before + 8).then_some(())
        });
        // The guest posts again what came back.
        let room = SLOTS - rings.rx_prod.wrapping_sub(rings.rx_cons);
        let requests: Vec<_> = (0..room)
            .map(|n| {
                let at = rings.rx_prod.wrapping_add(n);
                RxRequest { id: at as u16, gref: buffers.grefs[(at % SLOTS) as usize].0 }
            })
            .collect();
        rings.put_rx(&requests);
        guest.kick(rings.rx_event);
    }
    let pairs = lengths.chunks(2).all(|pair| pair == [4096, 904]);
    assert!(pairs && lengths.len() % 2 == 0, "{lengths:?}");
    world.stands_and(lost_at_most(400));
}

#[test]
fn restart_a_guest_that_tampers_meanwhile_harms_itself_only() {
    let mut world = World::new();
    let mut guest = world.guest();
    for what in 0..9 {
        let mut rings = guest.connect();
        for _ in 0..5 {
            guest.is_served(&mut rings);
        }
        world.stop();
        match what {
            0 => rings.tx.store(Index::RspProd, 3),
            1 => rings.tx.store(Index::RspProd, 1000),
            2 => rings.rx.store(Index::RspProd, 1),
            3 => rings.tx.store(Index::ReqProd, 2),
            4 => rings.tx.store(Index::ReqProd, 5 + SLOTS + 1),
            5 => rings.rx.store(Index::ReqProd, SLOTS + 1),
            6 => guest.key("rx-ring-ref", "7"),
            7 => guest.state(XenbusState::Closing),
            _ => guest.state(XenbusState::Initialising),
        }
        world.start();
        eventually("the backend gives the connection up", || {
            let state = guest.backend_state();
            (state != Some(XenbusState::Connected)).then_some(())
        });
        world.settle();
        world.holds_nothing_of(GUEST.domain);
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
        world.honest().carries(4);
    }
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands_and(lost_at_most(20));
}

#[test]
fn restart_vifs_that_changed_while_no_backend_ran() {
    let mut world = World::new();
    let mut guest = world.guest();
    for what in 0..5 {
        if what > 0 {
            world.attach(GUEST, &[]);
        }
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        world.stop();
        match what {
            0 => world.toolstack.remove_backend(GUEST),
            1 => world.toolstack.remove_frontend(GUEST),
            2 => world.toolstack.remove_both(GUEST),
            3 => world.toolstack.ask_to_close(GUEST),
            // Attached anew under the same name.
            _ => {
                world.toolstack.remove_both(GUEST);
                world.attach(GUEST, &[]);
            }
        }
        world.start();
        if what == 3 {
            // A toolstack that asked whoever serves the vif waits for its word.
            guest.state(XenbusState::Closed);
            world.toolstack.await_closed(GUEST);
        }
        world.settle();
        world.holds_nothing_of(GUEST.domain);
        if world.control().report_of(GUEST).is_some() {
            world.detaches(GUEST);
        } else {
            world.toolstack.remove_both(GUEST);
        }
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
    }
    world.attach(GUEST, &[]);
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stands_and(lost_at_most(20));
}

#[test]
fn restart_a_toolstack_that_waits_is_answered() {
    // Nobody served the vif when it was asked for; whoever starts answers.
    let mut world = World::new();
    world.stop();
    let domain = world.boot(GUEST.domain);
    world.attach(GUEST, &[]);
    world.expects(GUEST);
    let mut guest = Hostile::new(domain, GUEST, world.setup.domain);
    for state in [XenbusState::Initialising, XenbusState::Closed] {
        guest.state(state);
        world.toolstack.ask_to_close(GUEST);
        world.start();
        world.toolstack.await_closed(GUEST);
        world.stop();
    }
    world.start();
    world.stands_and(lost_at_most(10));
}

#[test]
fn restart_a_vif_that_went_meanwhile_leaves_no_journal_and_no_interface() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    guest.is_served(&mut rings);
    world.stop();
    world.toolstack.remove_both(GUEST);
    world.start();
    world.settle();
    let journal = world.journal(GUEST);
    assert!(!journal.exists(), "{} is left", journal.display());
    assert!(world.ports.ever(GUEST).iter().all(|behind| behind.look().removed));
    world.stands_and(lost_at_most(2));
}

#[test]
fn restart_with_an_invalid_journal() {
    let mut world = World::new();
    let mut guest = world.guest();
    let journal = world.journal(GUEST);
    for what in 0..5 {
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        world.stop();
        match what {
            0 => std::fs::remove_file(&journal).unwrap(),
            1 => std::fs::write(&journal, b"").unwrap(),
            2 => std::fs::write(&journal, vec![0xff; 4096]).unwrap(),
            3 => std::fs::write(&journal, vec![0; 3 * 4096]).unwrap(),
            _ => {
                std::fs::remove_file(&journal).unwrap();
                std::fs::create_dir(&journal).unwrap();
            }
        }
        world.start();
        // Nobody knows what was consumed: it begins anew.
        guest.await_backend(XenbusState::Closing);
        world.holds_nothing_of(GUEST.domain);
        guest.events.close(rings.tx_event);
        guest.events.close(rings.rx_event);
        let mut rings = guest.connect();
        guest.is_served(&mut rings);
        if what == 4 {
            std::fs::remove_dir(&journal).unwrap();
        }
    }
    world.stands_and(lost_at_most(20));
}

/// A killed backend read a change of the multicast list, and may not have made it. The guest
/// gets an error, and asks again.
#[test]
fn restart_a_multicast_change_that_was_not_made_is_an_error() {
    let mut world = World::new();
    let mut guest = world.guest();
    let mut rings = guest.connect();
    let pool = numbered(&guest, 2);
    dies_at_send(&world, 0);
    let add = grantway_netif::Extra::McastAdd([1, 0, 0x5e, 0, 0, 7]).to_tx_words(false);
    rings.put_tx(&[
        slot(pool.grefs[0], 0, 80, 10, NONE),
        slot(pool.grefs[0], 0, 0, 11, TxFlags::EXTRA_INFO),
        add,
        slot(pool.grefs[1], 0, 80, 12, NONE),
    ]);
    guest.kick(rings.tx_event);
    world.falls();
    world.behind(GUEST).unhook();
    world.start();
    let answers = guest.tx_answers(&mut rings, 4);
    let seen: Vec<_> = answers.iter().map(|answer| (answer.id, answer.status)).collect();
    let null = (0, status::NULL);
    assert_eq!(seen, [(10, status::OKAY), (11, status::ERROR), null, (12, status::OKAY)]);
    guest.is_served(&mut rings);
    world.stands_and(lost_at_most(50));
}

/// A vif of two queues that are in service, while its own end waits for a hotplug script.
fn waits_for_its_script(world: &mut World) -> (Hostile, [Rings; 2]) {
    let domain = world.boot(GUEST.domain);
    world.attach(GUEST, &[("hotplug-status", "")]);
    world.expects(GUEST);
    let mut guest = Hostile::new(domain, GUEST, world.setup.domain);
    guest.await_backend(XenbusState::InitWait);
    let mut rings = [guest.rings(), guest.rings()];
    guest.publish_all(&rings);
    guest.state(XenbusState::Connected);
    rings.iter_mut().for_each(|rings| guest.is_served(rings));
    assert_eq!(guest.backend_state(), Some(XenbusState::InitWait));
    (guest, rings)
}

/// A successor repeats the event that starts XAPI's script until the script is done, and the event
/// for which XAPI waits at a detach until the folder is gone.
#[test]
fn restart_repeats_hotplug_events_that_may_not_have_been_seen() {
    let mut world = World::with(DomId(0), WaitMode::Interrupt, true);
    let plugged = Arc::clone(&world.setup.plugged);
    let seen =
        |event| plugged.lock().unwrap().iter().filter(|seen| **seen == (GUEST, event)).count();
    let counts = || (seen(PlugEvent::Online), seen(PlugEvent::Remove));
    let (mut guest, mut rings) = waits_for_its_script(&mut world);
    assert_eq!(counts(), (1, 0));
    world.stop();
    world.start();
    eventually("the event of the successor", || (counts() == (2, 0)).then_some(()));
    let path = format!("{}/hotplug-status", world.toolstack.back(GUEST));
    world.toolstack.store.write(&path, b"connected").unwrap();
    guest.await_backend(XenbusState::Connected);
    world.stop();
    world.start();
    rings.iter_mut().for_each(|rings| guest.is_served(rings));
    assert_eq!(counts(), (2, 0));
    world.toolstack.ask_to_close(GUEST);
    guest.await_backend(XenbusState::Closing);
    guest.state(XenbusState::Closed);
    eventually("the end of the vif", || (counts() == (2, 1)).then_some(()));
    let gone = || world.toolstack.store.read_text(&path).unwrap().is_none().then_some(());
    eventually("the end of the script's node", gone);
    world.stop();
    // As if the process had been killed before it wrote this.
    world.toolstack.store.write(&path, b"connected").unwrap();
    world.start();
    eventually("the event of the successor", || (counts() == (2, 2)).then_some(()));
    world.stands_and(lost_at_most(100));
}

/// Requests that the killed backend consumed are not taken again from a ring whose slots hold
/// answers by now.
#[test]
fn restart_a_kill_before_the_store_says_connected_is_unnoticed() {
    for half in [false, true] {
        let mut world = World::with(DomId(0), WaitMode::Interrupt, true);
        let (mut guest, mut rings) = waits_for_its_script(&mut world);
        let pool = numbered(&guest, 64);
        falls_amid_packets(&mut world, &mut guest, &mut rings[0], &pool, 31);
        if half {
            // Killed between the two queues: the second is not in service yet.
            let path = world.journal(GUEST);
            let mut journal = std::fs::read(&path).unwrap();
            journal[4096 + 60..4096 + 64].fill(0);
            std::fs::write(&path, journal).unwrap();
        }
        world.start();
        each_answered_and_none_sent_again(&world, &mut guest, &mut rings[0], 31);
        rings.iter_mut().for_each(|rings| guest.is_served(rings));
        assert_eq!(guest.backend_state(), Some(XenbusState::InitWait));
        let path = format!("{}/hotplug-status", world.toolstack.back(GUEST));
        world.toolstack.store.write(&path, b"connected").unwrap();
        guest.await_backend(XenbusState::Connected);
        rings.iter_mut().for_each(|rings| guest.is_served(rings));
        world.stands_and(lost_at_most(100));
    }
}
