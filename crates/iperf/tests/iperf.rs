//! Tests of `grantway iperf` against Debian's iperf 2 behind the backend's TAP, and against itself
//! by the backend's bridge.
//!
//! The first kind needs root, /dev/net/tun, `ip`, `nstat` and `iperf`. If one of them is missing,
//! the test says `skipped` and passes.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::network::{Namespace, available};
use common::part::Part;
use common::site::{MAC, Site};
use common::{PROMPT, alone, finish, say, succeed, words};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Output};

/// Bytes that each stream of TCP sends.
const BYTES: u64 = 8_000_000;
/// Bytes that each stream of UDP sends: whole datagrams of 1450 and of 1470 bytes.
const UDP_BYTES: u64 = 852_600;

/// Returns the bytes of a stream as an argument.
fn amount(udp: bool) -> String {
    if udp { UDP_BYTES } else { BYTES }.to_string()
}

/// Returns a command for one end, with a guest's vif and the addresses of its stack.
fn guest<'a>(site: &Site, end: &str, domain: &'a str, more: &[&'a str]) -> Command {
    let (four, six) = (format!("10.99.1.1{domain}/24"), format!("fd99:1::1{domain}/64"));
    let mut command = common::grantway_with(&["iperf", end]);
    command.arg("--host").arg(site.dir()).args(["--domain", domain]);
    command.args(["--address", &four, "--address", &six, "--json"]).args(more);
    command
}

/// Starts a server in a guest, and waits until it is ready.
fn server(site: &Site, domain: &str, more: &[&str]) -> Part {
    let mut part = Part::spawn("iperf server", guest(site, "server", domain, more));
    part.wait_line("ready", |line| line == r#"{"kind":"ready"}"#);
    part
}

/// Runs a client in a guest. Returns the line of this kind that it prints.
fn client(site: &Site, domain: &str, kind: &str, more: &[&str]) -> Value {
    let text = succeed(guest(site, "client", domain, more), PROMPT);
    let line = lines(&text).into_iter().find(|line| line["kind"] == kind);
    line.unwrap_or_else(|| panic!("no {kind} in {text}"))
}

fn lines(text: &str) -> Vec<Value> {
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}"));
    text.lines().map(line).collect()
}

fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or_else(|| panic!("no {key} in {line}"))
}

/// Returns the fields of a line of Debian's iperf, as its `-y C` prints it: bytes, and, in a line
/// of a server of UDP, lost and all datagrams.
fn fields(text: &str) -> (u64, Option<(u64, u64)>) {
    let line = text.lines().last().unwrap_or_else(|| panic!("nothing from iperf"));
    let fields: Vec<&str> = line.split(',').collect();
    let number = |at: usize| fields.get(at).and_then(|n| n.parse::<u64>().ok());
    let bytes = number(7).unwrap_or_else(|| panic!("no bytes in {line}"));
    (bytes, number(10).zip(number(11)))
}

/// A backend with a TAP in a namespace, where Debian's iperf is, at 10.99.1.1.
struct Outside {
    _backend: Part,
    site: Site,
    namespace: Namespace,
}

impl Outside {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts the backend with further options.
    fn start_with(options: &[&str]) -> Self {
        let namespace = Namespace::new("i");
        let site = Site::start();
        site.attach(&format!("mac={MAC},vifname=gwi1"));
        let backend = site.backend(Some(&namespace), options);
        common::wait_for("the TAP", PROMPT, || namespace.interface("gwi1"));
        namespace.address("gwi1", 1, 1);
        Self { _backend: backend, site, namespace }
    }

    fn check_checksums(&self) {
        let bad = self.namespace.checksum_errors();
        assert!(bad.is_empty(), "bad checksums: {bad:?}");
    }
}

#[test]
fn debians_iperf_sends_to_ours() {
    let _alone = alone();
    if !available(&["ip", "nstat", "iperf"]) {
        return;
    }
    let outside = Outside::start();
    for (kind, options) in [("TCP", &[][..]), ("UDP", &["-u"])] {
        let amount = amount(kind == "UDP");
        let ours = ["--policy", "staging", "--tests", "2"];
        let mut server = server(&outside.site, "1", &[&ours[..], options].concat());
        for to in ["10.99.1.11", "fd99:1::11"] {
            let mut args = vec!["-c", to, "-n", &amount, "-y", "C"];
            args.extend(options);
            args.extend(if options.is_empty() { &[][..] } else { &["-b", "20M"] });
            args.extend(["-V"].iter().filter(|_| to.contains(':')));
            let text = succeed(outside.namespace.command_with("iperf", &args), PROMPT);
            let (sent, _) = fields(&text);
            let end = server.wait_line("the end", |line| line.contains(r#""kind":"end""#));
            let end: Value = serde_json::from_str(&end).expect("JSON");
            let came = number(&end, "bytes");
            say(format!(
                "{kind} from iperf to {to}: {came} of {sent} bytes, {}",
                end["bits_per_second"]
            ));
            match kind {
                "TCP" => assert_eq!((came, sent), (BYTES, BYTES)),
                _ => {
                    // A socket may lose some datagrams, and the sender counts all.
                    let (lost, all) = (number(&end, "lost"), number(&end, "datagrams"));
                    let len = if to.contains(':') { 1450 } else { 1470 };
                    // The last datagram marks the end, and is sent beyond the bytes that were asked
                    // for.
                    assert!(lost < all && all == UDP_BYTES / len + 1, "{end}");
                    assert_eq!(came, (all - lost) * len, "{end}");
                }
            }
        }
        assert!(server.wait_end(PROMPT).success());
    }
    outside.check_checksums();
}

#[test]
fn ours_sends_to_debians_iperf() {
    let _alone = alone();
    if !available(&["ip", "nstat", "iperf"]) {
        return;
    }
    let outside = Outside::start();
    for more in [&[][..], &["--no-offloads"], &["-u", "-b", "20M"]] {
        for to in ["10.99.1.1", "fd99:1::1"] {
            if to.contains(':') && more.contains(&"--no-offloads") {
                continue;
            }
            let mut args = vec!["-s", "-y", "C", "-P", "1"];
            args.extend(["-u"].iter().filter(|udp| more.contains(udp)));
            args.extend(["-V"].iter().filter(|_| to.contains(':')));
            let theirs = outside.namespace.command_with("iperf", &args);
            let theirs = std::thread::spawn(move || finish(theirs, PROMPT));
            // iperf does not say when it listens.
            let port = if more.contains(&"-u") { "udp" } else { "tcp" };
            common::wait_for("iperf to listen", PROMPT, || {
                let sockets = outside.namespace.run("ss", &["-lnH", &format!("--{port}")]);
                sockets.contains(":5001").then_some(())
            });
            let amount = amount(port == "udp");
            let ours = [&["-c", to, "-n", &amount], more].concat();
            let end = client(&outside.site, "1", "end", &ours);
            let output = theirs.join().expect("iperf");
            let (came, counts) = fields(&String::from_utf8_lossy(&output.stdout));
            let sent = number(&end, "bytes");
            say(format!("{} to iperf at {to}: {came} of {sent} bytes", more.join(" ")));
            match counts {
                Some((lost, all)) if port == "udp" => {
                    assert!(sent >= UDP_BYTES && lost < all, "{end}: {lost} of {all} lost");
                }
                _ => assert_eq!((came, sent), (BYTES, BYTES), "{}", words(&output)),
            }
        }
    }
    outside.check_checksums();
}

/// Checks that all bytes come through a host that drops one frame of a hundred, both ways: between
/// our stack and the kernel's, whose TCP is the other end, by segments and by large frames.
#[test]
fn tcp_outlives_loss_between_our_stack_and_the_kernels() {
    let _alone = alone();
    if !available(&["ip", "nstat", "iperf", "nft"]) {
        return;
    }
    // The kernel sees each segment, so that it can drop single ones.
    let outside = Outside::start_with(&["--merge", "off"]);
    outside.namespace.run("nft", &["add table inet loss"]);
    for hook in ["input", "output"] {
        let chain = format!("add chain inet loss {hook} {{ type filter hook {hook} priority 0; }}");
        outside.namespace.run("nft", &[&chain]);
        // Every hundredth frame is dropped, so the number of losses does not depend on chance.
        let rule =
            format!("add rule inet loss {hook} meta l4proto tcp numgen inc mod 100 == 0 drop");
        outside.namespace.run("nft", &[&rule]);
    }
    let (bytes, log) = ("3000000", outside.site.file("stack.jsonl"));
    let log = log.to_str().expect("a path");
    for (control, more) in [("cubic", "--no-offloads"), ("reno", "--no-offloads"), ("cubic", "-i1")]
    {
        let theirs = outside.namespace.command_with("iperf", &["-s", "-y", "C", "-P", "1"]);
        let theirs = std::thread::spawn(move || finish(theirs, PROMPT));
        common::wait_for("iperf to listen", PROMPT, || {
            let sockets = outside.namespace.run("ss", &["-lnH", "--tcp"]);
            sockets.contains(":5001").then_some(())
        });
        let ours =
            ["-c", "10.99.1.1", "-n", bytes, "--congestion", control, "--stack-log", log, more];
        let end = client(&outside.site, "1", "end", &ours);
        let output = theirs.join().expect("iperf");
        let (came, _) = fields(&String::from_utf8_lossy(&output.stdout));
        assert_eq!((came, number(&end, "bytes")), (3_000_000, 3_000_000), "{}", words(&output));
        let text = std::fs::read_to_string(log).expect("the log");
        let last = lines(&text).pop().expect("a line");
        say(format!(
            "{control} {more}: {} bit/s, {} segments again, {} timeouts, {} fast",
            end["bits_per_second"], last["again"], last["timeouts"], last["fast"]
        ));
        assert_eq!((number(&last, "sent"), number(&last, "acked")), (3_000_000, 3_000_000));
        // More than 2,000 segments lose 20 at least, and smoltcp makes several of them at once.
        // Large frames may be too few to lose any.
        assert!(more == "-i1" || number(&last, "again") >= 10, "{last}");
    }
    // The kernel sends again what is lost on the way to us, and our window takes it in order.
    let mut server = server(&outside.site, "1", &["--tests", "1", "--no-offloads"]);
    let args = ["-c", "10.99.1.11", "-n", bytes, "-y", "C"];
    succeed(outside.namespace.command_with("iperf", &args), PROMPT);
    let end = server.wait_line("the end", |line| line.contains(r#""kind":"end""#));
    assert_eq!(number(&serde_json::from_str(&end).expect("JSON"), "bytes"), 3_000_000);
    assert!(server.wait_end(PROMPT).success());
}

#[test]
fn guests_send_to_each_other_without_any_kernel() {
    let _alone = alone();
    let (_backend, site) = Site::bridged();
    for policy in ["copy", "staging"] {
        let mut server = server(&site, "1", &["--policy", policy, "-i", "0.1"]);
        for (to, more) in [
            ("10.99.1.11", &[][..]),
            ("fd99:1::11", &["-P", "3"]),
            ("10.99.1.11", &["--no-offloads"]),
        ] {
            if policy == "copy" && !more.is_empty() {
                continue;
            }
            let amount = amount(false);
            let args = [&["-c", to, "-n", &amount, "--policy", policy], more].concat();
            let (kind, streams) = if more.contains(&"-P") { ("sum", 3) } else { ("end", 1) };
            let sent = client(&site, "2", kind, &args);
            let mut came = 0;
            for _ in 0..streams {
                let end = server.wait_line("the end", |line| line.contains(r#""kind":"end""#));
                came += number(&serde_json::from_str(&end).expect("JSON"), "bytes");
            }
            say(format!("{policy}, to {to} {}: {}", more.join(" "), sent["bits_per_second"]));
            assert_eq!((came, number(&sent, "bytes")), (streams * BYTES, streams * BYTES));
        }
        server.signal(Signal::TERM);
        assert!(server.wait_end(PROMPT).success());
    }
    let _server = server(&site, "1", &["-u"]);
    for to in ["10.99.1.11", "fd99:1::11"] {
        let amount = amount(true);
        let args = ["-c", to, "-n", &amount, "-u", "-b", "20M", "-l", "1000"];
        let told = client(&site, "2", "server", &args);
        let (lost, all) = (number(&told, "lost"), number(&told, "datagrams"));
        assert!(lost < all && all == UDP_BYTES.div_ceil(1000), "{told}");
        assert_eq!(number(&told, "bytes"), (all - lost) * 1000, "{told}");
    }
}

/// Checks that short connections end. Each of them resolves an address anew, and shakes hands.
/// Schedules test that none waits for a lost wake-up: `stalls` of the backend's simulation.
/// `GRANTWAY_IPERF_RUNS` sets the number of connections.
#[test]
fn short_connections_all_end() {
    let _alone = alone();
    let runs = std::env::var("GRANTWAY_IPERF_RUNS").ok().and_then(|runs| runs.parse().ok());
    let (_backend, site) = Site::bridged();
    let _server = server(&site, "1", &[]);
    let mut longest = 0.0_f64;
    for _ in 0..runs.unwrap_or(8) {
        let end = client(&site, "2", "end", &["-c", "10.99.1.11", "-n", "1000"]);
        longest = longest.max(end["connect_ms"].as_f64().expect("milliseconds"));
    }
    say(format!("the longest waited {longest:.1} ms for its server"));
}

#[test]
fn impossible_requests_are_refused_in_one_line() {
    let _alone = alone();
    let (_backend, site) = Site::bridged();
    let check = |output: &Output, status: i32, parts: &[&str]| {
        assert_eq!(output.status.code(), Some(status), "{}", words(output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = said.lines().last().unwrap_or_default();
        for part in parts {
            assert!(last.starts_with("grantway") && last.contains(part), "{part:?} in {said}");
        }
    };
    let refused = |end: &str, args: &[&str], status: i32, parts: &[&str]| {
        check(&finish(guest(&site, end, "2", args), PROMPT), status, parts);
    };
    let _server = server(&site, "1", &[]);
    refused("client", &["-c", "10.99.1.11", "-p", "9"], 1, &["refuses connections"]);
    // The client's limit has to pass. On a slow machine it may pass before the server's address is
    // known: then the client is run again.
    let output = common::wait_for("a server that does not report", PROMPT, || {
        let mut client = guest(&site, "client", "2", &["-c", "10.99.1.11", "-u", "-n", "1000"]);
        client.env_remove(common::PATIENCE.0);
        let output = finish(client, PROMPT);
        let early = ["no host has", "the backend does not connect"];
        let said = words(&output);
        (!early.iter().any(|why| said.contains(why))).then_some(output)
    });
    check(&output, 1, &["sends no report", "iperf -s"]);
    refused("client", &["-c", "10.99.1.11", "-u", "-l", "1473"], 2, &["1473", "1472"]);
    refused("server", &["--gateway", "here"], 2, &["expected an IPv4"]);
    refused("client", &["-c", "10.99.1.11", "--devid", "7"], 1, &["no vif 7 is attached"]);
}
