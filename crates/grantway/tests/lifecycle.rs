//! A vif's life: attached, taken up, connected, closed in order, attached
//! again; and parts that start in any order, end when asked to, and start
//! again. The TAPs' part needs root, /dev/net/tun, `ip` and `ping`.

mod common;

use common::network::{Namespace, Pair, available};
use common::part::Part;
use common::site::{MAC, Site};
use common::{PROMPT, alone, say, succeed, wait_for};
use grantway_backend::policy::Policy;
use grantway_command::footprint::Footprint;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// Checks that the host holds nothing of domain 1 beyond the domain itself.
fn check_clean(site: &Site, when: &str) {
    let list = site.list();
    assert_eq!(list["vifs"], Value::Array(Vec::new()), "{when}");
    let guest = site.wait(&format!("{when}: a clean guest"), PROMPT, || {
        let guest = site.domain(1);
        guest["pid"].is_null().then_some(guest)
    });
    for key in ["grants", "grants_held", "ports_unbound", "ports_bound", "store_watches"] {
        assert_eq!(guest[key], 0, "{when}: {key}: {guest:#}");
    }
    assert_eq!(guest["leases"], Value::Array(Vec::new()), "{when}: {guest:#}");
    let server = site.domain(0);
    for key in ["ports_unbound", "ports_bound", "grants"] {
        assert_eq!(server[key], 0, "{when}: {key}: {server:#}");
    }
}

/// Returns the most pages of a connection that the backend keeps mapped: two rings and the control
/// ring, and by staging all buffers of a busy queue.
fn mapped_most(policy: Policy) -> u64 {
    let vif = Footprint::new(policy, 1, u64::MAX);
    vif.rings() + 1 + if policy == Policy::Staging { vif.buffers() } else { 0 }
}

/// Checks that a frontend whose vif went holds nothing but its watches. The backend kept at most so
/// many pages of its connection mapped.
fn check_released(site: &Site, when: &str, mapped: u64) {
    assert_eq!(site.list()["vifs"], Value::Array(Vec::new()), "{when}");
    let guest = site.domain(1);
    for key in ["grants_held", "ports_unbound", "ports_bound"] {
        assert_eq!(guest[key], 0, "{when}: {key}: {guest:#}");
    }
    // Grants of pages that the backend unmapped a moment later are taken back with the next
    // connection's.
    let left = guest["grants"].as_u64();
    assert!(left.is_some_and(|grants| grants <= mapped), "{when}, {mapped} mapped: {guest:#}");
    let server = site.domain(0);
    for key in ["ports_unbound", "ports_bound", "grants"] {
        assert_eq!(server[key], 0, "{when}: {key}: {server:#}");
    }
}

/// A vif's states in the list: the backend's and the frontend's.
fn states(site: &Site) -> (String, String) {
    let list = site.list();
    let state = |key: &str| list["vifs"][0][key].as_str().unwrap_or("none").to_owned();
    (state("backend_state"), state("frontend_state"))
}

fn wait_states(site: &Site, backend: &str, frontend: &str) {
    let mut last = (String::new(), String::new());
    let what = format!("the states {backend} and {frontend}");
    let since = Instant::now();
    while since.elapsed() < PROMPT {
        last = states(site);
        if last == (backend.to_owned(), frontend.to_owned()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("waited for {what}, and they are {last:?}");
}

/// The numbered frames that the backend's checker saw, none of them wrong.
fn checked(site: &Site) -> u64 {
    let checked = site.vif_report()["port"]["checked"].clone();
    for key in ["duplicated", "reordered", "corrupt", "foreign"] {
        assert_eq!(checked[key], 0, "{key}: {checked}");
    }
    checked["received"].as_u64().unwrap_or(0)
}

/// Waits until more frames arrive than have so far.
fn wait_flow(site: &Site, what: &str) {
    let before = checked(site);
    site.wait(&format!("frames {what}"), PROMPT, || (checked(site) > before + 100).then_some(()));
}

/// A guest that sends without end, at a rate that leaves processors free.
const STREAM: &str = "generator:size=256,rate=20k,burst=8";

fn sender(site: &Site) -> Part {
    site.frontend(None, &["--port", STREAM])
}

/// Starts a frontend that waits until the other end has closed, for as long as needed.
fn patient_sender(site: &Site) -> Part {
    let args = ["--domain", "1", "--devid", "0", "--port", STREAM];
    Part::start("frontend", patient(site, "frontend", &args))
}

fn patient(site: &Site, part: &str, args: &[&str]) -> Command {
    let mut command = site.command(None, part, args);
    command.env("GRANTWAY_FAREWELL", "120");
    command
}

#[test]
fn a_vif_with_taps_is_attached_detached_under_traffic_and_attached_again() {
    let _alone = alone();
    if !available(&["ip", "ping"]) {
        return;
    }
    let pair = Pair::new();
    let site = Site::start();
    let mut backend = site.backend(Some(&pair.outside), &[]);
    let mut frontend = None;
    for round in 1..=3 {
        site.attach(&format!("mac={MAC},vifname=gwb1"));
        // The first attach makes the frontend, which follows each later one.
        let frontend = frontend.get_or_insert_with(|| {
            wait_states(&site, "InitWait", "Initialising");
            site.frontend(Some(&pair.inside), &["--tap", "gwf1"])
        });
        wait_states(&site, "Connected", "Connected");
        assert!(pair.outside.interface("gwb1").is_some(), "round {round}: no gwb1");
        // The frontend's TAP keeps what it has.
        match round {
            1 => pair.address(),
            _ => pair.outside.address("gwb1", 1, 1),
        }
        pair.inside.wait_ping("10.99.1.1");
        let flood = pair.inside.command_with("ping", &["-f", "-q", "-w", "3600", "10.99.1.1"]);
        let flood = Part::spawn("ping -f", flood);
        let seen = || site.vif_report()["port"]["sent"].as_u64().unwrap_or(0);
        let before = seen();
        site.wait("the flood", PROMPT, || (seen() > before + 100).then_some(()));
        site.detached();
        wait_detached(frontend, round);
        wait_for(&format!("round {round}: gwb1 to go"), PROMPT, || {
            pair.outside.interface("gwb1").is_none().then_some(())
        });
        drop(flood);
        check_released(&site, "after the detach", mapped_most(Policy::Staging));
        assert!(backend.is_alive());
    }
    assert!(pair.inside.interface("gwf1").is_some(), "the frontend's TAP outlives a detach");
    frontend.unwrap().terminate();
    assert!(pair.inside.interface("gwf1").is_none(), "the frontend's TAP goes with it");
    backend.terminate();
}

/// Waits until the frontend has told of this many detaches.
fn wait_detached(frontend: &Part, times: usize) {
    wait_for(&format!("detach {times} to be told"), PROMPT, || {
        (frontend.said().matches(DETACHED).count() == times).then_some(())
    });
}

/// Words of a frontend whose vif was detached.
const DETACHED: &str = "the vif was detached; waiting until it is attached again";

#[test]
fn a_detach_under_a_full_stream_ends_in_order() {
    let _alone = alone();
    let site = Site::start();
    let mut backend = site.backend(None, &["--port", "check"]);
    site.attach(&format!("mac={MAC}"));
    for policy in [Policy::Copy, Policy::Staging] {
        let args = ["--port", "generator:size=1496", "--policy", policy.as_str()];
        let mut frontend = site.frontend(None, &args);
        for round in 1..=3 {
            site.wait_connected();
            wait_flow(&site, "before the detach");
            site.wait("the policy", PROMPT, || {
                (site.frontend_report()["policy"] == policy.as_str()).then_some(())
            });
            site.detached();
            wait_detached(&frontend, round);
            check_released(&site, "after the detach", mapped_most(policy));
            site.attach(&format!("mac={MAC}"));
        }
        site.wait_connected();
        wait_flow(&site, "after the last attach");
        frontend.terminate();
    }
    site.detached();
    backend.terminate();
    check_clean(&site, "after the backend's end");
}

#[test]
fn a_detach_in_the_middle_of_connecting_ends_in_order() {
    let _alone = alone();
    let site = Site::start();
    let mut backend = site.backend(None, &["--port", "check"]);
    let mut connected = 0;
    for millis in 0..24 {
        site.attach(&format!("mac={MAC}"));
        let args = ["--domain", "1", "--devid", "0", "--port", "null", "--queues", "4"];
        let mut frontend = Part::spawn("frontend", site.command(None, "frontend", &args));
        std::thread::sleep(Duration::from_millis(millis));
        site.detached();
        // It waits, or found no vif when it looked.
        let what = format!("detached after {millis} ms: the frontend to see it");
        let waits = wait_for(&what, PROMPT, || match frontend.said().contains(DETACHED) {
            true => Some(true),
            false => (!frontend.is_alive()).then_some(false),
        });
        if waits {
            frontend.terminate();
        } else {
            let status = frontend.wait_end(PROMPT);
            assert_eq!(status.code(), Some(1), "after {millis} ms: {status}");
            frontend.check_last_line("grantway frontend: ", "attach");
        }
        connected += u32::from(frontend.said().contains("link up"));
        check_clean(&site, &format!("detached after {millis} ms"));
    }
    say(format!("24 detaches within 24 ms of a frontend's start; {connected} found it connected"));
    site.attach(&format!("mac={MAC}"));
    let mut frontend = sender(&site);
    site.wait_connected();
    wait_flow(&site, "after the detaches");
    frontend.terminate();
    backend.terminate();
}

#[test]
fn parts_start_in_any_order() {
    let _alone = alone();
    // Frontend, backend; the vif attached before both.
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let mut frontend = sender(&site);
    std::thread::sleep(Duration::from_millis(200));
    assert!(frontend.is_alive());
    let mut backend = site.backend(None, &["--port", "check"]);
    site.wait_connected();
    wait_flow(&site, "after frontend, backend");
    frontend.terminate();
    backend.terminate();

    // Backend, vif, frontend.
    let site = Site::start();
    let mut backend = site.backend(None, &["--port", "check"]);
    site.attach(&format!("mac={MAC}"));
    wait_states(&site, "InitWait", "Initialising");
    let mut frontend = sender(&site);
    site.wait_connected();
    wait_flow(&site, "after backend, vif, frontend");
    frontend.terminate();
    backend.terminate();
}

#[test]
fn a_frontend_that_was_told_to_end_starts_again() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let mut backend = site.backend(None, &["--port", "check"]);
    for round in 1..=3 {
        let mut frontend = patient_sender(&site);
        site.wait_connected();
        // Each run of the generator counts from 0 again: what comes is enough.
        let seen = || site.vif_report()["stats"]["tx_packets"].as_u64().unwrap_or(0);
        let before = seen();
        site.wait("frames", PROMPT, || (seen() > before + 100).then_some(()));
        match round {
            1 => frontend.terminate(),
            _ => frontend.interrupt(),
        }
        wait_states(&site, "Closed", "Closed");
        let guest = site.domain(1);
        for key in ["grants", "ports_unbound", "ports_bound", "grants_held"] {
            assert_eq!(guest[key], 0, "round {round}: {key}: {guest:#}");
        }
    }
    backend.terminate();
}

#[test]
fn a_backend_that_was_told_to_end_is_succeeded() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let mut frontend = sender(&site);
    for round in 1..=4 {
        let backend = patient(&site, "backend", &["--port", "check"]);
        let mut backend = Part::start("backend", backend);
        site.wait_connected();
        wait_flow(&site, &format!("in round {round}"));
        match round % 2 {
            0 => backend.terminate(),
            _ => backend.interrupt(),
        }
        assert!(frontend.is_alive(), "round {round}: the frontend ended, too");
        site.check_no_trace(backend.pid());
    }
    frontend.terminate();
}

#[test]
fn the_toolstacks_trust_in_the_backend_is_shown() {
    let _alone = alone();
    let site = Site::start();
    let mut backend = site.backend(None, &["--port", "null"]);
    for (word, trusted, said) in
        [("", true, "trusted"), (",trusted", true, "trusted"), (",untrusted", false, "not trusted")]
    {
        site.attach(&format!("mac={MAC}{word}"));
        let mut frontend = site.frontend(None, &["--port", "null"]);
        site.wait_connected();
        assert_eq!(site.frontend_report()["trusted"], trusted, "{word}");
        let line = format!("link up, policy staging, backend {said}");
        wait_for(&line, PROMPT, || frontend.said().contains(&line).then_some(()));
        frontend.terminate();
        site.detached();
    }
    backend.terminate();
}

#[test]
fn full_checksums_are_of_the_backend_or_of_a_vif_and_are_shown() {
    let _alone = alone();
    let site = Site::start();
    for (option, mark, shown) in [
        (&[][..], "", "offload"),
        (&[], ",checksum=full", "full"),
        (&["--checksum", "full"], "", "full"),
        (&["--checksum", "full"], ",checksum=offload", "offload"),
    ] {
        let mut backend = site.backend(None, &[&["--port", "null"], option].concat());
        site.attach(&format!("mac={MAC}{mark}"));
        let mut frontend = site.frontend(None, &["--port", "null"]);
        site.wait_connected();
        assert_eq!(site.vif_report()["checksum"], shown, "{option:?} {mark}");
        let top =
            succeed(site.command(None, "top", &["--json", "--once", "--interval", "0.1"]), PROMPT);
        let named = top.contains(r#""checksum":"full""#);
        assert_eq!(named, shown == "full", "{option:?} {mark}: {top}");
        frontend.terminate();
        site.detached();
        backend.terminate();
    }
}

#[test]
fn one_vif_more_or_less_does_not_concern_another() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let mut backend = site.backend(None, &["--port", "check"]);
    let mut frontend = sender(&site);
    site.wait_connected();
    for domain in ["2", "3"] {
        let of = |name: &str, args: &[&str]| {
            site.command(None, name, &[&["--domain", domain], args].concat())
        };
        common::succeed(of("attach", &["mac=00:16:3e:00:00:02"]), PROMPT);
        let other = of("frontend", &["--port", "generator:size=64,rate=5k"]);
        let mut other = Part::start("the other frontend", other);
        site.wait("the other vif", PROMPT, || {
            let vifs = site.backend_report()["vifs"].take();
            let vif = vifs.as_array()?.iter().find(|v| v["vif"] == format!("vif{domain}.0"))?;
            (vif["port"]["checked"]["received"].as_u64()? > 100).then_some(())
        });
        match domain {
            "2" => other.kill(),
            _ => other.terminate(),
        }
        common::succeed(of("detach", &["--devid", "0"]), PROMPT);
        wait_flow(&site, "of the first vif");
    }
    let lost = site.vif_report()["port"]["checked"]["lost"].clone();
    assert_eq!(lost, 0, "frames of the first vif");
    frontend.terminate();
    backend.terminate();
}

#[test]
fn idle_ends_sleep() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let mut backend = site.backend(None, &["--port", "null"]);
    let mut frontend = site.frontend(None, &["--port", "null"]);
    site.wait_connected();
    for (name, pid) in
        [("backend", backend.pid()), ("frontend", frontend.pid()), ("host", site.host.pid())]
    {
        // A thread that sleeps has no processor time at all; one that looks again and again
        // has some, however slow the machine is.
        let what = format!("all threads of the idle {name} to sleep for a second");
        wait_for(&what, PROMPT, || {
            let before = processor_time(pid);
            std::thread::sleep(Duration::from_secs(1));
            (processor_time(pid) == before).then_some(())
        });
    }
    frontend.terminate();
    backend.terminate();
}

/// Processor time of each thread of a process, in nanoseconds, by thread.
fn processor_time(pid: u32) -> Vec<(String, u64)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a running process");
    let time = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        Some((name, text.split_whitespace().next()?.parse().ok()?))
    };
    let mut times: Vec<_> = threads.flatten().filter_map(|thread| time(thread.path())).collect();
    times.sort();
    times
}

#[test]
fn a_tap_has_the_address_of_netbacks_interfaces_unless_told_otherwise() {
    let _alone = alone();
    if !available(&["ip"]) {
        return;
    }
    let space = Namespace::new("m");
    let site = Site::start();
    site.attach(&format!("mac={MAC},vifname=gwb1"));
    // A backend says that it serves before it has taken up every vif.
    let address = || {
        site.wait("the vif's TAP", PROMPT, || {
            let report = site.backend_report();
            report["vifs"][0]["port"]["name"].is_string().then_some(())
        });
        space.interface("gwb1").expect("gwb1")["address"].clone()
    };
    let others = "00:16:3e:11:22:33";
    let set = |address: &str| space.ip(&["link", "set", "dev", "gwb1", "address", address]);

    let mut backend = site.backend(Some(&space), &[]);
    assert_eq!(address(), "fe:ff:ff:ff:ff:ff");
    backend.kill();
    let mut backend = site.backend(Some(&space), &[]);
    assert_eq!(address(), "fe:ff:ff:ff:ff:ff", "after a takeover");
    backend.kill();
    // The guest may know an address that a script gave: a takeover leaves it.
    set(others);
    let mut backend = site.backend(Some(&space), &[]);
    assert_eq!(address(), others);
    site.detached();
    backend.terminate();

    for (mac, expected) in [("02:00:00:00:00:07", Some("02:00:00:00:00:07")), ("keep", None)] {
        site.attach(&format!("mac={MAC},vifname=gwb1"));
        let mut backend = site.backend(Some(&space), &["--tap-mac", mac]);
        let found = address();
        assert!(expected.is_none_or(|expected| found == expected), "{mac}: {found}");
        assert_ne!(found, "fe:ff:ff:ff:ff:ff", "{mac}");
        site.detached();
        backend.terminate();
    }
}
