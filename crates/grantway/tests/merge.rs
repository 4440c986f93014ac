//! TCP of a guest whose frontend has no large frames: what it sends one by one goes on
//! merged.
//!
//! Needs root, /dev/net/tun, `ip`, `ethtool`, `nstat`, `ping` and `iperf3`; where one is
//! missing, says `skipped` and passes.

mod common;

use common::link::Link;
use common::network::{Namespace, available};
use common::{PROMPT, alone, say, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Instant;

const PROGRAMS: [&str; 5] = ["ip", "ethtool", "nstat", "ping", "iperf3"];

/// Bytes of a transfer.
const SIZE: usize = 6 << 20;
const PORT: u16 = 5299;
/// Segments of the first window of TCP, some of which may be on their way to be sent.
const WINDOW: u64 = 8;

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
///
/// Who merges is stopped until a window of TCP waits for it: however the machine goes on
/// after that, there was something to merge.
fn carry(link: &mut Link, to: &str, to_guest: bool) -> f64 {
    let bytes: Vec<u8> = (0..SIZE).map(|n| (n ^ (n >> 8) ^ ((n * 7) >> 13)) as u8).collect();
    let address: SocketAddr = (to.parse::<IpAddr>().expect("an address"), PORT).into();
    let (listens, ready) = channel();
    let (connects, connected) = channel();
    let (go_on, told) = channel();
    let Link { site, pair, backend, frontend, .. } = link;
    let (outside, inside) = (&pair.outside, &pair.inside);
    let start = Instant::now();
    let bytes = &bytes[..];
    let (there, here) = std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            outside.enter();
            let listener = TcpListener::bind(address).expect("to listen");
            listens.send(()).expect("somebody to tell");
            let stream = listener.accept().expect("a connection").0;
            connects.send(()).expect("somebody to tell");
            told.recv_timeout(PROMPT).expect("a word to go on");
            end(stream, to_guest.then_some(bytes))
        });
        let here = scope.spawn(move || {
            inside.enter();
            ready.recv_timeout(PROMPT).expect("a listener");
            let stream = TcpStream::connect_timeout(&address, PROMPT).expect("to connect");
            // The other end has it, too, and tells when to go on.
            (stream, (!to_guest).then_some(bytes))
        });
        let (stream, sends) = here.join().expect("the inside");
        connected.recv_timeout(PROMPT).expect("a connection");
        let (part, on_its_way): (_, Box<dyn Fn() -> u64>) = match to_guest {
            true => (frontend, Box::new(|| number(&site.vif_report()["stats"]["rx_packets"]))),
            false => (
                backend,
                Box::new(|| number(&site.frontend_report()["queues"][0]["stats"]["tx_packets"])),
            ),
        };
        part.signal(Signal::STOP);
        let before = on_its_way();
        go_on.send(()).expect("somebody to tell");
        let here = scope.spawn(move || end(stream, sends));
        wait_for("a window of segments on the ring", PROMPT, || {
            (on_its_way() >= before + WINDOW).then_some(())
        });
        part.signal(Signal::CONT);
        (there.join().expect("the outside"), here.join().expect("the inside"))
    });
    let rate = SIZE as f64 * 8e-9 / start.elapsed().as_secs_f64();
    let came = if to_guest { here } else { there };
    assert!(came == bytes, "to {to}, to the guest: {to_guest}: other bytes");
    rate
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
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
            let rate = carry(&mut link, to, false);
            let merged = count(&link, "tx_merged") - merged;
            let frames = received(&link.pair.outside, "gwb1") - before.0;
            let packets = count(&link, "tx_packets") - before.1;
            say(format!(
                "{policy}, to {to}: {packets} packets, {merged} of them merged, {frames} frames, \
                 {rate:.2} Gbit/s"
            ));
            // As many as the payload takes at least. Of those that were merged two or more
            // make a frame, and each of the others is one.
            assert!(packets as usize >= SIZE / 1460, "{policy}, {to}: {packets} packets");
            assert!(merged >= WINDOW / 2 && merged <= packets, "{policy}, {to}: {merged} merged");
            let most = packets - merged + merged / 2;
            assert!(frames <= most, "{policy}, {to}: {frames} frames, expected {most} at most");
            check(&link, to);
        }
        let graph = link.site.backend_report()["graph"].take();
        let nodes = graph["nodes"].as_array().expect("nodes");
        let gro = nodes.iter().find(|node| node["name"] == "gro").expect("a node");
        assert!(gro["packets"].as_u64() >= graph["merged"].as_u64(), "{graph:#}");
        // The graph counts the frames that there are fewer: at least half of the segments.
        let (fewer, merged) = (number(&graph["merged"]), count(&link, "tx_merged"));
        assert!(2 * fewer >= merged && fewer < merged, "{merged} merged: {graph:#}");
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
            let rate = carry(&mut link, to, true);
            let cut = count(&link, "rx_cut") - before.0;
            let packets = count(&link, "rx_packets") - before.1;
            let merged = merged(&link) - before.2;
            say(format!(
                "{policy}, from {to}: {packets} packets, {cut} cut, {merged} merged again, \
                 {rate:.2} Gbit/s"
            ));
            assert!(packets as usize >= SIZE / 1460, "{policy}, {to}: {packets} packets");
            // The first window comes in one large frame or a few.
            assert!(cut >= WINDOW / 2 && cut <= packets, "{policy}, {to}: {cut} of {packets}");
            assert!(merged >= WINDOW / 2 && merged <= packets, "{policy}, {to}: {merged}");
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
        let rate = carry(&mut link, "10.99.1.1", to_guest);
        say(format!("off, to the guest: {to_guest}: {rate:.2} Gbit/s"));
    }
    assert_eq!((count(&link, "tx_merged"), count(&link, "rx_cut"), merged(&link)), (0, 0, 0));
    check(&link, "off");
    link.frontend.terminate();
    link.backend.terminate();
}
