//! `grantway top` over a running backend, by lines and as JSON.

mod common;

use common::site::{MAC, Site};
use common::{PROMPT, alone, finish, succeed, words};
use serde_json::Value;

#[test]
fn what_a_backend_does_now() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let _backend = site.backend(None, &["--port", "check", "--workers", "2"]);
    let flood = ["--port", "generator:size=64,rate=20000,flows=8", "--queues", "2"];
    let _frontend = site.frontend(None, &flood);
    site.wait_connected();

    let once = ["--once", "--interval", "0.3"];
    let text = succeed(site.command(None, "top", &once), PROMPT);
    for part in ["backend-0 on embedded", "worker 0", "worker 1", "vif1.0", "PPI", "posted"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "no terminal, no escapes: {text}");

    let json = succeed(site.command(None, "top", &[&once[..], &["--json"]].concat()), PROMPT);
    let figures: Value = serde_json::from_str(&json).expect("JSON");
    let vif = &figures["backend-0"]["vifs"][0];
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    assert!(number(&vif["tx_pps"]) > 1000.0, "{vif:#}");
    assert!(number(&vif["spn"]) >= number(&vif["ppn"]) && number(&vif["ppn"]) >= 1.0, "{vif:#}");
    let queues = vif["queues"].as_array().expect("queues");
    assert_eq!(queues.len(), 2, "{vif:#}");
    let sum: f64 = queues.iter().map(|queue| number(&queue["tx_pps"])).sum();
    assert!(sum > 1000.0, "{vif:#}");
    let workers = figures["backend-0"]["workers"].as_array().expect("workers");
    assert!(workers.iter().any(|worker| number(&worker["busy"]) > 0.0), "{figures:#}");
}

#[test]
fn where_no_backend_runs_it_says_so() {
    let _alone = alone();
    let site = Site::start();
    let output = finish(site.command(None, "top", &["--once"]), PROMPT);
    let said = words(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no backend runs") && said.contains("--run-dir"), "{said}");
}
