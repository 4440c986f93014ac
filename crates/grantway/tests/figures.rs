//! `grantway bench` and `grantway demo` as an operator runs them: as root and
//! without any rights.

mod common;

use common::{Unprivileged, alone, grantway_with, has_program, say, succeed};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// What one point of `bench packets` tells, by name.
const KEYS: [&str; 18] = [
    "policy",
    "direction",
    "size",
    "queues",
    "burst",
    "seconds",
    "packets",
    "lost",
    "mpps",
    "gbps",
    "ppi",
    "spi",
    "ppn",
    "spn",
    "grant_ops_per_packet",
    "notifies_per_packet",
    "host",
    "state",
];

fn bench_args<'a>(direction: &'a str, size: &'a str, seconds: &'a str) -> Vec<&'a str> {
    bench_queues(direction, size, "1", seconds)
}

fn bench_queues<'a>(
    direction: &'a str,
    size: &'a str,
    queues: &'a str,
    seconds: &'a str,
) -> Vec<&'a str> {
    let mut args = vec!["bench", "packets", "--policy", "copy", "--direction", direction];
    args.extend(["--size", size, "--queues", queues, "--burst", "32"]);
    args.extend(["--seconds", seconds, "--json"]);
    args
}

/// Runs one point and checks what every point must hold.
fn point(command: Command, direction: &str, size: u64) -> Value {
    point_of(command, direction, size, 1)
}

fn point_of(command: Command, direction: &str, size: u64, queues: u64) -> Value {
    let start = Instant::now();
    let text = succeed(command, Duration::from_secs(30));
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    let point: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
    check_point(&point, direction, size, queues);
    say(format!(
        "{direction} {size} bytes: {:.3} Mpps, {:.2} Gbit/s, {} grant operations a packet, \
         state {}, within {:.1} s",
        point["mpps"].as_f64().unwrap_or(0.0),
        point["gbps"].as_f64().unwrap_or(0.0),
        point["grant_ops_per_packet"],
        point["state"],
        start.elapsed().as_secs_f64()
    ));
    point
}

fn check_point(point: &Value, direction: &str, size: u64, queues: u64) {
    let object = point.as_object().unwrap_or_else(|| panic!("no object: {point}"));
    for key in KEYS {
        assert!(object.contains_key(key), "no {key} in {point}");
    }
    assert_eq!(point["policy"], "copy", "{point}");
    assert_eq!(point["direction"], direction, "{point}");
    assert_eq!(point["size"], size, "{point}");
    assert_eq!(point["queues"], queues, "{point}");
    let bridged = direction == "guest-to-guest";
    if bridged {
        // A bridge drops what its receiver has no room for, and on a busy machine
        // the receiver may not run for a while.
        assert!(point["lost"].as_u64() < point["packets"].as_u64(), "{point}");
    } else {
        assert_eq!(point["lost"], 0, "{point}");
    }
    let positive = |key: &str| {
        let value = point[key].as_f64().unwrap_or(0.0);
        assert!(value > 0.0, "{key} in {point}");
        value
    };
    let (packets, seconds) = (positive("packets"), positive("seconds"));
    let (mpps, gbps) = (positive("mpps"), positive("gbps"));
    let near = |a: f64, b: f64| (a - b).abs() <= 0.02 * b;
    assert!(near(mpps, packets / seconds / 1e6), "mpps in {point}");
    assert!(near(gbps, mpps * size as f64 * 8.0 / 1e3), "gbps in {point}");
    // Each slot is one copy; a frame beyond a page has several. Between guests
    // the head is copied out and in, and the rest, where there is some, across.
    let least = match (bridged, size) {
        (false, _) => 0.9,
        (true, ..=128) => 1.9,
        (true, _) => 2.9,
    };
    assert!(positive("grant_ops_per_packet") >= least, "{point}");
    assert!(point["notifies_per_packet"].as_f64().is_some_and(|n| n < 2.5), "{point}");
    for key in ["ppi", "spi", "ppn", "spn"] {
        assert!(point[key].is_null() || point[key].as_f64().is_some_and(|n| n > 0.0), "{point}");
    }
    for key in ["host", "state"] {
        assert!(point[key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {point}");
    }
}

#[test]
fn bench_packets_prints_one_object_and_loses_nothing() {
    let _alone = alone();
    for (direction, size) in [("tx", "64"), ("rx", "64"), ("tx", "65535"), ("rx", "1496")] {
        let command = grantway_with(&bench_args(direction, size, "0.5"));
        point(command, direction, size.parse().expect("a size"));
    }
}

#[test]
fn bench_packets_goes_from_guest_to_guest_by_one_queue_and_by_two() {
    let _alone = alone();
    for (size, queues) in [("64", 1), ("1496", 2), ("65535", 1)] {
        let text = queues.to_string();
        let command = grantway_with(&bench_queues("guest-to-guest", size, &text, "0.5"));
        let (bytes, direction) = (size.parse().expect("a size"), "guest-to-guest");
        let point = point_of(command, direction, bytes, queues);
        // The rest of a large frame lies otherwise in the receiver's pages than in
        // the sender's, so that most are cut in two; what is dropped was copied too.
        let most = if bytes == 65_535 { 40.0 } else { 3.5 };
        assert!(point["grant_ops_per_packet"].as_f64() < Some(most), "{point}");
    }
}

#[test]
fn bench_packets_needs_no_rights() {
    let _alone = alone();
    let user = Unprivileged::new();
    for direction in ["tx", "rx", "guest-to-guest"] {
        point(user.command(&bench_args(direction, "64", "0.5")), direction, 64);
    }
    let left: Vec<_> = std::fs::read_dir(user.folder())
        .expect("the folder")
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| name != "grantway")
        .collect();
    assert!(left.is_empty(), "left behind in TMPDIR: {left:?}");
}

#[test]
fn bench_runs_on_one_processor() {
    let _alone = alone();
    if !has_program("taskset") {
        say("skipped: needs the program taskset");
        return;
    }
    let mut command = Command::new("taskset");
    command.args(["-c", "0", env!("CARGO_BIN_EXE_grantway")]).args(bench_args("tx", "64", "0.5"));
    let measured = point(command, "tx", 64);
    assert_eq!(measured["state"], "single", "{measured}");
}

#[test]
fn demo_measures_every_point_without_rights() {
    let _alone = alone();
    let user = Unprivileged::new();
    let start = Instant::now();
    let text =
        succeed(user.command(&["demo", "--seconds", "0.1", "--json"]), Duration::from_secs(60));
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
    let mut points = Vec::new();
    for row in &rows {
        let direction = row["direction"].as_str().expect("a direction");
        let size = row["size"].as_u64().expect("a size");
        check_point(row, direction, size, 1);
        points.push((direction, size));
    }
    for direction in ["tx", "rx", "guest-to-guest"] {
        for size in [64, 1496, 65_535] {
            assert!(points.contains(&(direction, size)), "no {direction} {size}: {points:?}");
        }
    }
    say(format!("demo: {} points within {:.1} s", rows.len(), start.elapsed().as_secs_f64()));
}

#[test]
fn demo_prints_a_table_for_people() {
    let _alone = alone();
    let text = succeed(grantway_with(&["demo", "--seconds", "0.05"]), Duration::from_secs(60));
    for words in ["guest transmit", "guest receive", "guest to guest", "Mpps", "65535", "lost"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}
