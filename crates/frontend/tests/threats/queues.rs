//! Several queues: their published nodes, the queue that a frame takes, and all that a backend may
//! do with one of them.

use crate::support::frame;
use crate::support::server::Rings;
use crate::support::world::World;
use grantway_embedded::HostConfig;
use grantway_frontend::{SendError, VifStatus, Wishes};
use grantway_hypervisor::Platform;
use grantway_netif::flow::{flow_hash, queue_of};
use grantway_netif::rx::RxFlags;
use grantway_netif::tx::status;
use grantway_netif::{Offload, XenbusState};
use std::collections::BTreeMap;

const FLAT: [&str; 5] =
    ["tx-ring-ref", "rx-ring-ref", "event-channel", "event-channel-tx", "event-channel-rx"];

/// Returns the names in the frontend's folder that describe its queues.
fn names(world: &mut World) -> Vec<String> {
    let front = world.server.front.clone();
    let mut names = world.server.store.list(&front).unwrap();
    let of_a_queue = |name: &String| {
        name.starts_with("queue-")
            || name == "multi-queue-num-queues"
            || FLAT.contains(&name.as_str())
    };
    names.retain(of_a_queue);
    names.sort();
    names
}

/// Returns a frame of flow `n`, which is known by its stations.
fn of_flow(n: u8) -> Vec<u8> {
    let mut frame = frame(100, n);
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, n]);
    frame
}

/// Returns a flow that keeps to this queue, of `queues`.
fn flow_on(queue: usize, queues: usize) -> u8 {
    (0..=255).find(|&n| queue_of(flow_hash(&of_flow(n)), queues) == queue).unwrap()
}

#[test]
fn one_queue_has_flat_keys_and_several_have_folders() {
    // The nodes are as stock netfront writes them, with nothing of an earlier connection with
    // another number of queues, or another kind of event channels.
    let mut world = World::with(Wishes { queues: 4, ..Wishes::default() });
    for (offered, split) in [(4, true), (1, true), (3, false), (2, true), (1, false), (4, false)] {
        let both = if split { "1" } else { "0" };
        world.server.key("multi-queue-max-queues", offered.to_string().as_bytes());
        world.server.state(XenbusState::Closing);
        world.look();
        world.server.state(XenbusState::Closed);
        world.tries_again();
        world.until_shown(XenbusState::Initialising);
        world.server.offer();
        world.server.key("feature-split-event-channels", both.as_bytes());
        world.until_shown(XenbusState::Connected);
        let channels = match split {
            true => &["event-channel-rx", "event-channel-tx"][..],
            false => &["event-channel"][..],
        };
        let of_one = [channels, &["rx-ring-ref", "tx-ring-ref"]].concat();
        let mut expected: Vec<String> = Vec::new();
        if offered == 1 {
            expected.extend(of_one.iter().map(ToString::to_string));
        } else {
            expected.push("multi-queue-num-queues".into());
            expected.extend((0..offered).map(|n| format!("queue-{n}")));
            let told = world.server.front_key("multi-queue-num-queues");
            assert_eq!(told, Some(offered.to_string()));
            for number in 0..offered {
                let folder = format!("{}/queue-{number}", world.server.front);
                let mut found = world.server.store.list(&folder).unwrap();
                found.sort();
                assert_eq!(found, of_one, "queue {number} of {offered}");
            }
        }
        assert_eq!(names(&mut world), expected, "{offered} queues, split: {split}");
    }
}

#[test]
fn a_backend_that_lies_about_its_number_of_queues() {
    let lies: [(&[u8], u16); 14] = [
        (b"", 1),
        (b"0", 1),
        (b"-1", 1),
        (b"many", 1),
        (b"\xff\xfe", 1),
        (b"3\0", 1),
        (b"99999999999999999999", 1),
        (&[b'9'; 2000], 1),
        (b"1", 1),
        (b"3", 3),
        (b" 3\n", 3),
        (b"4", 4),
        (b"65536", 4),
        (b"4294967295", 4),
    ];
    for (offered, taken) in lies {
        let mut world = World::with(Wishes { queues: 4, ..Wishes::default() });
        world.server.key("multi-queue-max-queues", offered);
        world.published();
        assert_eq!(world.vif.features().queues, taken, "{offered:?}");
        assert_eq!(world.guest.counters().granted, u64::from(taken) * 274, "{offered:?}");
        if taken == 1 {
            let mut rings = world.connect();
            world.works(&mut rings);
            world.ends(rings);
        }
    }
    // No wish is one queue.
    let mut world = World::of_queues(0);
    world.server.key("multi-queue-max-queues", b"8");
    let rings = world.connect();
    world.ends(rings);
}

/// Sends a frame of a flow, and returns the queue that it arrives on.
#[track_caller]
fn sent_on(world: &mut World, rings: &mut [Rings], flow: u8) -> usize {
    world.vif.send(&of_flow(flow), Offload::default()).unwrap();
    world.vif.flush().unwrap();
    let arrived: Vec<usize> = rings.iter_mut().map(|rings| rings.serve_tx().0).collect();
    assert_eq!(arrived.iter().sum::<usize>(), 1, "{arrived:?}");
    assert_eq!(world.vif.reap().unwrap(), 1);
    arrived.iter().position(|&count| count == 1).unwrap()
}

#[test]
fn a_flow_keeps_to_its_queue() {
    let mut world = World::of_queues(4);
    let mut rings = world.connect_all();
    let mut queues = BTreeMap::new();
    for _ in 0..3 {
        for flow in 0..100 {
            let queue = sent_on(&mut world, &mut rings, flow);
            assert_eq!(*queues.entry(flow).or_insert(queue), queue, "flow {flow}");
        }
    }
    for queue in 0..4 {
        let flows = queues.values().filter(|&&of| of == queue).count();
        assert!(flows >= 10, "queue {queue} has {flows} of 100 flows");
    }
    world.all_end(rings);
}

#[test]
fn a_queue_that_is_flooded_starves_no_other() {
    let mut world = World::of_queues(4);
    let mut rings = world.connect_all();
    let mut buffer = vec![0; 65_536];
    let mut seen = [0_usize; 4];
    for _ in 0..200 {
        // Queue 0 is never empty; the others have one frame each.
        for (number, rings) in rings.iter_mut().enumerate() {
            let frames = if number == 0 { 100 } else { 1 };
            for _ in 0..frames.min(rings.posted()) {
                rings.deliver(&world.server, &frame(60, number as u8));
            }
        }
        for _ in 0..80 {
            let Some(received) = world.vif.recv(&mut buffer).unwrap() else { break };
            seen[usize::from(buffer[received.len - 1].wrapping_sub(59))] += 1;
        }
        world.vif.repost().unwrap();
    }
    assert!(seen[0] > 10_000, "{seen:?}");
    for (number, &frames) in seen.iter().enumerate().skip(1) {
        assert!(frames >= 190, "queue {number} got {frames} of 200 through: {seen:?}");
    }
    world.all_end(rings);
}

#[test]
fn a_full_queue_waits_for_room_and_the_others_go_on() {
    let mut world = World::of_queues(2);
    let mut rings = world.connect_all();
    let [full, free] = [0, 1].map(|queue| flow_on(queue, 2));
    while world.vif.send(&of_flow(full), Offload::default()).is_ok() {}
    // The other queue has nothing out, and nobody would ever signal it: it must
    // not keep us awake, nor be kept from sending.
    assert!(!world.vif.arm().unwrap());
    assert_eq!(sent_on_second(&mut world, &mut rings, free), 1);
    assert!(!world.vif.arm().unwrap());
    assert_eq!(world.vif.send(&of_flow(full), Offload::default()), Err(SendError::Full));
    // A signal comes once a quarter came back, on the queue that waits.
    let requests = rings[0].requests();
    assert_eq!(requests.len(), 256);
    assert!(!world.vif.arm().unwrap());
    for (n, words) in requests.iter().enumerate().take(64) {
        let id = grantway_netif::tx::TxRequest::from_words(*words).id;
        rings[0].tx_put(n as u32, id, status::OKAY);
    }
    assert!(rings[0].tx_publish(64), "it asked to be signalled");
    world.server.kick(rings[0].tx_event);
    assert!(world.vif.take_events().unwrap());
    assert!(world.vif.arm().unwrap(), "room came back");
    assert_eq!(world.vif.send(&of_flow(full), Offload::default()), Ok(()));
    assert!(!world.vif.arm().unwrap(), "nothing is waited for any more");
    world.all_end(rings);
}

/// Sends on the second queue, past a first that is full.
fn sent_on_second(world: &mut World, rings: &mut [Rings], flow: u8) -> usize {
    world.vif.send(&of_flow(flow), Offload::default()).unwrap();
    world.vif.flush().unwrap();
    let (arrived, _) = rings[1].serve_tx();
    assert_eq!(world.vif.reap().unwrap(), arrived);
    arrived
}

#[test]
fn a_fault_on_one_queue_closes_all_queues() {
    for bad in 0..3 {
        for receive in [false, true] {
            let mut world = World::of_queues(3);
            let mut rings = world.connect_all();
            if receive {
                let (index, request) = (rings[bad].rx_cons, rings[bad].take());
                rings[bad].rx_put(index, request.id ^ 1, 0, RxFlags::empty(), 60);
                rings[bad].rx_publish(index + 1);
                assert_eq!(world.vif.recv(&mut [0; 100]).unwrap(), None);
            } else {
                world.vif.send(&of_flow(flow_on(bad, 3)), Offload::default()).unwrap();
                world.vif.flush().unwrap();
                rings[bad].tx_put(0, 0xbeef, status::OKAY);
                rings[bad].tx_publish(1);
                assert_eq!(world.vif.reap().unwrap(), 0);
            }
            assert_eq!(world.vif.status(), VifStatus::Held);
            let said = world.vif.take_failure().unwrap().to_string();
            assert!(said.contains(&format!("queue {bad}, ")), "{said}");
            assert!(world.vif.queues().is_empty());
            rings.into_iter().for_each(|rings| world.server.detach(rings));
            world.server.state(XenbusState::Closed);
            world.look();
            // All queues come back after a restart.
            world.vif.restart().unwrap();
            let mut rings = world.connect_all();
            for flow in 0..3 {
                sent_on(&mut world, &mut rings, flow_on(flow, 3));
            }
            world.all_end(rings);
        }
    }
}

#[test]
fn if_one_queue_cannot_be_made_nothing_stays_granted() {
    // There is room for three queues of four.
    let config = HostConfig { grant_entries: 1024, ..HostConfig::default() };
    let mut world = World::on(config, Wishes { queues: 4, ..Wishes::default() });
    world.server.key("multi-queue-max-queues", b"4");
    world.server.offer();
    world.until(VifStatus::Held);
    let said = world.vif.take_failure().unwrap().to_string();
    assert!(said.contains("the grant table is full"), "{said}");
    world.nothing_is_lent();
    assert_eq!(names(&mut world), [""; 0], "keys of queues that are not there");
    world.server.state(XenbusState::Closed);
    world.look();
    world.server.key("multi-queue-max-queues", b"3");
    world.vif.restart().unwrap();
    let rings = world.connect_all();
    world.all_end(rings);
}

#[test]
fn every_queue_signals_and_is_signalled_by_itself() {
    let mut world = World::of_queues(3);
    let mut rings = world.connect_all();
    world.vif.take_events().unwrap();
    let mut buffer = [0; 200];
    for round in 0..20 {
        let number = round % 3;
        assert!(!world.vif.arm().unwrap());
        assert!(!world.vif.take_events().unwrap(), "round {round}: a signal of nobody's");
        let asked = rings[number].deliver(&world.server, &frame(60, round as u8));
        assert!(asked, "round {round}");
        world.server.kick(rings[number].rx_event);
        let woken: Vec<_> =
            world.vif.queues().iter_mut().map(|queue| queue.take_events().unwrap()).collect();
        assert_eq!(woken.iter().position(|&woken| woken), Some(number), "{woken:?}");
        assert!(world.vif.recv(&mut buffer).unwrap().is_some());
    }
    let numbers: Vec<_> = world.vif.queues().iter().map(|queue| queue.number()).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert!(world.vif.queues().iter().all(|queue| queue.stats().interrupts >= 6));
    world.all_end(rings);
}
