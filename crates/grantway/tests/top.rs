//! `grantway top` over a running backend, by lines and as JSON.

mod common;

use common::site::{MAC, Site};
use common::{PROMPT, alone, finish, program, succeed, wait_for, words};
use grantway_needs::{Need, met};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

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

#[test]
fn keys_sort_and_quit_and_the_terminal_is_as_before() {
    let _alone = alone();
    if !met(&[Need::Program("script", "bsdutils")]) {
        return;
    }
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let _backend = site.backend(None, &["--port", "null"]);
    let program = program("grantway");
    // Two updates are an hour apart: all but the first comes from keys.
    let command = format!("{} top --host {} --interval 1h", program.display(), site.path());
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script");
    let mut keys = child.stdin.take().expect("its input");
    let mut output = child.stdout.take().expect("its output");
    let said = Arc::new(Mutex::new(Vec::new()));
    let reader = Arc::clone(&said);
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = output.read(&mut buffer) {
            reader.lock().expect("no panic").extend_from_slice(&buffer[..n]);
        }
    });
    let wait_said = |text: &str| {
        wait_for(text, PROMPT, || {
            let said = said.lock().expect("no panic");
            String::from_utf8_lossy(&said).contains(text).then_some(())
        });
    };
    wait_said("\x1b[?1049h");
    wait_said("by packets, lines 1-");
    keys.write_all(b"s").expect("a reader");
    wait_said("by drops, lines 1-");
    keys.write_all(b"q").expect("a reader");
    assert!(child.wait().expect("an end").success());
    reader.join().expect("no panic");
    let said = said.lock().expect("no panic");
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("vif1.0") && said.contains("\x1b[?1049l"), "{said:?}");
}
