//! `grantway backend --metrics`: what Prometheus's own tool says of it, and clients that do
//! it no good.

mod common;

use common::site::{MAC, Site};
use common::{PROMPT, alone, wait_for};
use grantway_needs::{Need, met};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// An address that is free now.
fn address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address")
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("the exporter listens");
    stream.set_read_timeout(Some(PROMPT)).expect("a timeout");
    stream
}

/// Returns the head and the body of the answer.
fn ask(at: SocketAddr, request: &str) -> (String, String) {
    let mut stream = connect(at);
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    (head.to_owned(), body.to_owned())
}

fn scrape(at: SocketAddr) -> String {
    let (head, body) = ask(at, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    body
}

#[test]
fn prometheus_reads_all_metrics() {
    let _alone = alone();
    let (site, at) = (Site::start(), address());
    site.attach(&format!("mac={MAC}"));
    let _backend = site.backend(None, &["--port", "check", "--metrics", &at.to_string()]);
    let _frontend = site.frontend(None, &["--port", "generator:size=64,rate=5000"]);
    site.wait_connected();
    let vif = "{domid=\"1\",devid=\"0\"";
    let packets = format!("grantway_vif_packets_total{vif},direction=\"tx\"}}");
    let text = wait_for("packets in the metrics", PROMPT, || {
        let text = scrape(at);
        let line = text.lines().find(|line| line.starts_with(&packets))?;
        (!line.ends_with(" 0")).then(|| text.clone())
    });
    for part in
        ["grantway_vif_info", "grantway_queue_packets_total", "queue=\"0\"", "reason=\"grant\""]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // What all vifs share: a confined backend may still count its descriptors.
    let budget = |what: &str, of: &str| -> f64 {
        let name = format!("grantway_budget_{what}{{of=\"{of}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap_or_else(|| panic!("no {name:?} in {text}")).parse().expect("a number")
    };
    for of in ["pages", "areas", "descriptors", "waiting_bytes", "stations"] {
        let (used, limit) = (budget("used", of), budget("limit", of));
        assert!(used <= limit && limit > 0.0, "{of}: {used} of {limit}");
    }
    assert!(budget("used", "descriptors") > 10.0, "{text}");
    if !met(&[Need::Program("promtool", "prometheus")]) {
        return;
    }
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    tool.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    let output = tool.wait_with_output().expect("its end");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{text}");
}

#[test]
fn slow_and_hostile_clients_cost_nobody_anything() {
    let _alone = alone();
    let (site, at) = (Site::start(), address());
    let mut backend = site.backend(None, &["--port", "null", "--metrics", &at.to_string()]);
    // Many who say nothing, or half a request.
    let silent: Vec<_> = (0..100).map(|_| connect(at)).collect();
    let mut half: Vec<_> = (0..8).map(|_| connect(at)).collect();
    for stream in &mut half {
        let _ = stream.write_all(b"GET /metrics HTT");
    }
    assert!(scrape(at).contains("grantway_platform_copies_total"));
    // Who was there the longest had to go.
    let mut first = silent.into_iter().next().expect("one");
    match first.read(&mut [0; 1]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("not closed: {other:?}"),
    }
    drop(half);

    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\0\u{ff}\r\n\r\n", "400"),
    ] {
        let (head, _) = ask(at, request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {head}");
    }
    // More than is borne.
    let mut endless = connect(at);
    let _ = endless.write_all(&[b'a'; 5000]);
    let mut answer = Vec::new();
    let _ = endless.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{answer:?}");
    // One that reads nothing of many answers.
    let asking: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = connect(at);
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            stream
        })
        .collect();
    assert!(scrape(at).contains("grantway_worker_queues"));
    drop(asking);
    assert!(backend.is_alive());
}

#[test]
fn without_its_address_a_backend_serves_without_metrics() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("its address").to_string();
    let mut backend = site.backend(None, &["--port", "null", "--metrics", &at]);
    backend.wait_said("runs without metrics", PROMPT);
    let said = backend.said();
    let parts = [format!("--metrics {at}"), "a free port".into(), "WARN".into()];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    let _frontend = site.frontend(None, &["--port", "null"]);
    site.wait_connected();
    assert!(backend.is_alive());
}
