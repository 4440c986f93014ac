//! Rules from a file, loaded while frames go by, and what is reported of them.

mod common;

use common::{Bench, Kind, Packet, SECRET, mac, v4, v6};
use grantway_netif::Offload;
use grantway_vector::nodes::Checks;
use grantway_vector::rules::{Names, parse};
use grantway_vector::{PortId, Reason, Rules};
use std::sync::Arc;

fn rules(text: &str) -> Arc<Rules> {
    let mut names = Names::default();
    // The numbers of ports are those of their names here.
    for name in ["0.0", "1.0", "2.0", "3.0"] {
        names.number(name).unwrap();
    }
    Arc::new(parse(text, &mut names, SECRET).unwrap())
}

fn udp(from: u16, host: u8, port: u16) -> Packet {
    Packet {
        from,
        stations: [1 + from as u8, 9],
        vlan: None,
        v6: false,
        hosts: [host, 2],
        kind: Kind::Udp { ports: [1000, port] },
        payload: 10,
    }
}

fn send(bench: &mut Bench, packet: &Packet) -> Option<Reason> {
    raw(bench, packet.from, packet.bytes())
}

fn raw(bench: &mut Bench, from: u16, bytes: Vec<u8>) -> Option<Reason> {
    let before = bench.graph.drops().clone();
    bench.run(&[(from, bytes, Offload::default())], 1, 0);
    let after = bench.graph.drops();
    Reason::ALL.iter().copied().find(|&reason| after.of(reason) != before.of(reason))
}

#[test]
fn rules_are_loaded_between_two_frames_and_counters_go_on() {
    let first = rules(
        "flows = true\n[[rule]]\nname = \"dns\"\naction = \"drop\"\nto-ports = 53\n\
         [[rule]]\nname = \"old\"\naction = \"accept\"\nto-ports = 54\n\
         [[filter]]\nname = \"web\"\naction = \"pass\"\nto-port = 80\n",
    );
    let mut bench = Bench::new(first, 4, Checks::Leave);
    assert_eq!(send(&mut bench, &udp(0, 1, 53)), Some(Reason::Firewall));
    assert_eq!(send(&mut bench, &udp(0, 1, 54)), None);
    assert_eq!(send(&mut bench, &udp(0, 1, 80)), None);
    let second = rules(
        "flows = true\n[[rule]]\nname = \"new\"\naction = \"drop\"\nto-ports = 54\n\
         [[rule]]\nname = \"dns\"\naction = \"drop\"\nto-ports = [53]\n\
         [[filter]]\nname = \"web\"\naction = \"drop\"\nto-port = 80\n"
            .replace("[53]", "53")
            .as_str(),
    );
    bench.graph.load(&second);
    assert_eq!(send(&mut bench, &udp(0, 1, 54)), Some(Reason::Firewall));
    assert_eq!(send(&mut bench, &udp(0, 1, 53)), Some(Reason::Firewall));
    assert_eq!(send(&mut bench, &udp(0, 1, 80)), Some(Reason::Filter));
    let report = bench.graph.report();
    let counts: Vec<_> = report.rules.iter().map(|(n, c)| (n.as_str(), c.packets)).collect();
    assert_eq!(counts, [("new", 1), ("dns", 2)]);
    assert_eq!(report.filters[0].1.packets, 2);
    assert_eq!((report.stations, report.by_default.packets), (1, 2));
    let flows: Vec<_> =
        report.flows.iter().map(|flow| (flow.ports[1], flow.count.packets)).collect();
    assert_eq!(flows.len(), 2, "what was dropped is no flow: {flows:?}");
    bench.graph.load(&Arc::default());
    assert_eq!(send(&mut bench, &udp(0, 1, 53)), None);
    assert!(bench.graph.report().flows.is_empty());
    assert_eq!(bench.graph.report().stations, 1, "the bridge still knows");
    bench.graph.forget(PortId(0));
    assert_eq!(bench.graph.report().stations, 0);
}

#[test]
fn nodes_without_work_are_skipped() {
    let mut bench = Bench::new(Arc::default(), 4, Checks::Leave);
    send(&mut bench, &udp(0, 1, 53));
    let by = |name: &str| bench.graph.counters().find(|c| c.name == name).unwrap().vectors;
    for name in ["ethernet", "ipv4", "transport", "bridge", "gro"] {
        assert_eq!(by(name), 1, "{name}");
    }
    for name in ["anti-spoofing", "firewall", "classifier", "limit", "flows", "ipv6"] {
        assert_eq!(by(name), 0, "{name}");
    }
}

const GUARDED: &str = "[[vif]]\nname = \"0.0\"\nmac = \"02:00:00:00:00:01\"\n\
                       addresses = [\"10.0.0.1\", \"fd00::/16\"]\n";

#[test]
fn a_vif_sends_only_from_its_own_addresses() {
    let mut bench = Bench::new(rules(GUARDED), 4, Checks::Leave);
    assert_eq!(send(&mut bench, &udp(0, 1, 53)), None);
    assert_eq!(send(&mut bench, &udp(0, 3, 53)), Some(Reason::SpoofedIpv4));
    assert_eq!(send(&mut bench, &udp(1, 3, 53)), None, "another vif may");
    let foreign = Packet { stations: [7, 9], ..udp(0, 1, 53) };
    assert_eq!(send(&mut bench, &foreign), Some(Reason::SpoofedMac));
    let v6 = Packet { v6: true, ..udp(0, 1, 53) };
    assert_eq!(send(&mut bench, &v6), None);
    let other = |from| Packet { kind: Kind::Other, ..udp(from, 1, 0) };
    assert_eq!(send(&mut bench, &other(0)), Some(Reason::SpoofedOther), "neither IP nor ARP");
    assert_eq!(send(&mut bench, &other(1)), None, "this vif has no list of networks");
}

/// A frame of IPv6 and ICMP, from this address.
fn icmpv6(from: [u8; 16], kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = [mac(9).as_slice(), &mac(1), &[0x86, 0xdd, 0x60, 0, 0, 0, 0]].concat();
    frame.push(4 + body.len() as u8);
    frame.extend([58, 255]);
    frame.extend(from);
    frame.extend(v6(2));
    frame.extend([kind, 0, 0, 0]);
    frame.extend(body);
    frame
}

#[test]
fn a_vif_that_has_no_address_yet_may_ask_for_one() {
    let mut bench = Bench::new(rules(GUARDED), 4, Checks::Leave);
    let mut dhcp = Packet { kind: Kind::Udp { ports: [68, 67] }, ..udp(0, 1, 67) }.bytes();
    let header = common::ipv4(&[[0; 4], [255; 4]], 17, &[], 18, 0);
    dhcp[14..34].copy_from_slice(&header);
    assert_eq!(raw(&mut bench, 0, dhcp.clone()), None);
    dhcp[37] = 66;
    assert_eq!(raw(&mut bench, 0, dhcp), Some(Reason::SpoofedIpv4));
    let mut own = [0; 16];
    own[..2].copy_from_slice(&[0xfe, 0x80]);
    own[11..13].copy_from_slice(&[0xff, 0xfe]);
    (own[8], own[15]) = (2, 1);
    let nothing = [0; 4];
    for kind in [131, 132, 133, 135, 143] {
        assert_eq!(raw(&mut bench, 0, icmpv6([0; 16], kind, &nothing)), None, "{kind}");
    }
    for kind in [128, 129, 134, 137] {
        let reason = raw(&mut bench, 0, icmpv6([0; 16], kind, &nothing));
        assert_eq!(reason, Some(Reason::SpoofedIpv6), "{kind} from no address");
    }
    assert_eq!(raw(&mut bench, 0, icmpv6(own, 135, &nothing)), Some(Reason::SpoofedIpv6));
    // The universal bit of a station's address is turned round.
    own[8] = 0;
    assert_eq!(raw(&mut bench, 0, icmpv6(own, 133, &nothing)), None, "its own link-local one");
}

#[test]
fn a_vif_advertises_only_its_own_addresses() {
    let mut bench = Bench::new(rules(GUARDED), 4, Checks::Leave);
    let advertise = |target: [u8; 16]| {
        let body = [&[0; 4][..], &target].concat();
        icmpv6(v6(1), 136, &body)
    };
    assert_eq!(raw(&mut bench, 0, advertise(v6(3))), None, "of its own network");
    let mut other = v6(3);
    other[0] = 0xfc;
    assert_eq!(raw(&mut bench, 0, advertise(other)), Some(Reason::SpoofedIpv6));
    let arp = |sender: [u8; 6], address: [u8; 4]| {
        let mut frame = Packet { kind: Kind::Arp, ..udp(0, 1, 0) }.bytes();
        frame[22..28].copy_from_slice(&sender);
        frame[28..32].copy_from_slice(&address);
        frame
    };
    assert_eq!(raw(&mut bench, 0, arp(mac(1), v4(1))), None);
    assert_eq!(raw(&mut bench, 0, arp(mac(1), [0; 4])), None, "a probe");
    assert_eq!(raw(&mut bench, 0, arp(mac(1), v4(3))), Some(Reason::SpoofedArp));
    assert_eq!(raw(&mut bench, 0, arp(mac(3), v4(1))), Some(Reason::SpoofedArp));
}

#[test]
fn icmp_errors_belong_to_the_connection_that_they_quote() {
    let text = "[firewall]\ndefault = \"drop\"\n\
                [[rule]]\naction = \"accept\"\nvif = \"0.0\"\nstate = \"new\"\n\
                [[rule]]\naction = \"accept\"\nstate = \"established\"\n";
    let mut bench = Bench::new(rules(text), 4, Checks::Leave);
    let asked = udp(0, 1, 53);
    let error = |about: &Packet| {
        let quoted = &about.bytes()[14..42];
        let mut frame = [mac(1).as_slice(), &mac(2), &[8, 0]].concat();
        frame.extend(common::ipv4(&[v4(2), v4(1)], 1, &[], 8 + quoted.len(), 0));
        frame.extend([3, 3, 0, 0, 0, 0, 0, 0]);
        frame.extend(quoted);
        frame
    };
    assert_eq!(raw(&mut bench, 1, error(&asked)), Some(Reason::Firewall));
    assert_eq!(send(&mut bench, &asked), None);
    assert_eq!(raw(&mut bench, 1, error(&asked)), None);
    assert_eq!(raw(&mut bench, 1, error(&udp(0, 1, 54))), Some(Reason::Firewall));
    assert_eq!(bench.graph.report().connections, 1);
}
