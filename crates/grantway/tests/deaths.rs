//! Parts that are killed, without a warning, under traffic: nothing hangs,
//! the host keeps nothing of them, and traffic flows again once the killed
//! part is started again, the others untouched.
//!
//! The kills under iperf3 need root, /dev/net/tun, `ip`, `ping` and `iperf3`;
//! where one is missing, they say `skipped` and pass.

mod common;

use common::network::{Pair, available};
use common::part::Part;
use common::site::{MAC, Site};
use common::stream::Stream;
use common::{PROMPT, alone, say};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;

const PROGRAMS: [&str; 3] = ["ip", "ping", "iperf3"];

/// Kills of each side.
const KILLS: usize = 5;

/// The side that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Backend,
    Frontend,
}

fn start_backend(site: &Site, pair: &Pair) -> Part {
    site.backend(Some(&pair.outside), &["--workers", "2"])
}

fn start_frontend(site: &Site, pair: &Pair) -> Part {
    site.frontend(Some(&pair.inside), &["--tap", "gwf1", "--queues", "2"])
}

#[test]
fn kills_of_either_end_under_iperf3_leave_nothing_behind() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let pair = Pair::new();
    let site = Site::start();
    site.attach(&format!("mac={MAC},vifname=gwb1"));
    let mut backend = start_backend(&site, &pair);
    let mut frontend = start_frontend(&site, &pair);
    pair.address();
    site.wait_connected();
    pair.inside.wait_ping("10.99.1.1");
    let _servers = [5201, 5202, 5203].map(|port| pair.outside.iperf_server(port));

    for side in [Side::Backend, Side::Frontend] {
        // Connections that are to live through all the kills. A server may still end the
        // connection of the side before.
        let mut stream =
            Stream::start(&pair.inside, "10.99.1.1", [5201, 5203], &["-t", "3600", "-i", "0"]);
        let before = sent(&site);
        site.wait("the connections to be taken", PROMPT, || {
            (stream.revive() && sent(&site) > before + 2000).then_some(())
        });
        for kill in 1..=KILLS {
            // It is to fall in full flight.
            wait_sent(&site, "the connection to flow", 2000);
            let (victim, other) = match side {
                Side::Backend => (&mut backend, &mut frontend),
                Side::Frontend => (&mut frontend, &mut backend),
            };
            let pid = victim.pid();
            victim.kill();
            site.check_no_trace(pid);
            check_tables(&site, side);
            for (namespace, name) in [(&pair.outside, "gwb1"), (&pair.inside, "gwf1")] {
                let shown = namespace.interface(name);
                let shown = shown.unwrap_or_else(|| panic!("kill {kill}: {name} went"));
                let text = shown.to_string();
                assert!(text.contains("10.99.1."), "kill {kill}: {name} lost its address: {text}");
                assert!(text.contains("fd99:1::"), "kill {kill}: {name} lost its address: {text}");
            }
            assert!(other.is_alive(), "kill {kill}: the other end ended, too");
            match side {
                Side::Backend => backend = start_backend(&site, &pair),
                Side::Frontend => frontend = start_frontend(&site, &pair),
            }
            site.wait_connected();
            pair.inside.wait_ping("10.99.1.1");
            let short = ["-c", "10.99.1.1", "-p", "5202", "-n", "1M"];
            let moved = pair.inside.iperf(&short, PROMPT);
            assert!(moved.gbps > 0.0);
        }
        // Old connections may have backed off for as long as they were cut.
        wait_sent(&site, "the old connections to go on", 2000);
        assert!(stream.is_alive(), "{side:?}: an old connection was cut");
        stream.kill();
        say(format!(
            "{KILLS} kills of the {side:?}: TCP connections both ways outlived all of them"
        ));
    }
    pair.check_checksums("the kills");
    frontend.terminate();
    backend.terminate();
}

/// Waits until the backend's port was given so many frames more.
fn wait_sent(site: &Site, what: &str, more: u64) {
    let before = sent(site);
    site.wait(what, PROMPT, || (sent(site) > before + more).then_some(()));
}

/// Frames that the backend's port was given.
fn sent(site: &Site) -> u64 {
    site.vif_report()["port"]["sent"].as_u64().unwrap_or(0)
}

/// Checks the tables of the host after one end died.
fn check_tables(site: &Site, side: Side) {
    let guest = site.domain(1);
    match side {
        Side::Frontend => {
            for key in ["grants", "grants_held", "ports_unbound", "ports_bound"] {
                assert_eq!(guest[key], 0, "a dead guest's {key}: {guest:#}");
            }
            assert!(guest["pid"].is_null(), "a dead guest's process: {guest:#}");
        }
        Side::Backend => {
            assert_eq!(guest["ports_bound"], 0, "bound to a dead backend: {guest:#}");
            assert_eq!(guest["grants_held"], 0, "held by a dead backend: {guest:#}");
            assert_eq!(guest["leases"].as_array().map(Vec::len), Some(0), "{guest:#}");
            let server = site.domain(0);
            for key in ["ports_unbound", "ports_bound", "store_watches", "store_transactions"] {
                assert_eq!(server[key], 0, "a dead backend's {key}: {server:#}");
            }
        }
    }
}

#[test]
fn a_worker_that_panics_ends_the_backend_and_its_successor_goes_on() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let mut backend = site.backend(None, &["--port", "echo", "--workers", "2"]);
    let mut frontend = site.frontend(None, &["--port", "generator:size=64"]);
    site.wait_connected();
    wait_sent(&site, "frames", 100);
    backend.hush();
    backend.signal(Signal::USR1);
    let status = backend.wait_end(PROMPT);
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
    backend.wait_said("panic requested by SIGUSR1", PROMPT);
    let mut backend = site.backend(None, &["--port", "echo"]);
    wait_sent(&site, "frames after it", 100);
    assert!(frontend.is_alive(), "the guest ended, too");
    frontend.terminate();
    backend.terminate();
}

#[test]
fn a_killed_host_ends_every_part_with_one_line() {
    let _alone = alone();
    for busy in [false, true] {
        let mut site = Site::start();
        site.attach(&format!("mac={MAC}"));
        let (behind, within) = if busy { ("check", "generator:size=64") } else { ("null", "null") };
        let mut backend = site.backend(None, &["--port", behind]);
        let mut frontend = site.frontend(None, &["--port", within]);
        site.wait_connected();
        // Their words come by a pipe.
        backend.wait_said("vif1.0: Connected\n", PROMPT);
        frontend.wait_said("backend trusted\n", PROMPT);
        backend.hush();
        frontend.hush();
        site.host.kill();
        for (name, part) in [("backend", &mut backend), ("frontend", &mut frontend)] {
            let status = part.wait_end(PROMPT);
            assert_eq!(status.code(), Some(1), "{name}, busy {busy}: {status}");
            let said = part.said();
            assert_eq!(said.lines().count(), 1, "{name}, busy {busy}: one line, not\n{said}");
            let prefix = format!("grantway {name}: ");
            assert!(
                said.starts_with(&prefix) && said.contains("gone; start it again"),
                "{name}: {said}"
            );
        }
    }
}

#[test]
fn a_host_started_again_in_the_same_folder_serves() {
    let _alone = alone();
    let mut site = Site::start();
    site.attach(&format!("mac={MAC}"));
    site.host.kill();
    let mut command = common::grantway();
    command.arg("host").arg("--dir").arg(site.dir());
    site.host = Part::start("host", command);
    site.attach(&format!("mac={MAC}"));
    let mut backend = site.backend(None, &["--port", "check"]);
    let mut frontend = site.frontend(None, &["--port", "generator:size=64,count=1000"]);
    site.wait("1000 frames", PROMPT, || {
        (site.vif_report()["port"]["checked"]["received"] == 1000).then_some(())
    });
    frontend.terminate();
    backend.terminate();
    site.host.terminate();
}

#[test]
fn ends_killed_together_come_back_without_the_host_noticing() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    for round in 1..=3 {
        let mut backend = site.backend(None, &["--port", "check"]);
        let mut frontend = site.frontend(None, &["--port", "generator:size=1496"]);
        site.wait(&format!("frames in round {round}"), PROMPT, || {
            let received = site.vif_report()["port"]["checked"]["received"].as_u64();
            received.filter(|n| *n > 1000).map(|_| ())
        });
        let pids = [backend.pid(), frontend.pid()];
        backend.kill();
        frontend.kill();
        for pid in pids {
            site.check_no_trace(pid);
        }
        check_tables(&site, Side::Frontend);
    }
}

#[test]
fn a_killed_frontend_comes_back_with_another_number_of_queues() {
    // The store says Connected, and names the rings of the one that is dead.
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let mut backend = site.backend(None, &["--port", "null"]);
    for (round, queues) in ["4", "1", "3", "2", "1", "4"].into_iter().enumerate() {
        let args = ["--port", "generator:size=200,flows=8", "--queues", queues];
        let mut frontend = site.frontend(None, &args);
        site.wait_connected();
        site.wait(&format!("frames on all of {queues} queues"), PROMPT, || {
            let report = site.frontend_report();
            let found = report["queues"].as_array()?;
            assert_eq!(found.len().to_string(), queues, "round {round}");
            let sent =
                |queue: &serde_json::Value| queue["stats"]["tx_packets"].as_u64() > Some(500);
            found.iter().all(sent).then_some(())
        });
        let pid = frontend.pid();
        frontend.kill();
        site.check_no_trace(pid);
        check_tables(&site, Side::Frontend);
    }
    assert!(backend.is_alive());
    backend.terminate();
}
