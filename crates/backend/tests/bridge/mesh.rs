//! Guests of one bridge that belong to several workers: each of three to another one.

use crate::guest::{Address, Guest, frame, three};
use crate::rules::{by_rules, graph, send_list, stats};
use crate::support::eventually;
use crate::support::port::UPLINK;
use crate::support::world::World;
use grantway_netif::Offload;
use grantway_vector::Reason;

/// A station behind the uplink.
const OUTSIDE: Address = [2, 0, 0, 0, 1, 2];

fn meshed() -> World {
    World::bridged_by(3)
}

/// Lets the bridge learn where the outside station is, so that no guest gets frames for it.
fn knows_outside(world: &World, known: &Guest) {
    let uplink = world.behind(UPLINK);
    uplink.give(frame(known.address, OUTSIDE, 60), Offload::default());
    eventually("the bridge takes it", || uplink.look().waiting.is_empty().then_some(()));
}

/// A UDP datagram over IPv4.
fn udp(to: Address, from: Address, ports: [u16; 2]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    for address in [from, to] {
        frame.extend([10, 0, 0, address[5]]);
    }
    let words: u32 =
        frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = !((words & 0xffff) + (words >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend([0, 26, 0, 0]);
    frame.resize(60, 7);
    frame
}

#[test]
fn each_guest_has_a_worker_and_all_of_its_queues_have_that_one() {
    let mut world = meshed();
    let guests = three(&mut world);
    let of = |guest: &Guest| {
        let report = world.control().report_of(guest.hostile.vif).unwrap();
        report.queues.iter().map(|queue| queue.worker).collect::<Vec<_>>()
    };
    let mut workers: Vec<usize> = guests.iter().flat_map(of).collect();
    workers.sort_unstable();
    assert_eq!(workers, [0, 1, 2]);
    drop(guests);
    world.bridge_stands();
}

#[test]
fn stations_that_one_worker_learnt_are_known_to_all_before_an_answer_comes() {
    let mut world = meshed();
    let [mut a, mut b, mut c] = three(&mut world);
    a.posts(1);
    knows_outside(&world, &a);
    a.gets();
    c.posts(8);
    for n in 0..60 {
        let station = [2, 7, 7, 7, 7, n];
        // Nobody but the uplink gets to see it.
        a.sends(&frame(OUTSIDE, station, 60));
        a.posts(1);
        let bytes = frame(station, b.address, 60);
        b.sends(&bytes);
        assert_eq!(a.gets(), bytes);
    }
    c.gets_nothing();
    drop((a, b, c));
    world.bridge_stands();
}

#[test]
fn many_frames_keep_their_order_from_worker_to_worker() {
    let mut world = meshed();
    let [mut a, mut b, c] = three(&mut world);
    let (mut sent, mut came) = (0u32, 0u32);
    while came < 3000 {
        b.posts(16);
        let list: Vec<Vec<u8>> = (0..16)
            .map(|n| {
                // Short and long ones, of which a turn takes each in another way.
                let len = if n % 3 == 0 { 1400 } else { 60 };
                let mut bytes = frame(b.address, a.address, len);
                bytes[14..18].copy_from_slice(&(sent + n).to_be_bytes());
                bytes
            })
            .collect();
        send_list(&mut a, &list);
        sent += 16;
        for expected in list {
            assert_eq!(b.gets(), expected);
            came += 1;
        }
    }
    assert_eq!(stats(&world, &a).dropped() + stats(&world, &b).dropped(), 0);
    drop((a, b, c));
    world.bridge_stands();
}

#[test]
fn a_connection_that_one_worker_saw_begin_is_known_to_the_worker_that_sees_the_answer() {
    let rules = "
        [firewall]
        default = \"drop\"
        [[rule]]
        action = \"accept\"
        vif = \"21.0\"
        state = \"new\"
        [[rule]]
        action = \"accept\"
        state = \"established\"
        [[rule]]
        action = \"accept\"
        state = \"untracked\"
    ";
    let mut world = by_rules(meshed(), rules);
    let [mut a, mut b, mut c] = three(&mut world);
    for port in 0..50 {
        // Nobody but the first may begin anything.
        let bytes = udp(a.address, b.address, [80, port]);
        send_list(&mut b, &[bytes]);
        let asks = udp(b.address, a.address, [port, 80]);
        b.posts(1);
        send_list(&mut a, std::slice::from_ref(&asks));
        assert_eq!(b.gets(), asks);
        let answers = udp(a.address, b.address, [80, port]);
        a.posts(1);
        send_list(&mut b, std::slice::from_ref(&answers));
        assert_eq!(a.gets(), answers);
        let bytes = udp(a.address, c.address, [80, port]);
        send_list(&mut c, &[bytes]);
    }
    a.gets_nothing();
    let graph = graph(&world);
    assert_eq!((graph.drops.of(Reason::Firewall), graph.known.connections), (100, 50));
    assert_eq!(graph.known.stations, 3, "each is known to all, and counts once");
    drop((a, b, c));
    world.bridge_stands();
}

#[test]
fn a_rate_limit_for_all_guests_holds_across_workers() {
    let rules = "
        [[filter]]
        action = \"police\"
        rate = 1
        burst = 1514
        network = \"ipv4\"
        to-port = 80
    ";
    let mut world = by_rules(meshed(), rules);
    let [mut a, mut b, mut c] = three(&mut world);
    let before = stats(&world, &c).rx_packets;
    for _ in 0..20 {
        let bytes = udp(c.address, a.address, [1, 80]);
        send_list(&mut a, &[bytes]);
        let bytes = udp(c.address, b.address, [1, 80]);
        send_list(&mut b, &[bytes]);
    }
    c.posts(40);
    let came = eventually("each was judged", || {
        let came = stats(&world, &c).rx_packets - before;
        (graph(&world).drops.of(Reason::Policed) + came == 40).then_some(came)
    });
    // The rate gives a byte a second.
    assert_eq!(came, 1514 / 60);
    for _ in 0..came {
        assert_eq!(c.gets()[..6], c.address);
    }
    drop((a, b, c));
    world.bridge_stands();
}

#[test]
fn a_guest_that_replaces_an_earlier_guest_is_found_by_all_workers() {
    let mut world = meshed();
    let [mut a, b, mut c] = three(&mut world);
    let address = b.address;
    drop(b);
    world.detaches(grantway_backend::VifId { domain: grantway_hypervisor::DomId(22), devid: 0 });
    // Another guest has its number now, and not its address.
    let mut d = Guest::boot_as(&mut world, 4, &[]);
    a.posts(1);
    knows_outside(&world, &a);
    a.gets();
    d.sends(&frame(OUTSIDE, d.address, 60));
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        let all = [&mut a, &mut c, &mut d];
        all[to].posts(1);
        let bytes = frame(all[to].address, all[from].address, 600);
        all[from].sends(&bytes);
        assert_eq!(all[to].gets(), bytes);
    }
    assert_ne!(d.address, address);
    drop((a, c, d));
    world.bridge_stands();
}
