//! `grantway bench stream` with real iperf3 through real TAPs. Nothing of it may stay.
//!
//! The tests need root, /dev/net/tun, `ip` and `iperf3`; if one is missing, they print `skipped`
//! and pass.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::network::available;
use common::part::Part;
use common::{PROMPT, Unprivileged, alone, finish, grantway_with, say, succeed, wait_for, words};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

/// Bytes of the headers of a TCP packet, which is at least this long.
const LEAST: f64 = 14.0 + 20.0 + 20.0;

#[test]
fn papers_that_measured_tcp_have_tcp_beside_it() {
    let _alone = alone();
    if !available(&["ip", "iperf3"]) {
        return;
    }
    let args =
        ["bench", "papers", "--paper", "001,003", "--seconds", "0.02", "--tcp", "1s", "--json"];
    let text = succeed(grantway_with(&args), PROMPT);
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
    let rows = found["tcp"].as_array().expect("rows by TCP");
    let of = |paper: &str| rows.iter().filter(|row| row["paper"] == paper).collect::<Vec<_>>();
    // Copying against mapping and against persistent grants, by two programs.
    let directions: Vec<_> = of("001").iter().map(|row| row["direction"].clone()).collect();
    assert_eq!(directions, ["tx"; 4], "{found:#}");
    let mirage = of("003");
    let [.., traced] = mirage[..] else { panic!("{found:#}") };
    assert_eq!((mirage.len(), &traced["sides"][1]), (4, &"staging, traced".into()), "{found:#}");
    for row in rows {
        assert!((0..2).all(|side| row["gbps"][side].as_f64() > Some(0.0)), "{row}");
        // Rows without a figure of before have one side.
        let is_alone = row["sides"][0] == row["sides"][1];
        assert_eq!(is_alone, row["paper_before"].is_null(), "{row}");
    }
    let apart = found["apart"].as_array().expect("rows that are not measured");
    assert!(apart.iter().all(|row| !row["reason"].as_str().unwrap_or("").contains("--tcp")));
}

/// Returns the namespaces of the bench that runs as process `pid`.
fn namespaces(pid: u32) -> Vec<String> {
    let mut list = Command::new("ip");
    list.args(["netns", "list"]);
    let shown = succeed(list, PROMPT);
    let own = format!("gws{pid}-");
    shown.lines().filter(|line| line.starts_with(&own)).map(str::to_owned).collect()
}

/// Returns the command lines of the processes that name a folder there.
fn processes_of(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(folder)).collect()
}

#[test]
fn tcp_is_measured_both_ways_and_nothing_stays() {
    let _alone = alone();
    if !available(&["ip", "iperf3"]) {
        return;
    }
    let start = Instant::now();
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("stream.html");
    let mut command = grantway_with(&["bench", "stream", "--policy", "copy,staging"]);
    command.args(["--queues", "1,2", "--seconds", "1", "--json", "--report"]).arg(&page);
    command.env("TMPDIR", folder.path());
    let text = succeed(command, PROMPT);
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
    assert_eq!((&found["bench"], &found["host"]), (&"stream".into(), &"embedded".into()));
    // Two policies, two numbers of queues, and both directions.
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8, "{found:#}");
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
        assert!(row["gbps"]["median"].as_f64() > Some(0.0), "{row}");
        assert!(number("packets") > 0.0 && number("payload_per_packet") > 0.0, "{row}");
        assert_eq!((&row["n"], &row["reference"]), (&1.into(), &"copy".into()), "{row}");
        match row["policy"].as_str() {
            // Each packet that the backend moved is at least one grant copy, which moves all of its
            // bytes. This holds whatever packets were under way when a slice began or ended.
            Some("copy") => assert!(
                number("grant_ops_per_packet") >= 1.0
                    && number("copied_bytes_per_packet") >= LEAST
                    && row["ratio"].is_null(),
                "{row}"
            ),
            _ => assert!(number("grant_ops_per_packet") >= 0.0, "{row}"),
        }
        let flows = if row["queues"] == 1 { 1 } else { 16 };
        assert_eq!(row["flows"], flows, "{row}");
    }
    let page = std::fs::read_to_string(&page).expect("a page");
    for part in ["Guest transmit", "Guest receive", "<svg class=\"plot wide\"", "bench stream"] {
        assert!(page.contains(part), "no {part:?} in the page");
    }
    // The page is all that stays.
    let left = std::fs::read_dir(folder.path()).expect("the folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["stream.html"], "left behind in TMPDIR");
    assert_eq!(processes_of(&folder.path().to_string_lossy()), [""; 0]);
    say(format!("8 rows within {:.1} s", start.elapsed().as_secs_f64()));
}

#[test]
fn merging_is_measured_beside_none() {
    let _alone = alone();
    if !available(&["ip", "iperf3"]) {
        return;
    }
    let mut command = grantway_with(&["bench", "stream", "--policy", "staging", "--gso", "off"]);
    command.args(["--merge", "off,on", "--seconds", "1", "--json"]);
    let text = succeed(command, PROMPT);
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
    let rows = found["rows"].as_array().expect("rows");
    let merges: Vec<_> = rows.iter().map(|row| (&row["direction"], &row["merge"])).collect();
    let expected = ["tx", "tx", "rx", "rx"].map(serde_json::Value::from);
    let switches = ["off", "on", "off", "on"].map(serde_json::Value::from);
    assert_eq!(merges, expected.iter().zip(&switches).collect::<Vec<_>>());
    for row in rows {
        assert_eq!(row["reference"], "staging, merge off", "{row}");
        assert_eq!(row["gso"], "off", "{row}");
        // Frames on the vif itself have at most 1500 bytes, whichever end merges them.
        let payload = row["payload_per_packet"].as_f64();
        assert!(payload.is_some_and(|bytes| bytes > 0.0 && bytes <= 1460.0), "{row}");
    }
}

#[test]
fn an_interrupted_bench_takes_everything_with_it() {
    let _alone = alone();
    if !available(&["ip", "iperf3"]) {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command =
            grantway_with(&["bench", "stream", "--policy", "copy", "--seconds", "60"]);
        command.env("TMPDIR", folder.path());
        let mut bench = Part::spawn("bench stream", command);
        wait_for("the first slice", PROMPT, || {
            bench.said().contains("guest transmit").then_some(())
        });
        wait_for("its namespaces", PROMPT, || (namespaces(bench.pid()).len() == 2).then_some(()));
        bench.signal(signal);
        let status = bench.wait_end(PROMPT);
        assert_eq!(status.code(), Some(1), "{signal:?}: {status}");
        bench.check_last_line("grantway bench: interrupted", "everything was removed");
        assert_eq!(namespaces(bench.pid()), [""; 0], "{signal:?}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
        assert_eq!(processes_of(&folder.path().to_string_lossy()), [""; 0]);
    }
}

#[track_caller]
fn refused(command: Command, status: i32, parts: &[&str]) {
    let output = finish(command, PROMPT);
    assert_eq!(output.status.code(), Some(status), "{}", words(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    let _alone = alone();
    let user = Unprivileged::with(&["grantway-bench"]);
    if common::is_root() {
        refused(user.command(&["bench", "stream"]), 1, &["grantway bench: ", "run it as root"]);
    }
    if available(&["ip"]) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = grantway_with(&["bench", "stream"]);
        command.env("PATH", folder.path());
        refused(command, 1, &["iperf3 is missing", "apt install iperf3"]);
        if available(&["iperf3"]) {
            let command = grantway_with(&["bench", "stream", "--report", "/no/such/x.html"]);
            refused(command, 1, &["--report /no/such/x.html", "expected a file"]);
        }
    }
    refused(grantway_with(&["bench", "stream", "--policy", "flip"]), 2, &["\"flip\"", "staging"]);
    refused(grantway_with(&["bench", "stream", "--queues", "0"]), 2, &["\"0\"", "1 to 16"]);
    refused(
        grantway_with(&["bench", "stream", "--seconds", "0"]),
        2,
        &["'0'", "1 to 3600 whole seconds"],
    );
}
