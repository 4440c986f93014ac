//! A vif with several queues: what both ends say of them, and numbered frames
//! that keep to the order of their flow. Needs neither root nor Xen.

mod common;

use common::site::{MAC, Site};
use common::{PROMPT, alone, finish, grantway_with, say, words};
use serde_json::Value;
use std::time::Instant;

/// Frames of each queue.
const FRAMES: u64 = 30_000;

#[test]
fn flows_keep_their_order_over_four_queues_both_ways() {
    let _alone = alone();
    for (workers, mode) in [("1", "adaptive"), ("2", "adaptive"), ("2", "interrupt")] {
        for from_guest in [true, false] {
            let site = Site::start();
            site.attach(&format!("mac={MAC}"));
            let generator = format!("generator:size=300,flows=16,count={FRAMES}");
            let (behind, within) =
                if from_guest { ("check", &*generator) } else { (&*generator, "check") };
            let start = Instant::now();
            let args = ["--port", behind, "--workers", workers, "--mode", mode];
            let mut backend = site.backend(None, &args);
            let args = ["--port", within, "--queues", "4", "--mode", mode];
            let mut frontend = site.frontend(None, &args);
            let checked = site.wait("every frame", PROMPT, || {
                let report = if from_guest { site.vif_report() } else { site.frontend_report() };
                let checked = report["port"]["checked"].clone();
                (checked["received"] == 4 * FRAMES).then_some(checked)
            });
            for key in ["lost", "duplicated", "reordered", "corrupt", "foreign"] {
                assert_eq!(checked[key], 0, "{workers} workers, {mode}: {checked}");
            }
            check_report(&site.frontend_report(), from_guest);
            let way = if from_guest { "from" } else { "to" };
            say(format!(
                "{} frames {way} the guest by 4 queues, {workers} workers, {mode}: within {:.2} s",
                4 * FRAMES,
                start.elapsed().as_secs_f64()
            ));
            frontend.terminate();
            backend.terminate();
        }
    }
}

/// Each queue by itself, and all of them summed.
fn check_report(report: &Value, from_guest: bool) {
    let queues = report["queues"].as_array().expect("queues");
    assert_eq!(queues.len(), 4, "{report:#}");
    let key = if from_guest { "tx_packets" } else { "rx_packets" };
    for (number, queue) in queues.iter().enumerate() {
        assert_eq!(queue["queue"], number, "{report:#}");
        assert_eq!(queue["stats"][key], FRAMES, "{report:#}");
        let passed = if from_guest { "received" } else { "sent" };
        assert_eq!(queue["port"][passed], FRAMES, "{report:#}");
    }
    assert_eq!(report["stats"][key], 4 * FRAMES, "{report:#}");
}

#[test]
fn a_frontend_uses_the_queues_that_its_backend_offers() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    for (offered, taken) in [("2", 2), ("1", 1), ("16", 4)] {
        let mut backend = site.backend(None, &["--port", "check", "--queues", offered]);
        let mut frontend =
            site.frontend(None, &["--port", "generator:size=100,rate=5k", "--queues", "4"]);
        site.wait_connected();
        let report = site.frontend_report();
        assert_eq!(report["queues"].as_array().map(Vec::len), Some(taken), "{report:#}");
        site.wait("frames", PROMPT, || {
            (site.vif_report()["port"]["checked"]["received"].as_u64()? > 100).then_some(())
        });
        frontend.terminate();
        backend.interrupt();
    }
}

#[test]
fn a_port_of_fewer_queues_is_refused_in_one_line() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let file = site.file("one.pcap");
    let port = format!("pcap:out={}", file.display());
    let path = site.path();
    let args =
        ["frontend", "--host", &path, "--domain", "1", "--port", port.as_str(), "--queues", "2"];
    let output = finish(grantway_with(&args), PROMPT);
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.starts_with("grantway frontend: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("supports 1 of 2 requested queues") && line.contains("--queues 1"),
        "{line}"
    );
}
