//! `grantway top` over a running backend, by lines and as JSON.

mod common;

use common::site::{MAC, Site};
use common::{PROMPT, alone, finish, succeed, wait_for, words};
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

    // What the figures are of given samples is tested where they are made. Here each of
    // them comes, whenever this machine gets as far.
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    wait_for("a sample with packets of both queues, signals and work", PROMPT, || {
        let args = [&once[..], &["--json"]].concat();
        let json = succeed(site.command(None, "top", &args), PROMPT);
        let figures: Value = serde_json::from_str(&json).expect("JSON");
        let vif = &figures["backend-0"]["vifs"][0];
        let queues = vif["queues"].as_array().expect("queues");
        assert_eq!(queues.len(), 2, "{vif:#}");
        assert!(number(&vif["spn"]) >= number(&vif["ppn"]), "{vif:#}");
        let workers = figures["backend-0"]["workers"].as_array().expect("workers");
        let busy = workers.iter().any(|worker| number(&worker["busy"]) > 0.0);
        let flows = queues.iter().chain([vif]).all(|of| number(&of["tx_pps"]) > 0.0);
        (flows && busy && number(&vif["ppn"]) > 0.0).then_some(())
    });
}

#[test]
fn where_no_backend_runs_it_says_so() {
    let _alone = alone();
    let site = Site::start();
    let output = finish(site.command(None, "top", &["--once"]), PROMPT);
    let said = words(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no backend is running") && said.contains("--run-dir"), "{said}");
}
