//! `grantway bench peers` with real testpmds. Nothing of them may stay.
//!
//! The tests need dpdk-testpmd; without it they print `skipped` and pass. Links of the kernel need
//! root and `ip` as well, and plain TAPs need only those.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::network::available;
use common::part::Part;
use common::{PROMPT, alone, finish, grantway_with, say, succeed, wait_for, words};
use grantway_needs::{Need, met};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Instant;

fn has_testpmd() -> bool {
    met(&[Need::Program("dpdk-testpmd", "dpdk-dev"), Need::Program("stdbuf", "coreutils")])
}

/// Runs the bench, and checks that nothing of it stays. Returns its rows.
fn rows(args: &[&str]) -> Vec<Value> {
    let start = Instant::now();
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("peers.html");
    let mut command = grantway_with(&["bench", "peers", "--seconds", "0.3", "--json"]);
    command.args(args).arg("--report").arg(&page).env("TMPDIR", folder.path());
    let text = succeed(command, PROMPT);
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
    assert_eq!((&found["bench"], &found["host"]), (&"peers".into(), &"embedded".into()));
    let page = std::fs::read_to_string(&page).expect("a page");
    let peer = if args.contains(&"plain-tap") { "bench tap-end" } else { "dpdk-testpmd --lcores" };
    for part in ["Grantway and its peers", "Command lines", peer] {
        assert!(page.contains(part), "no {part:?} in the page");
    }
    let left = std::fs::read_dir(folder.path()).expect("the folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["peers.html"], "left behind in TMPDIR");
    say(format!("{args:?} within {:.1} s", start.elapsed().as_secs_f64()));
    found["rows"].as_array().expect("rows").clone()
}

#[track_caller]
fn check(row: &Value, contender: &str, commands: [&str; 2]) {
    assert_eq!(row["contender"], contender, "{row}");
    assert!(row["mpps"]["median"].as_f64() > Some(0.0), "{row}");
    assert!(row["processors"].as_f64() > Some(0.0), "{row}");
    assert!(row["n"].as_u64() >= Some(1) && row["state"].is_string(), "{row}");
    for (end, command) in commands.into_iter().enumerate() {
        let line = row["commands"][end].as_str().unwrap_or_default();
        assert!(line.contains(command), "no {command:?} in {line}");
    }
}

#[test]
fn staging_against_memif_one_way_with_the_best_burst() {
    let _alone = alone();
    if !has_testpmd() {
        return;
    }
    let rows = rows(&["--peer", "memif", "--direction", "tx", "--size", "64", "--burst", "32,64"]);
    assert_eq!(rows.len(), 3, "{rows:?}");
    let grantway = |api| ["grantway backend --host DIR --port null", api];
    check(&rows[0], "grantway, copying API", grantway("--api copy"));
    check(&rows[1], "grantway, lending API", grantway("--api lend"));
    check(&rows[2], "testpmd, memif", ["role=server", "--forward-mode=txonly --txpkts=64"]);
    for row in &rows {
        assert!([32, 64].contains(&row["burst"].as_u64().unwrap_or(0)), "{row}");
        assert!(row["mean_ns"].is_null(), "{row}");
    }
    assert!(rows[0]["ratios"].as_array().is_some_and(Vec::is_empty), "{rows:?}");
    // A ratio exists only if the machine did not change in both slices.
    for against in rows[2]["ratios"].as_array().expect("ratios") {
        let ours = [&rows[0]["contender"], &rows[1]["contender"]];
        assert!(ours.contains(&&against["contender"]), "{against}");
        assert!(against["ratio"]["median"].as_f64() > Some(0.0), "{against}");
    }
}

#[test]
fn one_packet_goes_round_a_packed_ring() {
    let _alone = alone();
    if !has_testpmd() {
        return;
    }
    let rows = rows(&["--peer", "vhost-packed", "--direction", "round-trip", "--size", "64"]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    check(&rows[0], "grantway, copying API", ["--port echo", "window=1,timed=16"]);
    check(&rows[1], "testpmd, vhost packed", ["net_vhost0", "packed_vq=1"]);
    for row in &rows {
        let mean = row["mean_ns"].as_f64().unwrap_or(0.0);
        let rate = row["mpps"]["median"].as_f64().unwrap_or(0.0);
        assert!((mean * rate / 1e3 - 1.0).abs() < 0.01 && row["burst"] == 1, "{row}");
    }
    assert!(rows[0]["p50_ns"].as_u64() > Some(0) && rows[1]["p50_ns"].is_null(), "{rows:?}");
}

#[test]
fn the_kernels_links_take_their_namespaces_with_them() {
    let _alone = alone();
    if !has_testpmd() || !available(&["ip"]) {
        return;
    }
    let namespaces = || {
        let mut list = Command::new("ip");
        list.args(["netns", "list"]);
        let names = succeed(list, PROMPT);
        let ours = names.lines().filter(|line| line.starts_with("gwp"));
        ours.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    // A run that was killed may have left its namespaces.
    let before = namespaces();
    let links = "veth,tap,plain-tap";
    let rows = rows(&["--peer", links, "--direction", "rx", "--size", "256", "--burst", "32"]);
    assert_eq!(rows.len(), 5, "{rows:?}");
    check(&rows[1], "grantway, lending API", ["generator", "--api lend"]);
    check(&rows[2], "testpmd, AF_PACKET", ["iface=gwb1", "iface=gwf1"]);
    check(&rows[3], "testpmd, net_tap, bridge", ["txonly", "rxonly"]);
    let ends = ["--work send --size=256", "--interface gwf1 --work take"];
    check(&rows[4], "TAPs by read and write, bridge", ends);
    let bursts = rows.iter().map(|row| row["burst"].as_u64());
    assert!(bursts.eq([32, 32, 32, 32, 1].map(Some)), "{rows:?}");
    assert_eq!(namespaces(), before);
}

#[test]
fn one_packet_goes_round_two_plain_taps() {
    let _alone = alone();
    if !available(&["ip"]) {
        return;
    }
    let rows = rows(&["--peer", "plain-tap", "--direction", "round-trip", "--size", "64"]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    let ends = ["tap-end --interface gwb1 --work echo", "--work bounce --size=64"];
    check(&rows[1], "TAPs by read and write, bridge", ends);
    assert!(rows[1]["mean_ns"].as_f64() > Some(0.0), "{rows:?}");
}

#[test]
fn an_interrupted_bench_takes_everything_with_it() {
    let _alone = alone();
    if !has_testpmd() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = grantway_with(&["bench", "peers", "--peer", "memif", "--seconds", "60"]);
    command.env("TMPDIR", folder.path());
    let mut bench = Part::spawn("bench peers", command);
    wait_for("a folder of a testpmd", PROMPT, || {
        let folders = std::fs::read_dir(folder.path()).expect("the folder").flatten();
        folders.into_iter().any(|entry| entry.path().join("guest").exists()).then_some(())
    });
    bench.signal(Signal::INT);
    let status = bench.wait_end(PROMPT);
    assert_eq!(status.code(), Some(1), "{status}");
    bench.check_last_line("grantway bench: interrupted", "everything was removed");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[track_caller]
fn refused(command: Command, status: i32, parts: &[&str]) {
    let output = finish(command, PROMPT);
    assert_eq!(output.status.code(), Some(status), "{}", words(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = grantway_with(&["bench", "peers"]);
    command.env("PATH", folder.path());
    refused(command, 1, &["dpdk-testpmd is missing", "apt install dpdk-dev"]);
    refused(grantway_with(&["bench", "peers", "--peer", "xdp"]), 2, &["\"xdp\"", "vhost-split"]);
    let long = grantway_with(&["bench", "peers", "--seconds", "9", "--pairs", "3"]);
    refused(long, 2, &["slices of 3.0 s", "--pairs 18"]);
}
