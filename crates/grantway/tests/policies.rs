//! Real traffic between network namespaces under every buffer policy, with several
//! of them on one backend, and while they change: nothing is lost that need not be,
//! and the tables return to where they were.
//!
//! Needs root, /dev/net/tun, `ip`, `ethtool`, `nstat`, `ping` and `iperf3`; where
//! one is missing, says `skipped` and passes.

mod common;

use common::link::Link;
use common::network::{Pair, available};
use common::part::Part;
use common::site::Site;
use common::stream::Stream;
use common::{PROMPT, alone, grantway_with, say, succeed};
use grantway_backend::policy::Policy;
use serde_json::Value;
use std::time::Duration;

const PROGRAMS: [&str; 5] = ["ip", "ethtool", "nstat", "ping", "iperf3"];

/// Ports of the servers that a [`Stream`] has.
const STREAM: [u16; 2] = [5203, 5204];

/// Staged pages of a queue at rest. A busy one has more.
const PAGES: u64 = 272;
const BUSY: u64 = 400;

/// Returns the policy that a frontend asks for, to get this policy from a backend that offers it.
fn wish(kind: Policy) -> &'static str {
    match kind {
        Policy::Persistent | Policy::Staging => kind.as_str(),
        // It is the backend's alone.
        _ => "copy",
    }
}

/// Waits until the vif shows this policy, and has all pages of so many queues mapped that are
/// staged.
fn wait_policy(site: &Site, kind: &str, queues: u64) {
    let all = queues * PAGES..=queues * BUSY;
    site.wait(&format!("the policy {kind}"), PROMPT, || {
        let vif = site.vif_report();
        let mapped = queues == 0 || all.contains(&vif["mapped"].as_u64().unwrap_or(0));
        (vif["policy"] == kind && mapped).then_some(())
    });
}

/// Returns the entries of a domain in the host's tables.
fn held(domain: &Value) -> Vec<u64> {
    let keys = ["grants", "grants_held", "ports_unbound", "ports_bound"];
    keys.iter().map(|key| domain[key].as_u64().unwrap_or(0)).collect()
}

/// Returns the entries of a domain in the host's tables, without the further pages of busy queues.
/// A queue has 128 of them, or none.
fn held_at_rest(domain: &Value) -> Vec<u64> {
    held(domain).into_iter().map(|count| count % (BUSY - PAGES)).collect()
}

/// The frontend ends: nothing of its domain is in force or mapped.
fn leaves_nothing(link: &mut Link, what: &str) {
    link.frontend.terminate();
    let site = &link.site;
    site.wait(&format!("{what}: empty tables"), PROMPT, || {
        let left: u64 = held(&site.domain(1)).iter().sum();
        (left == 0 && site.vif_report()["mapped"] == 0).then_some(())
    });
}

/// All pings are answered.
#[track_caller]
fn pings(pair: &Pair, count: u32, what: &str) {
    for to in ["10.99.1.1", "fd99:1::1"] {
        let (answered, text) = pair.inside.ping(to, count, 1000, "0");
        assert_eq!(answered, count, "{what}: pings to {to}: {text}");
    }
}

#[test]
fn iperf3_crosses_under_each_policy() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    for kind in Policy::ALL {
        let name = kind.as_str();
        let backend = ["--workers", "2", "--policy", name];
        let mut link = Link::start_with(1500, &backend, &["--queues", "2", "--policy", wish(kind)]);
        wait_policy(&link.site, name, if kind == Policy::Staging { 2 } else { 0 });
        let mut told = String::new();
        for (what, args) in [
            ("TCP from the guest", &["-n", "100M", "-P", "4"][..]),
            ("TCP to it", &["-n", "100M", "-P", "4", "-R"]),
            ("UDP of 64 bytes both ways", &["-n", "640K", "-u", "-b", "5M", "-l", "64", "--bidir"]),
        ] {
            let transfer = link.iperf(&[&["-c", "10.99.1.1"], args].concat());
            told += &format!(", {what} {:.3} Gbit/s", transfer.gbps);
        }
        pings(&link.pair, 200, name);
        link.check_sound(name);
        let vif = link.site.vif_report();
        let (stats, mapped) = (&vif["stats"], vif["mapped"].as_u64().unwrap());
        assert_eq!(vif["policy"], name);
        assert!(mapped <= 4096, "{name}: {mapped} pages");
        match kind {
            Policy::Copy => assert_eq!(stats["mapped_hits"], 0, "{name}: {vif:#}"),
            Policy::Persistent => assert!(stats["mapped_hits"].as_u64() > Some(1000)),
            Policy::Staging => {
                assert!(stats["mapped_hits"].as_u64() > Some(1000));
                assert!((2 * PAGES..=2 * BUSY).contains(&mapped), "{mapped} pages");
            }
            #[allow(unreachable_patterns, reason = "a policy that needs no frontend's help")]
            _ => {}
        }
        say(format!("{name}: {mapped} pages mapped{told}"));
        leaves_nothing(&mut link, name);
        link.backend.terminate();
    }
}

/// A second vif of the same backend, of domain 2, with its TAP in the same place.
fn second(link: &Link, args: &[&str]) -> Part {
    let vif = ["--domain", "2", "mac=00:16:3e:00:00:02,vifname=gwb2"];
    succeed(link.site.command(None, "attach", &vif), PROMPT);
    let args = [&["--domain", "2", "--devid", "0", "--tap", "gwf2"], args].concat();
    let part =
        Part::start("frontend 2", link.site.command(Some(&link.pair.inside), "frontend", &args));
    link.site.wait("the second interface", PROMPT, || link.pair.outside.interface("gwb2"));
    link.pair.outside.address("gwb2", 2, 1);
    link.pair.inside.address("gwf2", 2, 2);
    link.pair.inside.wait_ping("10.99.2.1");
    part
}

#[test]
fn two_policies_on_two_vifs_of_one_backend() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let mut link = Link::start_with(1500, &["--workers", "2"], &["--policy", "staging"]);
    let mut other = second(&link, &["--policy", "persistent"]);
    wait_policy(&link.site, "staging", 1);
    // Both at once, each the other's neighbour on its worker.
    let mut beside = Stream::start(&link.pair.inside, "10.99.2.1", STREAM, &["-n", "400M"]);
    for reverse in [&[][..], &["-R"]] {
        link.iperf(&[&["-c", "10.99.1.1", "-n", "100M"], reverse].concat());
    }
    pings(&link.pair, 100, "two policies");
    beside.wait_end();
    let report = link.site.backend_report();
    let vifs = report["vifs"].as_array().expect("vifs");
    let policies: Vec<_> = vifs.iter().map(|vif| vif["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["staging", "persistent"]);
    for vif in vifs {
        assert!(vif["stats"]["mapped_hits"].as_u64() > Some(1000), "{vif:#}");
        assert!(vif["port"]["drops"].as_object().expect("drops").is_empty(), "{vif:#}");
    }
    // What one leaves is its own; the other goes on.
    other.terminate();
    let gone = || (held(&link.site.domain(2)).iter().sum::<u64>() == 0).then_some(());
    link.site.wait("nothing of domain 2", PROMPT, gone);
    wait_policy(&link.site, "staging", 1);
    pings(&link.pair, 100, "one is left");
    leaves_nothing(&mut link, "two policies");
    link.backend.terminate();
}

#[test]
fn policies_change_by_reconnecting_while_tcp_goes_on() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let mut link = Link::start_with(1500, &["--workers", "2"], &["--queues", "2"]);
    let long = ["-t", "3600", "-i", "0"];
    let mut stream = Stream::start(&link.pair.inside, "10.99.1.1", STREAM, &long);
    let (mut most, mut wish) = ("staging", "copy");
    let mut before = None;
    for (side, policy) in [
        ("frontend", "staging"),
        ("frontend", "persistent"),
        ("frontend", "staging"),
        ("backend", "copy"),
        ("backend", "persistent"),
        ("backend", "staging"),
        ("frontend", "copy"),
    ] {
        // It is to fall in full flight.
        std::thread::sleep(Duration::from_millis(100));
        if side == "frontend" {
            wish = policy;
            link.frontend.terminate();
            let args = ["--tap", "gwf1", "--queues", "2", "--policy", wish];
            link.frontend = link.site.frontend(Some(&link.pair.inside), &args);
            // Its interface went with it.
            link.pair.inside.address("gwf1", 1, 2);
        } else {
            // The same connection goes on, by what its successor allows.
            most = policy;
            link.backend.terminate();
            let args = ["--workers", "2", "--policy", most];
            link.backend = link.site.backend(Some(&link.pair.outside), &args);
        }
        link.site.wait_connected();
        link.pair.inside.wait_ping("10.99.1.1");
        let what = format!("{side} to {policy}");
        // What a connection has staged is there again once it may be.
        let agreed = match (most, wish) {
            // A connection keeps to what was agreed on when it began.
            ("copy", _) | (_, "copy") | ("persistent", "staging") => "copy",
            (_, wish) => wish,
        };
        wait_policy(&link.site, agreed, if agreed == "staging" { 2 } else { 0 });
        pings(&link.pair, 50, &what);
        // It has backed off for about as long as it was cut; were it cut again before
        // it goes on, it would wait for ever longer.
        let sent = || link.site.vif_report()["port"]["sent"].as_u64().unwrap_or(0);
        let from = sent();
        link.site.wait(&format!("{what}: the connection to go on"), PROMPT, || {
            (sent() > from + 1000).then_some(())
        });
        assert!(stream.is_alive(), "{what}: the connection was cut");
        // The same policy holds as much as it did the last time.
        let tables = held_at_rest(&link.site.domain(1));
        if (side, wish) == ("frontend", "staging") {
            let before = before.get_or_insert_with(|| tables.clone());
            assert_eq!(*before, tables, "{what}");
        }
    }
    stream.kill();
    leaves_nothing(&mut link, "the changes");
    link.backend.terminate();
}

#[test]
fn staging_comes_and_goes_on_some_queues_under_load() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let args = ["--queues", "2", "--policy", "staging"];
    let mut link = Link::start_with(1500, &["--workers", "2"], &args);
    wait_policy(&link.site, "staging", 2);
    let tables = held_at_rest(&link.site.domain(1));
    let path = link.site.path();
    let ctl = |args: &[&str]| {
        let args = [&["ctl", "--host", &path, "--domain", "1", "staging"], args].concat();
        succeed(grantway_with(&args), PROMPT)
    };
    let mapped = || link.site.vif_report()["mapped"].as_u64().unwrap();
    let long = ["-t", "3600", "-i", "0", "-b", "20M"];
    let mut stream = Stream::start(&link.pair.inside, "10.99.1.1", STREAM, &long);
    let (to, count) = ("10.99.1.1", 800);
    let pinger = std::thread::scope(|scope| {
        let pinger = scope.spawn(|| link.pair.inside.ping(to, count, 1000, "0.002"));
        for _ in 0..3 {
            for (args, expected) in [
                (&["remove", "9999", "--queue", "1"][..], PAGES..=BUSY),
                (&["remove", "200", "--queue", "0"], PAGES - 200..=BUSY - 200),
                (&["add", "100", "--queue", "1"], PAGES - 100..=BUSY - 100),
                (&["remove", "9999"], 0..=0),
                (&["add", "9999", "--queue", "0"], PAGES..=BUSY),
                (&["add", "9999"], 2 * PAGES..=2 * BUSY),
            ] {
                ctl(args);
                assert!(expected.contains(&mapped()), "{args:?}: {}", mapped());
                std::thread::sleep(Duration::from_millis(30));
            }
        }
        pinger.join().unwrap()
    });
    assert_eq!(pinger.0, count, "{}", pinger.1);
    assert!(stream.is_alive(), "the connection was cut");
    stream.kill();
    link.check_sound("staging that came and went");
    assert_eq!(held_at_rest(&link.site.domain(1)), tables, "as many pages are mapped as before");
    leaves_nothing(&mut link, "staging that came and went");
    link.backend.terminate();
}
