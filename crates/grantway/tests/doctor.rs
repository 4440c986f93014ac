//! `grantway doctor` as a process: on a machine without Xen, and beside a live
//! embedded host.

mod common;

use common::site::Site;
use common::{PROMPT, alone, finish, grantway_with, is_root, wait_for, words};
use grantway_needs::skip;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn doctor(args: &[&str]) -> Output {
    finish(grantway_with(&[&["doctor"], args].concat()), PROMPT)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The findings as JSON, and how it ended.
fn findings(args: &[&str]) -> (Vec<Value>, Option<i32>) {
    let output = doctor(&[args, &["--json"]].concat());
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", words(&output)));
    let list = value["findings"].as_array().expect("findings").clone();
    let order = ["ok", "warn", "fail"];
    let place = |v: &Value| order.iter().position(|word| v == word).expect("a verdict");
    let worst = list.iter().map(|f| place(&f["verdict"])).max().expect("some");
    assert_eq!(value["verdict"], order[worst]);
    for finding in &list {
        let remedy = finding["remedy"].as_str();
        assert_eq!(remedy.is_none(), finding["verdict"] == "ok", "{finding}");
    }
    (list, output.status.code())
}

fn verdict(findings: &[Value], subject: &str) -> String {
    let found = findings.iter().find(|f| f["subject"] == subject);
    found.unwrap_or_else(|| panic!("{subject} in {findings:?}"))["verdict"].to_string()
}

#[test]
fn a_machine_without_xen_gets_one_line() {
    if Path::new("/dev/xen").exists() || Path::new("/sys/hypervisor/type").exists() {
        return skip("this machine runs on a hypervisor that it names");
    }
    let output = doctor(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    let text = out(&output);
    assert!(text.starts_with("FAIL  platform  not Xen: "), "{text}");
    assert!(text.contains(" -> ") && text.contains("grantway host --dir DIR"), "{text}");
    assert_eq!((text.lines().count(), output.stderr.len()), (1, 0), "{}", words(&output));
    let (list, status) = findings(&[]);
    assert_eq!((list.len(), status), (1, Some(1)));
}

#[test]
fn a_live_embedded_host_is_well() {
    let _alone = alone();
    let site = Site::start();
    let dir = site.path();
    let args = ["--host", dir.as_str()];
    // Nothing is attached, and nobody serves: nothing that fails.
    let (list, status) = findings(&args);
    assert_eq!((verdict(&list, "backend").as_str(), status), ("\"warn\"", Some(0)));
    site.attach("mac=00:16:3e:00:00:01");
    let (list, status) = findings(&args);
    assert_eq!((verdict(&list, "backend").as_str(), status), ("\"fail\"", Some(1)));
    assert_eq!(verdict(&list, "vif1.0"), "\"fail\"");

    let mut backend = site.backend(None, &["--port", "null"]);
    let _frontend = site.frontend(None, &["--port", "null"]);
    site.wait_connected();
    let output = doctor(&args);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    let text = out(&output);
    // What the machine has of TAPs, and of parts for a sandbox, is not the host's affair.
    let as_it_should = |line: &str| {
        let of_machine = line.starts_with("warn  sandbox ");
        line.starts_with("ok ") || of_machine || (!is_root() && line.contains("/dev/net/tun"))
    };
    assert!(text.lines().all(as_it_should), "{text}");
    assert!(text.contains("vif1.0") && text.contains("connected, 1 queue"), "{text}");

    // Killed: both ends still say Connected, and nobody serves.
    backend.kill();
    let (list, status) = wait_for("the doctor to see it", PROMPT, || {
        let found = findings(&args);
        (found.1 == Some(1)).then_some(found)
    });
    assert_eq!((verdict(&list, "vif1.0").as_str(), status), ("\"fail\"", Some(1)));
    let text = out(&doctor(&args));
    assert!(text.contains(&format!(" -> grantway backend --host {dir}")), "{text}");
}

#[test]
fn a_host_that_does_not_run() {
    let output = doctor(&["--host", "/nowhere/at all"]);
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(
        out(&output).contains("-> grantway host --dir '/nowhere/at all'"),
        "{}",
        words(&output)
    );
    let usage = doctor(&["--host", "/x", "--run-dir", "/y"]);
    assert_eq!(usage.status.code(), Some(2));
}
