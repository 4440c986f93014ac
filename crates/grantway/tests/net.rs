//! Real traffic between two network namespaces that only a vif joins: gwb1,
//! the backend, the frontend, gwf1.
//!
//! Needs root, /dev/net/tun, `ip`, `ethtool`, `nstat`, `ping` and `iperf3`;
//! where one is missing, says `skipped` and passes.

mod common;

use common::link::Link;
use common::network::{Transfer, available};
use common::site::MAC;
use common::{alone, say};
use std::time::Instant;

const PROGRAMS: [&str; 5] = ["ip", "ethtool", "nstat", "ping", "iperf3"];

/// The arguments of a run: so much to send, at a pace that UDP needs.
fn run_of(udp: bool, to: &str, reverse: bool) -> Vec<&str> {
    let mut args = vec!["-c", to];
    args.extend(if udp { ["-u", "-b", "200M", "-n", "20M"].iter() } else { ["-n", "300M"].iter() });
    args.extend(["-R"].into_iter().filter(|_| reverse));
    args
}

#[test]
fn iperf3_and_pings_of_every_kind_cross_without_an_error() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let start = Instant::now();
    // The MTU that the toolstack gave is the interfaces' at both ends.
    let mut link = Link::start(9000, 1);
    assert_eq!(link.pair.outside.mtu("gwb1"), 9000);
    assert_eq!(link.pair.inside.mtu("gwf1"), 9000);
    let guest = link.pair.inside.interface("gwf1").expect("gwf1");
    assert_eq!(guest["address"], MAC);
    say(format!("set up within {:.1} s", start.elapsed().as_secs_f64()));

    for (to, count, size) in [("fd99:1::1", 200, 8000), ("10.99.1.1", 200, 8000)] {
        let (answered, text) = link.pair.inside.ping(to, count, size, "0");
        assert_eq!(answered, count, "{size} bytes to {to}: {text}");
    }
    for mtu in [9000, 1500] {
        link.set_mtu(mtu);
        for offloads in [true, false] {
            link.set_offloads(offloads);
            let what = format!("MTU {mtu}, offloads {}", if offloads { "on" } else { "off" });
            let ways = ["10.99.1.1", "fd99:1::1"].map(|to| [(to, false), (to, true)]).concat();
            for &(to, reverse) in &ways {
                let transfer = link.iperf(&run_of(false, to, reverse));
                tell(&what, false, to, reverse, transfer);
            }
            let runs: Vec<_> = ways.iter().map(|&(to, back)| run_of(true, to, back)).collect();
            for (transfer, &(to, reverse)) in link.iperf_at_once(&runs).into_iter().zip(&ways) {
                tell(&what, true, to, reverse, transfer);
            }
            link.check_sound(&what);
        }
    }
    for (from, to, pace) in [
        (&link.pair.inside, "10.99.1.1", "0.002"),
        (&link.pair.outside, "10.99.1.2", "0"),
        (&link.pair.inside, "fd99:1::1", "0"),
    ] {
        let (answered, text) = from.ping(to, 1000, 56, pace);
        assert_eq!(answered, 1000, "1000 pings to {to}, {pace} s apart: {text}");
    }
    link.check_sound("the pings");
    link.frontend.terminate();
    link.backend.terminate();
    say(format!("all of it within {:.1} s", start.elapsed().as_secs_f64()));
}

#[test]
fn packets_of_the_guest_are_mapped() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let backend = ["--workers", "2", "--policy", "map"];
    let mut link = Link::start_with(9000, &backend, &["--queues", "2"]);
    for to in ["10.99.1.1", "fd99:1::1"] {
        // From a frame below Ethernet's minimum to one that is all fragments.
        for size in [0, 18, 80, 86, 87, 1400, 4000, 8952, 30_000, 65_000] {
            let (answered, text) = link.pair.inside.ping(to, 10, size, "0.002");
            assert_eq!(answered, 10, "{size} bytes to {to}: {text}");
        }
    }
    for offloads in [true, false] {
        link.set_offloads(offloads);
        let what = format!("map, offloads {}", if offloads { "on" } else { "off" });
        for (udp, to) in [(false, "10.99.1.1"), (false, "fd99:1::1"), (true, "10.99.1.1")] {
            let transfer = link.iperf(&run_of(udp, to, false));
            tell(&what, udp, to, false, transfer);
        }
        link.check_sound(&what);
    }
    let vif = link.site.vif_report();
    assert_eq!((vif["policy"].as_str(), vif["mapped"].as_u64()), (Some("map"), Some(0)));
    let count = |key: &str| vif["stats"][key].as_u64().unwrap_or(0);
    let (hits, misses) = (count("mapped_hits"), count("mapped_misses"));
    say(format!("map: {hits} stretches read in place, {misses} copied"));
    assert!(hits > 1000 && misses == 0, "{vif:#}");
    let listed = link.site.list();
    assert_eq!(listed["vifs"][0]["policy"], "map", "{listed:#}");
    link.frontend.terminate();
    link.backend.terminate();
}

#[test]
fn iperf3_crosses_by_one_two_and_four_queues() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    for queues in [1, 2, 4] {
        let mut link = Link::start(1500, queues);
        for offloads in [true, false].into_iter().take(if queues == 2 { 2 } else { 1 }) {
            link.set_offloads(offloads);
            let switch = if offloads { "on" } else { "off" };
            let what = format!("{queues} queues, offloads {switch}");
            for udp in [false, true] {
                for to in ["10.99.1.1", "fd99:1::1"].into_iter().take(if udp { 1 } else { 2 }) {
                    for reverse in [false, true] {
                        let mut args = run_of(udp, to, reverse);
                        // Flows enough to find every queue.
                        args.extend(["-P", if udp { "4" } else { "16" }]);
                        let transfer = link.iperf(&args);
                        tell(&what, udp, to, reverse, transfer);
                    }
                }
            }
            link.check_sound(&what);
        }
        let report = link.site.frontend_report();
        let found = report["queues"].as_array().expect("queues");
        assert_eq!(found.len(), queues, "{report:#}");
        for key in ["tx_packets", "rx_packets", "tx_bytes", "rx_bytes"] {
            let each = found.iter().map(|queue| queue["stats"][key].as_u64().unwrap_or(0));
            let each: Vec<u64> = each.collect();
            assert_eq!(report["stats"][key].as_u64(), Some(each.iter().sum()), "{key}: {each:?}");
            if key.ends_with("packets") {
                say(format!("{queues} queues: {key} {each:?}"));
                assert!(each.iter().all(|&n| n > 0), "{key}: a queue carried nothing: {each:?}");
            }
        }
        link.frontend.terminate();
        link.backend.terminate();
    }
}

fn tell(what: &str, udp: bool, to: &str, reverse: bool, transfer: Transfer) {
    let protocol = if udp { "UDP" } else { "TCP" };
    let way = if reverse { "to the guest  " } else { "from the guest" };
    let mut line = format!("{what}: {protocol} {way} {to}: {:.3} Gbit/s", transfer.gbps);
    match (udp, transfer.lost, transfer.retransmits) {
        (true, Some(lost), _) => line += &format!(", {lost:.2} % lost"),
        (false, _, Some(again)) => line += &format!(", {again} sent again"),
        _ => {}
    }
    say(line);
}

#[test]
fn tcp_with_offloads_crosses_in_large_frames_and_few_signals() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    const BYTES: u64 = 256 << 20;
    // Linux has up to 4 MiB in a socket that sends, and 6 MiB in one that receives.
    const SOCKETS: u64 = 16 << 20;
    let mut link = Link::start(1500, 1);
    // Large frames that the frontend's TAP wrote to the vif's pages, or was written from them.
    let in_pages = |link: &Link, key: &str| {
        let report = link.site.frontend_report();
        report["queues"][0]["in_pages"][key].as_u64().expect("a count")
    };
    for (reverse, way) in [(false, "tx"), (true, "rx")] {
        let before = link.site.vif_report();
        let keys = ["frames", "bytes"].map(|key| format!("{way}_{key}"));
        let lent_before = keys.each_ref().map(|key| in_pages(&link, key));
        let mut args = vec!["-c", "10.99.1.1", "-n", "256M"];
        args.extend(["-R"].into_iter().filter(|_| reverse));
        link.iperf(&args);
        let after = link.site.vif_report();
        let grew = |key: &str| {
            let of = |report: &serde_json::Value| report["stats"][key].as_u64().expect("a count");
            of(&after) - of(&before)
        };
        let [bytes, packets, slots] =
            ["bytes", "packets", "slots"].map(|key| grew(&format!("{way}_{key}")));
        say(format!("{way}: {bytes} bytes in {packets} packets of {slots} slots"));
        // Each byte crosses once, but for what TCP sends again. A packet of the MTU has at most
        // 1514 bytes: so few packets are possible only with frames of several segments. Linux
        // makes them of two segments at least, and of how many more depends on the rate.
        // iperf3 counts what it wrote, and does not wait for what both sockets still hold.
        assert!(bytes + SOCKETS >= BYTES, "{way}: {bytes} bytes");
        assert!(packets * 1514 < bytes, "{way}: {packets} packets for {bytes} bytes");
        assert!(slots >= bytes / 4096 && slots <= bytes / 4096 + 2 * packets, "{way}: {slots}");
        let lent_after = keys.each_ref().map(|key| in_pages(&link, key));
        let [lent, lent_bytes] = [0, 1].map(|n| lent_after[n] - lent_before[n]);
        say(format!("{way}: {lent_bytes} bytes in {lent} frames without a copy"));
        let longest_copied = if reverse { 8192 } else { 2048 };
        assert!(lent > 0 && lent_bytes > lent * longest_copied, "{way}: {lent} frames");
        // No more than one for what each end put on either ring.
        let all = grew("tx_packets") + grew("rx_packets");
        let signals = grew("notifies") + grew("interrupts");
        assert!(signals <= 2 * all, "{way}: {signals} signals for {all} packets both ways");
    }
    link.check_sound("both transfers");
}
