//! `grantway bench` and `grantway demo` as an operator runs them, as root and without any rights.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::{PROMPT, Unprivileged, alone, grantway_with, program, say, succeed};
use grantway_needs::{Need, met};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

/// Bytes of a frame that the backend copies out to judge the frame. Then it maps the rest, or
/// passes it on to another guest.
const HEAD: u64 = 128;

/// Fields of a row of `bench packets` and of `demo`.
const KEYS: [&str; 32] = [
    "policy",
    "direction",
    "size",
    "queues",
    "burst",
    "mode",
    "api",
    "offered_pps",
    "seconds",
    "packets",
    "lost",
    "mpps",
    "gbps",
    "reference",
    "ratio",
    "ppi",
    "spi",
    "ppn",
    "spn",
    "taken",
    "given",
    "grant_ops_per_packet",
    "copies_per_packet",
    "maps_per_packet",
    "unmaps_per_packet",
    "copied_bytes_per_packet",
    "notifies_per_packet",
    "wakeups_per_packet",
    "wakeups_per_second",
    "host",
    "state",
    "n",
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

/// Runs a bench that prints one document, and returns that.
fn document(command: Command, bench: &str) -> Value {
    let text = succeed(command, PROMPT);
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
    assert_eq!(document["bench"], bench, "{document}");
    assert_eq!(document["host"], "embedded", "{document}");
    for key in ["version", "state"] {
        assert!(document[key].as_str().is_some_and(|text| !text.is_empty()), "{document}");
    }
    assert!(document["processors"].as_u64() >= Some(1), "{document}");
    document
}

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().expect("rows")
}

/// Runs one point of one policy, and checks what every point must hold. Returns the row.
fn point(command: Command, direction: &str, size: u64) -> Value {
    point_of(command, direction, size, 1)
}

fn point_of(command: Command, direction: &str, size: u64, queues: u64) -> Value {
    let start = Instant::now();
    let document = document(command, "packets");
    let [point] = rows(&document) else { panic!("one row: {document}") };
    assert_eq!(point["policy"], "copy", "{point}");
    check_point(point, direction, size, queues);
    say(format!(
        "{direction} {size} bytes: {:.3} Mpps, {:.2} Gbit/s, {} grant operations a packet, \
         state {}, within {:.1} s",
        point["mpps"].as_f64().unwrap_or(0.0),
        point["gbps"].as_f64().unwrap_or(0.0),
        point["grant_ops_per_packet"],
        point["state"],
        start.elapsed().as_secs_f64()
    ));
    point.clone()
}

fn check_point(point: &Value, direction: &str, size: u64, queues: u64) {
    let object = point.as_object().unwrap_or_else(|| panic!("no object: {point}"));
    for key in KEYS {
        assert!(object.contains_key(key), "no {key} in {point}");
    }
    assert_eq!(point["direction"], direction, "{point}");
    assert_eq!(point["size"], size, "{point}");
    assert_eq!(point["queues"], queues, "{point}");
    // Only a bridge may lose packets.
    let bridged = direction == "guest-to-guest";
    if bridged {
        // A bridge drops frames for which its receiver has no room. On a busy machine the receiver
        // may not run for most of a short slice.
        assert!(point["lost"].is_u64(), "{point}");
    } else {
        assert_eq!(point["lost"], 0, "{point}");
    }
    // Figures must agree with each other.
    let positive = |key: &str| {
        let value = point[key].as_f64().unwrap_or(0.0);
        assert!(value > 0.0, "{key} in {point}");
        value
    };
    let (packets, seconds) = (positive("packets"), positive("seconds"));
    let (mpps, gbps) = (positive("mpps"), positive("gbps"));
    positive("n");
    let near = |a: f64, b: f64| (a - b).abs() <= 0.02 * b;
    assert!(near(mpps, packets / seconds / 1e6), "mpps in {point}");
    assert!(near(gbps, mpps * size as f64 * 8.0 / 1e3), "gbps in {point}");
    check_account(point, direction, size);
    // Figures that may be 0 or missing have the right type.
    let number = |key: &str| point[key].as_f64().unwrap_or_else(|| panic!("{key} in {point}"));
    let parts = ["copies_per_packet", "maps_per_packet", "unmaps_per_packet"].map(number);
    let whole = number("grant_ops_per_packet");
    assert!((whole - parts.iter().sum::<f64>()).abs() < 1e-6, "{point}");
    for key in ["notifies_per_packet", "wakeups_per_packet"] {
        assert!(number(key) >= 0.0, "{key} in {point}");
    }
    for key in ["ppi", "spi", "ppn", "spn"] {
        assert!(point[key].is_null() || point[key].as_f64().is_some_and(|n| n > 0.0), "{point}");
    }
    for key in ["mode", "reference", "host", "state"] {
        assert!(point[key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {point}");
    }
}

/// Checks the backend's operations for the packets that it handled, to the last operation. They
/// must be exact, however short the slice was and whatever packets were under way at its ends.
fn check_account(point: &Value, direction: &str, size: u64) {
    let whole = |key: &str| point[key].as_u64().unwrap_or_else(|| panic!("{key} in {point}"));
    let (taken, given) = (whole("taken"), whole("given"));
    let handled = if direction == "rx" { given } else { taken };
    assert!(handled > 0, "{point}");
    let of = |key: &str| {
        let sum =
            point[key].as_f64().unwrap_or_else(|| panic!("{key} in {point}")) * handled as f64;
        assert!((sum - sum.round()).abs() < 1e-3, "{key}, {sum} in all, in {point}");
        sum.round() as u64
    };
    let (copies, bytes) = (of("copies_per_packet"), of("copied_bytes_per_packet"));
    assert_eq!(
        of("grant_ops_per_packet"),
        copies + of("maps_per_packet") + of("unmaps_per_packet")
    );
    let slots = size.div_ceil(4096);
    match (point["policy"].as_str(), direction) {
        // Each slot is one grant copy. Mapped pages are read by ports, and never written.
        (Some("copy"), "tx") | (Some("copy" | "map"), "rx") => {
            assert_eq!((copies, bytes), (slots * handled, size * handled), "{point}");
        }
        // The head is copied. The rest is mapped, or copied if there is no room for it.
        (Some("map"), "tx") => {
            let most = handled * (1 + slots);
            assert!((handled..=most).contains(&copies), "{point}");
            let least = handled * size.min(HEAD);
            assert!((least..=size * handled).contains(&bytes), "{point}");
        }
        // A packet that fits into the head is copied out and in.
        (Some("copy" | "map"), _) if size <= HEAD => {
            let crossings = taken + given;
            assert_eq!((copies, bytes), (crossings, crossings * size), "{point}");
        }
        // The head is copied out of each packet that was taken, and at least one stretch into each
        // that was given. A packet that waited for pages before the slice is copied in only; one
        // that waits after it was copied out only.
        (Some("copy" | "map"), _) => {
            assert!(copies >= taken + given, "{point}");
            assert!(bytes >= taken * HEAD + given * size, "{point}");
            assert!(bytes <= (taken + given) * size, "{point}");
        }
        // A page that is not known yet is copied.
        (_, "tx" | "rx") => {
            assert!(copies <= slots * handled && bytes <= size * handled, "{point}");
        }
        _ => assert!(bytes <= (taken + given) * size, "{point}"),
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
fn frames_that_are_lent_are_none_the_less_judged() {
    let _alone = alone();
    for (direction, size) in [("tx", "64"), ("rx", "64"), ("tx", "1496"), ("rx", "9000")] {
        let mut args = vec!["bench", "packets", "--policy", "staging", "--api", "lend", "--json"];
        args.extend(["--direction", direction, "--size", size, "--seconds", "0.5"]);
        let document = document(grantway_with(&args), "packets");
        let [measured] = rows(&document) else { panic!("one row: {document}") };
        check_point(measured, direction, size.parse().expect("a size"), 1);
        assert_eq!(measured["api"], "lend", "{measured}");
    }
}

#[test]
fn bench_packets_goes_from_guest_to_guest_by_one_queue_and_by_two() {
    let _alone = alone();
    for (size, queues) in [("64", 1), ("1496", 2), ("65535", 1)] {
        let text = queues.to_string();
        let command = grantway_with(&bench_queues("guest-to-guest", size, &text, "0.5"));
        let (bytes, direction) = (size.parse().expect("a size"), "guest-to-guest");
        point_of(command, direction, bytes, queues);
    }
}

#[test]
fn bench_packets_needs_no_rights() {
    let _alone = alone();
    let user = Unprivileged::with(&["grantway-bench"]);
    for direction in ["tx", "rx", "guest-to-guest"] {
        point(user.command(&bench_args(direction, "64", "0.5")), direction, 64);
    }
    let left: Vec<_> = std::fs::read_dir(user.folder())
        .expect("the folder")
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| name != "grantway" && name != "grantway-bench")
        .collect();
    assert!(left.is_empty(), "left behind in TMPDIR: {left:?}");
}

#[test]
fn bench_runs_on_one_processor() {
    let _alone = alone();
    if !met(&[Need::Program("taskset", "util-linux")]) {
        return;
    }
    let mut command = Command::new("taskset");
    command.env(common::PATIENCE.0, common::PATIENCE.1);
    command.args(["-c", "0"]).arg(program("grantway")).args(bench_args("tx", "64", "0.5"));
    command.args(["--mode", "busy"]);
    let measured = point(command, "tx", 64);
    assert_eq!(measured["state"], "single", "{measured}");
    // On one processor an end that spins would keep its peer from running, so all ends wait.
    assert_eq!(measured["mode"], "interrupt", "{measured}");
}

#[test]
fn every_policy_is_compared_with_the_first() {
    let _alone = alone();
    let args = ["bench", "packets", "--seconds", "0.3", "--pairs", "3", "--json"];
    let document = document(grantway_with(&args), "packets");
    let rows = rows(&document);
    let policies: Vec<_> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(policies.first(), Some(&"copy"), "{document}");
    for policy in ["persistent", "staging"] {
        assert!(policies.contains(&policy), "no {policy}: {document}");
    }
    for (number, row) in rows.iter().enumerate() {
        check_point(row, "tx", 64, 1);
        assert_eq!(row["reference"], "copy", "{row}");
        let ratio = &row["ratio"];
        if number == 0 {
            assert!(ratio.is_null(), "{row}");
        } else if !ratio.is_null() {
            let of = |key: &str| ratio[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
            assert!(of("low") <= of("median") && of("median") <= of("high"), "{row}");
            assert!((1.0..=3.0).contains(&of("pairs")), "{row}");
        }
    }
}

#[test]
fn an_offered_load_is_offered_by_each_row() {
    let _alone = alone();
    let mut args = vec!["bench", "packets", "--policy", "copy", "--mode", "interrupt"];
    args.extend(["--rate", "500,2k", "--burst", "1", "--seconds", "0.5", "--json"]);
    let document = document(grantway_with(&args), "packets");
    for (row, offered) in rows(&document).iter().zip([500, 2000]) {
        check_point(row, "tx", 64, 1);
        assert_eq!((&row["offered_pps"], &row["mode"]), (&offered.into(), &"interrupt".into()));
        assert!(row["wakeups_per_second"].as_f64().is_some(), "{row}");
    }
    assert_eq!(rows(&document).len(), 2, "{document}");
}

#[test]
fn latency_tells_percentiles_and_a_curve() {
    let _alone = alone();
    let mut args = vec!["bench", "latency", "--policy", "copy,staging", "--rate", "2k"];
    args.extend(["--direction", "all", "--every", "1", "--seconds", "0.2", "--json"]);
    let document = document(grantway_with(&args), "latency");
    let mut seen = Vec::new();
    for row in rows(&document) {
        seen.push((row["direction"].as_str().expect("words"), row["policy"].as_str()));
        let of = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"));
        let told = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].map(of);
        assert!(told.is_sorted() && told[0] > 0, "{row}");
        assert!(of("timed") >= 1 && of("offered_pps") == 2000 && of("size") == 64, "{row}");
        let curve = row["curve"].as_array().expect("a curve");
        let at = |n: usize| (curve[n][0].as_f64(), curve[n][1].as_u64());
        let last = at(curve.len() - 1);
        assert_eq!((at(0).0, last.0), (Some(0.0), Some(100.0)), "{row}");
        assert!(last.1 >= Some(told[3]), "{row}");
        say(format!("{:?}: half within {} us", seen.last(), told[0] / 1000));
    }
    for direction in ["tx", "rx", "guest-to-guest", "round-trip"] {
        for policy in ["copy", "staging"] {
            assert!(seen.contains(&(direction, Some(policy))), "{direction} {policy}: {document}");
        }
    }
}

#[test]
fn papers_stand_beside_ours() {
    let _alone = alone();
    let args = ["bench", "papers", "--paper", "001", "--seconds", "0.1", "--json"];
    let document = document(grantway_with(&args), "papers");
    assert!(rows(&document).len() >= 2, "{document}");
    for row in rows(&document) {
        assert_eq!((&row["paper"], &row["unit"]), (&"001".into(), &"Gbit/s".into()));
        assert_eq!(row["before"]["policy"], "copy", "{row}");
        for side in ["before", "after"] {
            assert!(row[side]["value"].as_f64() > Some(0.0), "{row}");
            check_batches(&row[side]["batches"]);
        }
        for key in ["paper_before", "paper_after", "paper_factor", "wire_10g_mpps"] {
            assert!(row[key].as_f64() > Some(0.0), "{key} in {row}");
        }
        assert!(row["paper_batches"][1]["interrupts"].as_u64() > Some(170_000), "{row}");
        for key in ["conditions", "apart", "host", "state"] {
            assert!(row[key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {row}");
        }
    }
    // The earlier names of the command and of its option.
    let args = ["bench", "seeds", "--seed", "001", "--seconds", "0.05"];
    let text = succeed(grantway_with(&args), PROMPT);
    for words in [
        "paper 001: ",
        "Wei Liu, 2013",
        "6.50 > 14.0",
        "embedded host",
        "state",
        "frames of 65,535 B for TCP",
        "1.31",
        "2392614",
        "poll rounds (nr_napi_schedule)",
        "Not measured here",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}

/// Checks that the counts of a side are those of its quotients.
fn check_batches(side: &Value) {
    let count = |key: &str| side[key].as_u64().unwrap_or_else(|| panic!("{key} in {side}"));
    let (packets, slots) = (count("packets"), count("slots"));
    assert!(packets > 0 && slots >= packets, "{side}");
    for (quotient, of, per) in [
        ("ppn", packets, "turns"),
        ("spn", slots, "turns"),
        ("ppi", packets, "interrupts"),
        ("spi", slots, "interrupts"),
    ] {
        // An end that never slept was never interrupted.
        let Some(value) = side[quotient].as_f64() else {
            assert_eq!(count(per), 0, "{side}");
            continue;
        };
        let counted = of as f64 / count(per) as f64;
        assert!((counted - value).abs() <= 0.02 * value, "{quotient} in {side}");
    }
}

#[test]
fn papers_without_packets_between_two_ends_have_their_rows() {
    let _alone = alone();
    let args = ["bench", "papers", "--paper", "002,003", "--seconds", "0.05", "--json"];
    let text = succeed(grantway_with(&args), PROMPT);
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
    let lists = document["lists"].as_array().expect("lists");
    assert_eq!(lists.len(), 4, "{document}");
    for row in lists {
        for at in [0, 1] {
            assert!(row["mpps"][at].as_f64() > Some(0.0), "{row}");
        }
    }
    let rings = document["rings"].as_array().expect("rows from ring to ring");
    assert_eq!(rings.len(), 5, "{document}");
    for row in rings {
        // One by one, lists at the entry, lists in each layer, and the backend.
        for way in 0..4 {
            assert!(row["mpps"][way].as_f64() > Some(0.0), "{row}");
            assert!((Some(0.0)..=Some(1.0)).contains(&row["guests_wait"][way].as_f64()), "{row}");
        }
        assert!(row["gains"][0].is_null() && row["retpolines"] == false, "{row}");
    }
    assert_eq!(rings[0]["paper_percent"], serde_json::json!([10.0, 22.5]), "patches 1 and 2, all");
    let apart = document["apart"].as_array().expect("rows that are not measured");
    for figure in ["2.75 Gbit/s", "1.64 Gbit/s", "all figures of the paper"] {
        let row = apart.iter().find(|row| row["figure"] == figure);
        let reason = row.unwrap_or_else(|| panic!("no {figure} in {text}"))["reason"].as_str();
        assert!(reason.is_some_and(|reason| !reason.is_empty()), "{row:?}");
    }
    let text = succeed(grantway_with(&["bench", "papers", "--paper", "003"]), PROMPT);
    for words in ["paper 003: ", "David Scott, 2013", "2.1 Gbit/s", "grantway bench tcp"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}

#[test]
fn papers_show_the_rows_of_the_lab() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bench.json");
    let row = |setup: &str, frames: &str, mpps: f64, gbps: f64| {
        serde_json::json!({ "part": "any", "setup": setup, "way": "guest to dom0",
            "frames": frames, "mpps": mpps, "gbps": gbps, "packets": 7 })
    };
    let rows = [
        row("kernel netback", "TCP", 0.0065, 3.38),
        row("kernel netback, sleep", "64 B, 1 at once", 0.25, 0.1),
        row("unikernel, persistent, sleep", "64 B, 1 at once", 0.75, 0.3),
        row("our frontend, copy", "65535 B", 0.013, 7.0),
        row("our frontend, staging", "65535 B", 0.022, 14.0),
    ];
    let lab = serde_json::json!({ "bench": "lab", "host": "xen", "clock": "one", "rows": rows });
    std::fs::write(&file, lab.to_string()).unwrap();
    let on_xen = |words: &[&str]| {
        let mut command = grantway_with(&["bench", "papers", "--on-xen"]);
        command.arg(&file).args(words);
        succeed(command, PROMPT)
    };
    let text = on_xen(&[]);
    for words in [
        "0.250 > 0.750",
        "3.00",
        "7.00 > 14.0",
        "kernel netback, sleep > unikernel, persistent, sleep; 64 B, 1 at once",
        "make lab-bench PART=image-poll",
        "our frontend has one queue in lab/bench",
        "2.75 Gbit/s",
        "TCP of stock guests (iperf3)",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    let document: Value = serde_json::from_str(&on_xen(&["--json"])).unwrap();
    let found = document["rows"].as_array().unwrap();
    let with = |key: &str| found.iter().filter(|row| !row[key].is_null()).count();
    // Bulk transmit of papers 000 and 004 by one queue: persistent has no row of this size.
    assert_eq!((with("factor"), with("factor") + with("reason")), (2, found.len()), "{document}");
    std::fs::write(&file, "{}").unwrap();
    let said = common::finish(
        {
            let mut command = grantway_with(&["bench", "papers", "--on-xen"]);
            command.arg(&file);
            command
        },
        PROMPT,
    );
    assert_eq!(said.status.code(), Some(1));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("--on-xen") && said.contains("make lab-bench"), "{said}");
}

#[test]
fn demo_measures_every_point_without_rights() {
    let _alone = alone();
    let user = Unprivileged::with(&["grantway-bench"]);
    let start = Instant::now();
    let document = document(user.command(&["demo", "--seconds", "0.1", "--json"]), "demo");
    let mut points = Vec::new();
    for row in rows(&document) {
        let direction = row["direction"].as_str().expect("a direction");
        let (size, policy) = (row["size"].as_u64().expect("a size"), row["policy"].as_str());
        check_point(row, direction, size, 1);
        points.push((direction, size, policy.expect("a policy")));
    }
    for direction in ["tx", "rx", "guest-to-guest"] {
        for size in [64, 1496, 65_535] {
            for policy in ["copy", "map", "persistent", "staging"] {
                let point = (direction, size, policy);
                assert!(points.contains(&point), "no {point:?}: {points:?}");
            }
        }
    }
    say(format!("demo: {} points within {:.1} s", points.len(), start.elapsed().as_secs_f64()));
}

#[test]
fn demo_prints_a_table_for_people() {
    let _alone = alone();
    let text = succeed(grantway_with(&["demo", "--seconds", "0.05"]), PROMPT);
    for words in
        ["guest transmit", "guest receive", "guest to guest", "Mpps", "65535", "staging", "Look at"]
    {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    // Further columns do not fit a terminal of 80 columns.
    let heading = text.lines().find(|line| line.starts_with("direction")).expect("a heading");
    assert!(heading.ends_with("  lost  copies"), "{heading}");
}
