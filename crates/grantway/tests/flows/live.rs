//! Flows of a running backend. Two guests on its bridge send to each other by stacks in user space,
//! so that only grantway is needed.

use super::common::part::Part;
use super::common::site::Site;
use super::common::{PROMPT, alone, finish, say, succeed, wait_for, words};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn guest(site: &Site, end: &str, domain: &str, more: &[&str]) -> Command {
    let address = format!("10.99.1.1{domain}/24");
    // Which the command runs.
    super::common::program("grantway-iperf");
    let mut command = super::common::grantway_with(&["iperf", end, "--json"]);
    command.arg("--host").arg(site.dir()).args(["--domain", domain, "--address", &address]);
    command.args(more);
    command
}

/// `grantway flows` of the backend of this host, once it listens, and what it writes.
fn listen(site: &Site, name: &str) -> (Part, PathBuf) {
    let file = site.file(name);
    let mut command = super::common::grantway_with(&["flows", "--json"]);
    command.arg("--host").arg(site.dir()).arg("--write").arg(&file);
    let part = Part::spawn("flows", command);
    wait_for("the capture to begin", PROMPT, || {
        std::fs::metadata(&file).ok().filter(|file| file.len() > 0)
    });
    (part, file)
}

/// Waits until a capture that is still written has so many flows of so many bytes each.
fn wait_captured(file: &Path, flows: usize, bytes: u64) {
    wait_for("the capture to have all that was sent", PROMPT, || {
        let output = finish(
            super::common::grantway_with(&["flows", "--json", file.to_str().expect("a path")]),
            PROMPT,
        );
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        let lost = report["skipped"]["lost"].as_u64().unwrap_or(0);
        let seen = report["flows"].as_array()?;
        let whole = |flow: &Value| payload(flow) + lost * 65_535 >= bytes;
        (seen.len() == flows && seen.iter().all(whole)).then_some(())
    });
}

/// Bytes of a flow's payload, both ways.
fn payload(flow: &Value) -> u64 {
    let directions = flow["directions"].as_array().into_iter().flatten();
    directions.filter_map(|direction| direction["payload_bytes"].as_u64()).sum()
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

#[test]
fn a_backend_shows_passing_packets() {
    let _alone = alone();
    let (mut backend, site) = Site::bridged();
    let mut server = Part::spawn("server", guest(&site, "server", "1", &[]));
    server.wait_line("ready", |line| line == r#"{"kind":"ready"}"#);
    let (mut flows, file) = listen(&site, "trace.pcapng");
    let path = file.to_str().expect("a path");

    // One listens; another one is told so, and the first one is not disturbed.
    let mut second = super::common::grantway_with(&["flows", "--seconds", "1"]);
    second.arg("--host").arg(site.dir());
    let second = finish(second, PROMPT);
    assert!(!second.status.success());
    assert!(words(&second).contains("another reader"), "{}", words(&second));

    let to = ["-c", "10.99.1.11", "-t", "0.3"];
    let log = site.file("stack.jsonl");
    let mut client = guest(&site, "client", "2", &to);
    client.arg("--stack-log").arg(&log);
    let sent = succeed(client, PROMPT);
    let end = sent.lines().map(read).find(|line| line["kind"] == "end").expect("an end");
    let bytes = end["bytes"].as_u64().expect("bytes");
    wait_captured(&file, 2, bytes);
    flows.interrupt();
    let text = flows.wait_line("the report", |line| line.starts_with('{'));
    assert!(flows.wait_end(PROMPT).success(), "{}", flows.said());

    // The flow as both vifs saw it: all that was sent crossed one's rings and the other's.
    let live = read(&text);
    let lost = live["skipped"]["lost"].as_u64().expect("a count");
    check(&live, bytes, lost);
    // Each flow says on which it was seen.
    let flows = live["flows"].as_array().expect("flows");
    let seen = |name: &str| flows.iter().any(|flow| flow["point_name"] == name);
    assert!(seen("vif1.0") && seen("vif2.0"), "{flows:?}");
    say(format!("{bytes} bytes, of {} packets {lost} lost", live["all"]["packets"]));
    // The sender's own stack says that it sent as much, on either vif.
    let log = ["--stack-log", log.to_str().expect("a path")];
    for flow in super::json(Path::new(path), &log)["flows"].as_array().expect("flows") {
        let [client, server] = [0, 1].map(|side| &flow["directions"][side]["stack"]);
        assert_eq!(client["sent_bytes"], bytes, "{flow}");
        assert!(client["samples"].as_u64() > Some(1) && server.is_null(), "{flow}");
        assert!(client["in_flight_max"].as_u64() > Some(0), "{flow}");
    }
    let told = super::run(Path::new(path), &[&log[..], &["--flow", "1"]].concat());
    let row = told.lines().find(|line| line.starts_with("bytes sent ")).unwrap_or_default();
    assert!(row.contains(&bytes.to_string()), "{told}");
    // And what was kept says the same.
    assert_eq!(super::json(Path::new(path), &[])["flows"], live["flows"]);

    // Nobody listens, and the backend serves; who comes then is shown what passes then.
    let (mut again, file) = listen(&site, "again.pcapng");
    succeed(guest(&site, "client", "2", &to), PROMPT);
    wait_captured(&file, 2, 1);
    again.interrupt();
    let text = again.wait_line("the report", |line| line.starts_with('{'));
    assert!(again.wait_end(PROMPT).success());
    assert_eq!(read(&text)["flows"].as_array().map(Vec::len), Some(2), "{text}");

    // It ends by itself when it was told how long.
    let mut short = super::common::grantway_with(&["flows", "--json", "--seconds", "0.3"]);
    short.arg("--host").arg(site.dir());
    assert_eq!(read(&succeed(short, PROMPT))["flows"].as_array().map(Vec::len), Some(0));

    // A backend that ends, ends what it shows.
    let (mut last, _) = listen(&site, "last.pcapng");
    backend.terminate();
    assert!(last.wait_end(PROMPT).success(), "{}", last.said());
    let gone = {
        let mut command = super::common::grantway_with(&["flows"]);
        command.arg("--host").arg(site.dir());
        finish(command, PROMPT)
    };
    assert!(!gone.status.success());
    assert!(words(&gone).contains("grantway backend"), "{}", words(&gone));
}

#[test]
fn segments_of_a_burst_come_as_one_packet_and_count_each() {
    let _alone = alone();
    let (_backend, site) = Site::bridged();
    let own = ["--no-offloads"];
    let mut server = Part::spawn("server", guest(&site, "server", "1", &own));
    server.wait_line("ready", |line| line == r#"{"kind":"ready"}"#);
    let (mut flows, file) = listen(&site, "trace.pcapng");
    // Fewer packets than a backend keeps for its reader, so none is lost.
    let (bytes, segment) = (3_000_000, 1460);
    let to = ["-c", "10.99.1.11", "-n", "3000000", "--no-offloads"];
    succeed(guest(&site, "client", "2", &to), PROMPT);
    wait_captured(&file, 2, bytes);
    flows.interrupt();
    let text = flows.wait_line("the report", |line| line.starts_with('{'));
    assert!(flows.wait_end(PROMPT).success(), "{}", flows.said());
    let report = read(&text);
    assert_eq!(report["skipped"]["lost"], 0, "{report}");
    for flow in report["flows"].as_array().expect("flows") {
        let client = &flow["directions"][0];
        assert_eq!(client["payload_bytes"], bytes, "{flow}");
        assert!(client["packets"].as_u64() >= Some(bytes / segment), "{flow}");
    }
    // What was written says how many each packet has.
    let written = std::fs::read(&file).expect("the capture");
    let comment = b"grantway:segments=";
    let merged = written.windows(comment.len()).filter(|bytes| bytes == comment).count();
    let (packets, blocks) = (report["all"]["packets"].as_u64(), blocks(&written));
    say(format!("{packets:?} packets in {blocks} blocks, {merged} of them merged"));
    assert!(merged > 0 && Some(blocks) < packets, "{report}");
    assert_eq!(super::json(&file, &[])["flows"], report["flows"]);
}

/// Number of packets of a pcapng file.
fn blocks(file: &[u8]) -> u64 {
    let (mut rest, mut packets) = (file, 0);
    while let Some([kind, length]) = rest.get(..8).map(|head| {
        [0, 4].map(|at| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")))
    }) {
        packets += u64::from(kind == 6);
        rest = &rest[length as usize..];
    }
    packets
}

#[test]
fn a_stall_behind_a_full_ring_is_reported_as_such() {
    let _alone = alone();
    // What the sender may send is gone within a moment, and comes back after 400 ms: its
    // ring is full meanwhile.
    let (_backend, site) = Site::bridged_with("rate=500KB/s@400ms");
    let mut server = Part::spawn("server", guest(&site, "server", "1", &[]));
    server.wait_line("ready", |line| line == r#"{"kind":"ready"}"#);
    // Which stall is which is tested with given traces. A sender that this machine leaves
    // standing has others, too: it goes on until some were behind its ring.
    let mut rounds = 0;
    wait_for("three stalls behind a full ring", PROMPT, || {
        rounds += 1;
        let (mut flows, file) = listen(&site, &format!("trace-{rounds}.pcapng"));
        let to = ["-c", "10.99.1.11", "-n", "1000000"];
        succeed(guest(&site, "client", "2", &to), PROMPT);
        wait_captured(&file, 2, 1);
        flows.interrupt();
        let text = flows.wait_line("the report", |line| line.starts_with('{'));
        assert!(flows.wait_end(PROMPT).success(), "{}", flows.said());
        let report = read(&text);
        let all = report["flows"].as_array().expect("flows");
        let sent = all.iter().find(|flow| flow["point_name"] == "vif2.0").expect("the sender's");
        let stalls = sent["stalls"].as_array().expect("stalls");
        let ring = stalls.iter().filter(|stall| stall["cause"] == "ring").count();
        say(format!("{} stalls, {ring} of them behind a full ring", stalls.len()));
        (ring >= 3).then_some(())
    });
}

/// Two flows, one a vif, each of at least so many payload bytes but for what was lost.
fn check(report: &Value, bytes: u64, lost: u64) {
    let flows = report["flows"].as_array().expect("flows");
    let mut points: Vec<_> = flows.iter().map(|flow| flow["point"].as_u64()).collect();
    points.sort_unstable();
    assert_eq!(points, [Some(0), Some(1)], "{report}");
    for flow in flows {
        let missed = lost * 65_535;
        assert!(payload(flow) + missed >= bytes && flow["server"] == "10.99.1.11:5001", "{flow}");
    }
}
