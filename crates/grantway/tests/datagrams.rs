//! UDP of the kernel's sockets through a vif between TAPs: a burst of a guest reaches the interface
//! as a large frame, and a large frame of the host reaches the guest as datagrams. Every socket gets
//! the datagrams that were sent, in their order.
//!
//! Needs root, /dev/net/tun, `ip`, `ethtool`, `nstat`, `ping` and `iperf3`, and `python3` for a
//! sender with UDP_SEGMENT. If one is missing, says `skipped` and passes. Says so, too, if the
//! kernel has no segmentation of UDP (Linux 6.2 has it).

mod common;

use common::datagrams::{self, datagrams, expect, socket};
use common::link::Link;
use common::network::{Namespace, available};
use common::{PROMPT, alone, say, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};

const PROGRAMS: [&str; 6] = ["ip", "ethtool", "nstat", "ping", "iperf3", "python3"];
const PORT: u16 = 5298;
/// Datagrams of a burst. As many find room in a socket's buffer and on a ring.
const COUNT: usize = 48;
/// Most of them that do not go in one burst, since they come before or behind it.
const APART: u64 = COUNT as u64 / 2;

/// Lengths of bursts: equal ones, and some that are shorter or longer than those before.
fn bursts() -> [Vec<usize>; 4] {
    let mixed = (0..COUNT).map(|n| [200, 200, 200, 60, 200, 300, 300, 0][n % 8]).collect();
    [vec![18; COUNT], vec![1000; COUNT], vec![1; COUNT], mixed]
}

fn address(host: &str) -> SocketAddr {
    (host.parse::<IpAddr>().expect("an address"), PORT).into()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// A counter of the vif.
fn count(link: &Link, key: &str) -> u64 {
    number(&link.site.vif_report()["stats"][key])
}

/// Frames that an interface took from its other end: what a TAP is written.
fn received(namespace: &Namespace, interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
    namespace.run("cat", &[&path]).trim().parse().expect("a number")
}

/// Returns true if the kernel has segmentation of UDP; if not, says that the test is skipped.
fn has_uso(link: &Link) -> bool {
    let has = link.pair.outside.offload("gwb1", "tx-udp-segmentation");
    if !has {
        say("skipped: the kernel's TAPs have no segmentation of UDP (Linux 6.2 has it)");
    }
    has
}

/// No port dropped anything, and no checksum was wrong.
fn check(link: &Link, after: &str) {
    link.pair.check_checksums(after);
    for end in [link.site.vif_report(), link.site.frontend_report()] {
        let drops = end["port"]["drops"].as_object().expect("drops");
        assert!(drops.is_empty(), "{after}: {drops:?}");
    }
    for (reason, count) in link.site.vif_report()["dropped"].as_object().into_iter().flatten() {
        assert_eq!(count, 0, "{after}: the backend dropped: {reason}");
    }
}

/// Sends a burst from the guest, all of which waits on the ring for a backend that is stopped.
/// Returns the datagrams that were merged, and the frames that the interface got.
fn burst_of_guest(link: &mut Link, host: &str, guest: &str, sent: &[Vec<u8>]) -> (u64, u64) {
    let there = socket(&link.pair.outside, address(host));
    let here = socket(&link.pair.inside, address(guest));
    here.connect(address(host)).expect("to connect");
    link.pair.inside.wait_ping(host);
    let merged = count(link, "tx_merged");
    let before = received(&link.pair.outside, "gwb1");
    link.backend.signal(Signal::STOP);
    let on_its_way = |link: &Link| number(&link.site.frontend_report()["stats"]["tx_packets"]);
    let already = on_its_way(link);
    for datagram in sent {
        here.send(datagram).expect("to send");
    }
    wait_for("a burst on the ring", PROMPT, || {
        (on_its_way(link) >= already + sent.len() as u64).then_some(())
    });
    link.backend.signal(Signal::CONT);
    expect(&there, sent, &format!("{guest} to {host}"));
    (count(link, "tx_merged") - merged, received(&link.pair.outside, "gwb1") - before)
}

const HOSTS: [(&str, &str); 2] = [("10.99.1.1", "10.99.1.2"), ("fd99:1::1", "fd99:1::2")];

fn from_guest(backend: &[&str], frontend: &[&str], merges: bool) {
    let mut link = Link::start_with(1500, &[&["--workers", "1"], backend].concat(), frontend);
    let what = format!("{backend:?} {frontend:?}");
    if merges && !has_uso(&link) {
        return;
    }
    // Checksums are left to the host, or finished by the guest.
    for offloads in [true, false] {
        link.pair.inside.set_offloads("gwf1", offloads);
        for (host, guest) in HOSTS {
            for (n, lengths) in bursts().iter().enumerate() {
                let sent = datagrams(lengths);
                let (merged, frames) = burst_of_guest(&mut link, host, guest, &sent);
                say(format!(
                    "{what}, offloads {offloads}, to {host}, burst {n}: {merged} of {COUNT} \
                     merged, {frames} frames"
                ));
                if !merges {
                    assert_eq!(merged, 0, "{what}");
                } else if n < 3 {
                    assert!(merged >= APART && frames < 10 + APART, "{what}: {merged}, {frames}");
                } else {
                    // Of eight of these, three and one behind them make a frame, and two others.
                    assert!(merged >= APART / 2, "{what}: {merged}");
                }
            }
        }
        check(&link, &what);
    }
    link.frontend.terminate();
    link.backend.terminate();
}

#[test]
fn datagrams_of_a_guest_reach_the_interface_as_large_frames() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    for policy in ["copy", "persistent", "staging"] {
        from_guest(&[], &["--policy", policy], true);
    }
}

#[test]
fn datagrams_of_a_guest_cross_one_by_one_if_nothing_is_merged() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    from_guest(&["--merge", "off"], &["--merge", "off"], false);
    from_guest(&["--checksum", "full"], &[], false);
    from_guest(&["--policy", "map"], &[], false);
}

fn to_guest(backend: &[&str], frontend: &[&str], cuts: bool) {
    let backend = [&["--workers", "1"], backend].concat();
    let mut link = Link::start_with(1500, &backend, frontend);
    let what = format!("{backend:?} {frontend:?}");
    if cuts && !has_uso(&link) {
        return;
    }
    for (host, guest) in HOSTS {
        for (size, last) in [(18, 18), (1000, 300), (1, 1), (1300, 1)] {
            let mut lengths = vec![size; COUNT];
            lengths[COUNT - 1] = last;
            let sent = datagrams(&lengths);
            let here = socket(&link.pair.inside, address(guest));
            let before = (count(&link, "rx_cut"), count(&link, "rx_packets"));
            let frontend = received(&link.pair.inside, "gwf1");
            // The frontend finds all of it on its ring, and merges it again.
            link.frontend.signal(Signal::STOP);
            let numbers = [PORT as usize, size, COUNT, last];
            datagrams::send_segmented(&link.pair.outside, guest, numbers);
            wait_for("the datagrams on the ring", PROMPT, || {
                (count(&link, "rx_packets") >= before.1 + COUNT as u64).then_some(())
            });
            link.frontend.signal(Signal::CONT);
            expect(&here, &sent, &format!("{what}: {host} to {guest}"));
            let cut = count(&link, "rx_cut") - before.0;
            let frames = received(&link.pair.inside, "gwf1") - frontend;
            say(format!("{what}, {size} bytes to {guest}: {cut} cut, {frames} frames"));
            assert_eq!(cut, if cuts { COUNT as u64 } else { 0 }, "{what}");
        }
    }
    check(&link, &what);
    link.frontend.terminate();
    link.backend.terminate();
}

#[test]
fn large_frames_of_the_host_reach_a_guest_as_datagrams() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    for policy in ["copy", "staging"] {
        to_guest(&[], &["--policy", policy], true);
    }
    to_guest(&[], &["--gso", "off"], true);
    // The kernel cuts them for these.
    to_guest(&["--merge", "off"], &[], false);
    to_guest(&["--checksum", "full"], &[], false);
}
