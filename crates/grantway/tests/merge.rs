//! TCP of a guest whose frontend has no large frames: what it sends one by one goes on
//! merged.
//!
//! Needs root, /dev/net/tun, `ip`, `ethtool`, `nstat`, `ping` and `iperf3`; where one is
//! missing, says `skipped` and passes.

mod common;

use common::link::Link;
use common::network::{Namespace, available};
use common::{PROMPT, alone, say};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Instant;

const PROGRAMS: [&str; 5] = ["ip", "ethtool", "nstat", "ping", "iperf3"];

/// Bytes of a transfer.
const SIZE: usize = 6 << 20;
const PORT: u16 = 5299;
/// A vif whose frontend offers and uses no large frames.
fn link(backend: &[&str], frontend: &[&str]) -> Link {
    let backend = [&["--workers", "1"], backend].concat();
    let link = Link::start_with(1500, &backend, &[&["--gso", "off"], frontend].concat());
    let takes = link.pair.inside.offload("gwf1", "tcp-segmentation-offload");
    assert!(!takes, "the guest's interface is to have its TCP cut by the kernel");
    link
}

/// One end of a transfer: writes the bytes, or reads what comes.
fn end(mut stream: TcpStream, sends: Option<&[u8]>) -> Vec<u8> {
    stream.set_read_timeout(Some(PROMPT)).expect("a bound");
    stream.set_write_timeout(Some(PROMPT)).expect("a bound");
    let mut came = Vec::new();
    match sends {
        Some(bytes) => stream.write_all(bytes).expect("to send"),
        None => drop(stream.read_to_end(&mut came).expect("to receive")),
    }
    came
}

/// Carries bytes over TCP through the vif, and compares what arrived; Gbit/s.
fn carry(link: &Link, to: &str, to_guest: bool) -> f64 {
    let bytes: Vec<u8> = (0..SIZE).map(|n| (n ^ (n >> 8) ^ ((n * 7) >> 13)) as u8).collect();
    let address: SocketAddr = (to.parse::<IpAddr>().expect("an address"), PORT).into();
    let (listens, ready) = channel();
    let (outside, inside) = (&link.pair.outside, &link.pair.inside);
    let (from_outside, from_inside) = match to_guest {
        true => (Some(&bytes[..]), None),
        false => (None, Some(&bytes[..])),
    };
    let start = Instant::now();
    let (there, here) = std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            outside.enter();
            let listener = TcpListener::bind(address).expect("to listen");
            listens.send(()).expect("somebody to tell");
            end(listener.accept().expect("a connection").0, from_outside)
        });
        let here = scope.spawn(move || {
            inside.enter();
            ready.recv_timeout(PROMPT).expect("a listener");
            end(TcpStream::connect_timeout(&address, PROMPT).expect("to connect"), from_inside)
        });
        (there.join().expect("the outside"), here.join().expect("the inside"))
    });
    let rate = SIZE as f64 * 8e-9 / start.elapsed().as_secs_f64();
    let came = if to_guest { here } else { there };
    assert!(came == bytes, "to {to}, to the guest: {to_guest}: other bytes");
    rate
}

/// A counter of the vif's.
fn count(link: &Link, key: &str) -> u64 {
    let vif = link.site.vif_report();
    vif["stats"][key].as_u64().unwrap_or_else(|| panic!("no {key} in {vif:#}"))
}

/// Segments that the frontend merged for its interface.
fn merged(link: &Link) -> u64 {
    let report = link.site.frontend_report();
    report["queues"][0]["merged"].as_u64().unwrap_or_else(|| panic!("no merged in {report:#}"))
}

/// No port dropped anything, and no checksum was wrong.
fn check(link: &Link, after: &str) {
    link.pair.check_checksums(after);
    let ends = [link.site.vif_report(), link.site.frontend_report()];
    for end in ends {
        let drops = end["port"]["drops"].as_object().expect("drops");
        assert!(drops.is_empty(), "{after}: {drops:?}");
    }
    assert_eq!(link.site.vif_report()["dropped"], 0, "{after}");
}

/// Frames that an interface took from its other end: what a TAP is written.
fn received(namespace: &Namespace, interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
    namespace.run("cat", &[&path]).trim().parse().expect("a number")
}

#[test]
fn segments_of_a_guest_reach_the_interface_as_large_frames() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    for policy in ["copy", "persistent", "staging"] {
        let mut link = link(&[], &["--policy", policy]);
        for to in ["10.99.1.1", "fd99:1::1"] {
            let before = (received(&link.pair.outside, "gwb1"), count(&link, "tx_packets"));
            let merged = count(&link, "tx_merged");
            let rate = carry(&link, to, false);
            let merged = count(&link, "tx_merged") - merged;
            let frames = received(&link.pair.outside, "gwb1") - before.0;
            let packets = count(&link, "tx_packets") - before.1;
            say(format!(
                "{policy}, to {to}: {packets} packets, {merged} of them merged, {frames} frames, \
                 {rate:.2} Gbit/s"
            ));
            // As many as the payload takes at least, most of them with others.
            assert!(packets as usize >= SIZE / 1460, "{policy}, {to}: {packets} packets");
            assert!(merged > packets / 2, "{policy}, {to}: {merged} of {packets} merged");
            assert!(frames < packets, "{policy}, {to}: {frames} frames of {packets} packets");
            check(&link, to);
        }
        let graph = link.site.backend_report()["graph"].take();
        let nodes = graph["nodes"].as_array().expect("nodes");
        let gro = nodes.iter().find(|node| node["name"] == "gro").expect("a node");
        assert!(gro["packets"].as_u64() >= graph["merged"].as_u64(), "{graph:#}");
        assert!(graph["merged"].as_u64() > Some(1000), "{graph:#}");
        link.frontend.terminate();
        link.backend.terminate();
    }
}

#[test]
fn large_frames_of_the_interface_reach_a_guest_as_segments() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    for policy in ["copy", "staging"] {
        let mut link = link(&[], &["--policy", policy]);
        for to in ["10.99.1.1", "fd99:1::1"] {
            let before = (count(&link, "rx_cut"), count(&link, "rx_packets"), merged(&link));
            let rate = carry(&link, to, true);
            let cut = count(&link, "rx_cut") - before.0;
            let packets = count(&link, "rx_packets") - before.1;
            let merged = merged(&link) - before.2;
            say(format!(
                "{policy}, from {to}: {packets} packets, {cut} cut, {merged} merged again, \
                 {rate:.2} Gbit/s"
            ));
            assert!(merged > packets / 2, "{policy}, {to}: {merged} of {packets} merged");
            assert!(packets as usize >= SIZE / 1460, "{policy}, {to}: {packets} packets");
            assert!(cut > packets / 2 && cut <= packets, "{policy}, {to}: {cut} of {packets}");
            check(&link, to);
        }
        link.frontend.terminate();
        link.backend.terminate();
    }
}

#[test]
fn nothing_is_merged_where_that_is_off() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let mut link = link(&["--merge", "off"], &["--merge", "off"]);
    for to_guest in [false, true] {
        let rate = carry(&link, "10.99.1.1", to_guest);
        say(format!("off, to the guest: {to_guest}: {rate:.2} Gbit/s"));
    }
    assert_eq!((count(&link, "tx_merged"), count(&link, "rx_cut"), merged(&link)), (0, 0, 0));
    check(&link, "off");
    link.frontend.terminate();
    link.backend.terminate();
}
