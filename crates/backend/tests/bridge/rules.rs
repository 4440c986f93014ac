//! Packets by rules, on the bridge and between a guest and its own port.

use crate::guest::{BROADCAST, Guest, NOBODY, frame, know_each_other, three, uplink_takes};
use crate::support::control::SECRET;
use crate::support::eventually;
use crate::support::rings::{page, slot};
use crate::support::tcp::Tcp;
use crate::support::world::{CREWS, World};
use grantway_backend::{GraphReport, VifStatsSnapshot};
use grantway_netif::Offload;
use grantway_netif::tx::{TxFlags, status};
use grantway_vector::Reason;

const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 1, 2];

pub fn by_rules(mut world: World, rules: &str) -> World {
    world.setup.by_rules = true;
    world.restart();
    load(&world, rules).unwrap();
    world
}

fn load(world: &World, rules: &str) -> Result<(), String> {
    let rules = rules.to_owned();
    let load = move |backend: &mut grantway_backend::Backend| backend.load(&rules, SECRET);
    world.control().with(load).map_err(|e| e.to_string())
}

pub fn graph(world: &World) -> GraphReport {
    world.control().with(|backend| backend.graph()).unwrap()
}

pub fn stats(world: &World, guest: &Guest) -> VifStatsSnapshot {
    world.control().report_of(guest.hostile.vif).unwrap().stats
}

/// Sends frames of one slot each, in one publication.
pub fn send_list(guest: &mut Guest, frames: &[Vec<u8>]) {
    let lay = |(index, bytes): (usize, &Vec<u8>)| {
        let (memory, gref) = page(&guest.out, index);
        memory.write(0, bytes).unwrap();
        slot(gref, 0, bytes.len() as u16, index as u16, TxFlags::empty())
    };
    let slots: Vec<_> = frames.iter().enumerate().map(lay).collect();
    let answers = guest.hostile.transmit(&mut guest.rings, &slots);
    assert!(answers.iter().all(|answer| answer.status == status::OKAY), "dropped or not");
}

const OWN: &str = "
    [[vif]]
    name = \"21.0\"
    mac = \"02:00:00:00:00:01\"
    [[vif]]
    name = \"22.0\"
    mac = \"02:00:00:00:00:02\"
";

#[test]
fn frames_of_any_length_with_a_forged_sender_are_dropped() {
    for workers in CREWS {
        let mut world = by_rules(World::bridged_by(workers), OWN);
        let [mut a, mut b, mut c] = three(&mut world);
        for long in [60, 600, 3000] {
            b.posts(2);
            let honest = frame(b.address, a.address, long);
            let list = [
                frame(b.address, c.address, long),
                honest.clone(),
                frame(b.address, OUTSIDE, long),
            ];
            send_list(&mut a, &list);
            assert_eq!(b.gets(), honest);
        }
        assert_eq!(stats(&world, &a).tx_dropped_rules, 6);
        assert_eq!(graph(&world).drops.of(Reason::SpoofedMac), 6);
        // Nothing was learnt of it: who is meant is still where he is.
        c.posts(1);
        let bytes = frame(c.address, b.address, 60);
        send_list(&mut b, std::slice::from_ref(&bytes));
        assert_eq!(c.gets(), bytes);
        // Of the third the rules say nothing.
        b.posts(1);
        let bytes = frame(b.address, OUTSIDE, 60);
        send_list(&mut c, std::slice::from_ref(&bytes));
        assert_eq!(b.gets(), bytes);
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn rules_change_between_two_lists_and_bad_ones_change_nothing() {
    for workers in CREWS {
        let mut world = by_rules(World::bridged_by(workers), "");
        let [mut a, mut b, c] = three(&mut world);
        let bytes = frame(b.address, a.address, 100);
        let drop_all = "[firewall]\ndefault = \"drop\"\n[[rule]]\nname = \"arp\"\naction = \"accept\"\n\
                    network = \"arp\"\n";
        b.posts(200);
        send_list(&mut a, std::slice::from_ref(&bytes));
        assert_eq!(b.gets(), bytes);
        load(&world, drop_all).unwrap();
        send_list(&mut a, std::slice::from_ref(&bytes));
        let refused = load(&world, "flows = true\n[[rule]]\naction = \"acept\"\n").unwrap_err();
        assert!(refused.starts_with("line 3, column 10: found \"acept\""), "{refused}");
        send_list(&mut a, std::slice::from_ref(&bytes));
        b.gets_nothing();
        assert_eq!(graph(&world).drops.of(Reason::Firewall), 2);
        let known = graph(&world).known;
        assert_eq!((known.by_default.packets, known.stations), (2, 3), "what is known stays");
        load(&world, "flows = true").unwrap();
        send_list(&mut a, std::slice::from_ref(&bytes));
        assert_eq!(b.gets(), bytes);
        // Isolated from each other, they reach the uplink only.
        let isolated = "[[vif]]\nname = \"21.0\"\nisolated = true\n[[vif]]\nname = \"22.0\"\n\
                    isolated = true\n";
        load(&world, isolated).unwrap();
        let to_all = frame(BROADCAST, a.address, 2000);
        let to_nobody = frame(NOBODY, a.address, 60);
        send_list(&mut a, &[bytes, to_nobody, to_all.clone()]);
        b.gets_nothing();
        assert_eq!(graph(&world).drops.of(Reason::Isolated), 1);
        let uplink = world.behind(crate::support::port::UPLINK);
        assert_eq!(uplink_takes(&uplink, 1), [(to_all, Offload::default())]);
        drop((a, b, c));
        world.bridge_stands();
    }
}

#[test]
fn a_filter_redirects_a_frame_to_another_guest() {
    for workers in CREWS {
        let rules =
            "[[filter]]\naction = \"redirect\"\nport = \"23.0\"\nto-mac = \"02:00:00:00:00:02\"\n";
        let mut world = by_rules(World::bridged_by(workers), "");
        let mut guests = [1, 2, 3].map(|number| Guest::boot_staged(&mut world, number, &[]));
        know_each_other(&mut guests);
        load(&world, rules).unwrap();
        let [mut a, mut b, mut c] = guests;
        for long in [60, 1500] {
            b.posts(1);
            c.posts(1);
            let bytes = frame(b.address, a.address, long);
            send_list(&mut a, std::slice::from_ref(&bytes));
            assert_eq!(c.gets(), bytes);
            b.gets_nothing();
        }
        drop((a, b, c));
        world.bridge_stands();
    }
}

/// Both ways, short and long, by both policies that look at packets differently.
#[test]
fn rules_hold_between_a_guest_and_its_port_without_a_bridge() {
    for map in [false, true] {
        let mut world = World::of_workers(1, grantway_backend::WaitMode::Interrupt, false);
        if map {
            world.setup.policy.most = grantway_backend::policy::Policy::Map;
        }
        let rules = "[firewall]\ndefault = \"accept\"\n[[rule]]\nname = \"tcp\"\naction = \"drop\"\n\
                     network = \"ipv4\"\nprotocol = \"tcp\"\n";
        let mut world = by_rules(world, rules);
        let mut a = Guest::boot_as(&mut world, 1, &[]);
        let port = world.behind(a.hostile.vif);
        let tcp =
            |long: usize| Tcp { v6: false }.frame(OUTSIDE, [2, 0, 0, 0, 0, 1], &vec![7; long]);
        let (before, other) = (port.look().sent, |long| frame(OUTSIDE, [2, 0, 0, 0, 0, 1], long));
        let list = [tcp(10), other(60), tcp(1000), other(3000), tcp(20), other(61)];
        send_list(&mut a, &list);
        eventually("what may pass", || (port.look().sent == before + 3).then_some(()));
        let taken: Vec<_> = port.look().taken.iter().map(|(bytes, _)| bytes.clone()).collect();
        assert_eq!(taken, [other(60), other(3000), other(61)], "map: {map}");
        assert_eq!(stats(&world, &a).tx_dropped_rules, 3);
        // To the guest.
        a.posts(100);
        for long in [10, 1000, 2000] {
            port.give(tcp(long), Offload::default());
            port.give(other(long + 60), Offload::default());
            assert_eq!(a.gets(), other(long + 60));
        }
        assert_eq!(stats(&world, &a).rx_dropped_rules, 3);
        // Without rules nothing is in the way.
        load(&world, "").unwrap();
        let lists = || graph(&world).nodes.iter().map(|node| node.vectors).sum::<u64>();
        let before = lists();
        port.give(tcp(10), Offload::default());
        assert_eq!(a.gets(), tcp(10));
        send_list(&mut a, &[tcp(10)]);
        assert_eq!(lists(), before, "no list went through the graph");
        drop(a);
        world.bridge_stands();
    }
}
