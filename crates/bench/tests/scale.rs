//! One backend with many vifs, which connect, carry frames, rest, and go. The tests need neither
//! root nor TAPs.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::part::Part;
use common::site::{Site, try_report};
use common::{PROMPT, alone, finish, grantway_with, say, try_wait_for, wait_for, words};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

/// Number of guests, each with a vif, and number of queues of a vif.
const VIFS: u64 = 300;
const QUEUES: u64 = 2;
/// Event channels of a vif: one per direction of each queue, and the control ring's.
const PORTS: u64 = 2 * QUEUES + 1;
/// Limit of the backend's private memory per vif, in KiB.
const PRIVATE_MAX: u64 = 64;

#[test]
fn three_hundred_vifs_come_carry_rest_and_go() {
    let _alone = alone();
    let site = Site::start();
    let count = QUEUES.to_string();
    let args = ["--port", "echo", "--policy", "copy", "--queues", &count, "--workers", "1"];
    let backend = site.backend(None, &args);
    let before = private_kib(backend.pid());
    // The vifs connect, and each queue sends a frame that comes back.
    let mut guests = guests(&site);
    let came = wait_for("a frame back on each queue", PROMPT, || {
        let report = try_report(&site.file("guests.sock"))?;
        (report["received"] == VIFS * QUEUES).then_some(report)
    });
    assert_eq!((&came["answered"], &came["errors"]), (&(VIFS * QUEUES).into(), &0.into()));
    all_carried(&site.backend_report());
    assert_eq!(site.domain(0)["ports_bound"], VIFS * PORTS);

    // Memory is bounded per vif.
    let each = (private_kib(backend.pid()) - before) / VIFS;
    assert!(each <= PRIVATE_MAX, "{each} KiB of private memory a vif, {PRIVATE_MAX} allowed");
    // Once there is no work, no thread of the backend runs any more, not even for an instant.
    wait_for("a second in which the backend rests", PROMPT, || {
        let before = (worked(&site.backend_report()), ran(backend.pid()));
        let before = (before.0, settled(backend.pid(), before.1)?);
        std::thread::sleep(Duration::from_secs(1));
        let after = ran(backend.pid());
        (before == (worked(&site.backend_report()), after)).then_some(())
    });
    say(format!(
        "{VIFS} vifs: attached in {} ms, connected in {} ms; {each} KiB a vif",
        milliseconds(&came["attached_in_ns"]),
        milliseconds(&came["connected_in_ns"]),
    ));

    // The guests close their vifs, and nothing of them stays.
    guests.interrupt();
    wait_for("all vifs to be gone", PROMPT, || {
        (site.backend_report()["vifs"].as_array()?.is_empty()).then_some(())
    });
    let host = site.domain(0);
    assert_eq!((&host["ports_bound"], &host["ports_unbound"]), (&0.into(), &0.into()), "{host}");
    site.check_no_trace(guests.pid());
    assert_eq!(site.backend_report()["platform"]["mapped"], 0);
}

/// Starts all guests in one process.
fn guests(site: &Site) -> Part {
    let (vifs, queues) = (VIFS.to_string(), QUEUES.to_string());
    let path = site.path();
    let args = ["bench", "guests", "--host", &path, "--vifs", &vifs, "--queues", &queues];
    Part::start("guests", grantway_with(&args))
}

/// Checks that each queue of each vif took a frame and gave one.
fn all_carried(report: &Value) {
    let vifs = report["vifs"].as_array().expect("vifs");
    assert_eq!(vifs.len() as u64, VIFS);
    for vif in vifs {
        assert_eq!(vif["connected"], true, "{vif}");
        let queues = vif["queues"].as_array().expect("queues");
        assert_eq!(queues.len() as u64, QUEUES, "{vif}");
        for queue in queues {
            assert_eq!(
                (&queue["tx_packets"], &queue["rx_packets"]),
                (&1.into(), &1.into()),
                "{vif}"
            );
        }
    }
}

/// Returns the turns that moved packets, the wake-ups and the notifications of a backend.
fn worked(report: &Value) -> [u64; 3] {
    let vifs = report["vifs"].as_array().expect("vifs").iter();
    let turns = vifs.map(|vif| vif["stats"]["turns"].as_u64().expect("turns")).sum();
    let asked = |key: &str| report["platform"][key].as_u64().expect("a number");
    [turns, asked("wakeups"), asked("notifies")]
}

/// Returns the scheduler's statistics of each thread of a process: its processor time, its waiting
/// time, and how often it ran.
fn ran(process: u32) -> BTreeMap<OsString, String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let ran = threads.flatten().filter_map(|thread| {
        let times = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((thread.file_name(), times))
    });
    ran.collect()
}

/// Waits until the threads of a process are at rest, since reading a report wakes some of them.
/// Returns their statistics.
fn settled(process: u32, before: BTreeMap<OsString, String>) -> Option<BTreeMap<OsString, String>> {
    let mut last = before;
    try_wait_for(Duration::from_secs(1), || {
        let now = ran(process);
        let still = now == last;
        last = now.clone();
        still.then_some(now)
    })
}

/// Returns the memory that a process shares with no other, in KiB.
fn private_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.expect("a line of private memory")
}

fn milliseconds(nanos: &Value) -> u64 {
    nanos.as_u64().expect("a time") / 1_000_000
}

#[test]
fn bench_scale_prints_one_document() {
    let _alone = alone();
    let args = ["bench", "scale", "--vifs", "6", "--active", "2", "--policy", "staging"];
    let short = ["--seconds", "0.2", "--pairs", "2", "--idle", "0.1", "--json"];
    let output = finish(grantway_with(&[&args[..], &short].concat()), PROMPT);
    assert!(output.status.success(), "{}", words(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!((&document["bench"], &document["host"]), (&"scale".into(), &"embedded".into()));
    let [row] = &document["rows"].as_array().expect("rows")[..] else {
        panic!("one row: {document}");
    };
    for (key, value) in [("vifs", 6), ("active", 2), ("queues", 2), ("reference_vifs", 2)] {
        assert_eq!(row[key], value, "{key}: {row}");
    }
    assert_eq!((&row["policy"], &row["event_channels"]), (&"staging".into(), &30.into()));
    for key in ["connect_s", "mpps", "reference_mpps"] {
        assert!(row[key].as_f64().is_some_and(|n| n > 0.0), "{key}: {row}");
    }
}

#[test]
fn more_active_vifs_than_there_are_is_refused() {
    let output = finish(grantway_with(&["bench", "scale", "--vifs", "3", "--active", "4"]), PROMPT);
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert!(words(&output).contains("expected at most as many"), "{}", words(&output));
}
