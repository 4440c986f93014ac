//! Packets by rules: real traffic while the file is loaded again, and what the
//! commands show of it.
//!
//! The traffic needs root, /dev/net/tun, `ip`, `ethtool`, `nstat`, `ping` and `iperf3`; where one
//! is missing, says `skipped` and passes.

mod common;

use common::link::Link;
use common::network::{Namespace, available};
use common::part::Part;
use common::site::Site;
use common::{PROMPT, alone, finish, grantway_with, say, succeed, words};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

const PROGRAMS: [&str; 5] = ["ip", "ethtool", "nstat", "ping", "iperf3"];
/// Each guest has its addresses, and nobody is asked at port 7777.
const RULES: &str = r#"
[[vif]]
name = "1.0"
mac = "00:16:3e:00:00:01"
addresses = ["10.99.1.1", "fd99:1::1"]
[[vif]]
name = "2.0"
mac = "00:16:3e:00:00:02"
addresses = ["10.99.1.2", "fd99:1::2"]
[[rule]]
name = "echo"
action = "accept"
network = "ipv4"
protocol = "icmp"
[[rule]]
name = "nobody"
action = "drop"
network = "ipv4"
protocol = "udp"
to-ports = 7777
"#;

fn shown(site: &Site, command: &[&str]) -> Value {
    let path = site.path();
    let words = [command, &["--json", "--host", &path]].concat();
    let text = succeed(grantway_with(&words), PROMPT);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// Checks the text for people, in 80 columns.
fn table(site: &Site, command: &[&str]) {
    let path = site.path();
    let text = succeed(grantway_with(&[command, &["--host", &path]].concat()), PROMPT);
    let mut lines = text.lines().filter(|line| !line.contains("rules.toml"));
    assert!(lines.all(|line| line.chars().count() <= 80), "{text}");
}

/// Returns true if a ping is answered.
fn is_heard(from: &Namespace, source: &str, to: &str) -> bool {
    let args = ["-q", "-c", "1", "-W", "1", "-I", source, to];
    finish(from.command_with("ping", &args), PROMPT).status.success()
}

fn packets(counts: &Value, name: &str) -> u64 {
    let counts = counts.as_array().expect("counts");
    let found = counts.iter().find(|count| count["name"] == name);
    found.and_then(|count| count["packets"].as_u64()).unwrap_or_else(|| panic!("no {name}"))
}

/// Writes the file, and waits until the backend has read it; whether it took it.
fn load(site: &Site, backend: &mut Part, path: &Path, text: &str) -> bool {
    let before = site.backend_report()["rules"]["loaded"].as_u64().expect("a number");
    std::fs::write(path, text).expect("the file");
    backend.signal(Signal::HUP);
    site.wait("the rules to be read", PROMPT, || {
        let rules = site.backend_report()["rules"].take();
        let loaded = rules["loaded"].as_u64()? > before;
        (loaded || rules["refused"].is_string()).then_some(loaded)
    })
}

#[test]
fn the_rules_of_a_bridge_are_loaded_again_under_load_and_nothing_is_lost() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let begin = Instant::now();
    let guests = [Namespace::new("r"), Namespace::new("s")];
    let site = Site::start();
    let path = site.file("rules.toml");
    std::fs::write(&path, RULES).expect("the file");
    for n in ["1", "2"] {
        let vif = format!("mac=00:16:3e:00:00:0{n}");
        succeed(site.command(None, "attach", &["--domain", n, &vif]), PROMPT);
    }
    let file = path.to_str().expect("a name");
    let mut backend = site.backend(None, &["--port", "bridge", "--rules", file]);
    let mut parts = Vec::new();
    for (n, guest) in (1..).zip(&guests) {
        let (domain, tap) = (format!("{n}"), format!("gwf{n}"));
        let args = ["--domain", &domain, "--devid", "0", "--tap", &tap];
        parts.push(Part::start("frontend", site.command(Some(guest), "frontend", &args)));
        guest.address(&tap, 1, n);
    }
    guests[0].wait_ping("10.99.1.2");
    let _server = guests[1].iperf_server(5201);
    let stop = AtomicBool::new(false);
    let (transfer, answered, text, loads) = std::thread::scope(|scope| {
        let load = scope.spawn(|| guests[0].iperf(&["-c", "10.99.1.2", "-n", "400M"], PROMPT));
        let pings = scope.spawn(|| {
            let pinged = guests[1].ping("10.99.1.1", 250, 56, "0.01");
            stop.store(true, SeqCst);
            pinged
        });
        let mut loads = 0;
        // Six at least, however soon the pings are through.
        while loads < 6 || !stop.load(SeqCst) {
            // Other rules each time, behind those that stay.
            let more = "[[rule]]\naction = \"drop\"\nnetwork = \"ipv6\"\n".repeat(loads % 3);
            assert!(self::load(&site, &mut backend, &path, &format!("{RULES}{more}")));
            loads += 1;
        }
        let (answered, text) = pings.join().expect("pings");
        (load.join().expect("iperf3"), answered, text, loads)
    });
    say(format!("{loads} loads under load: {:.3} Gbit/s, {answered} of 250 pings", transfer.gbps));
    assert_eq!(answered, 250, "{text}");
    assert!(loads > 5, "{loads}");
    // A bad file is refused, where it is wrong, and the rules of before stay.
    assert!(!load(&site, &mut backend, &path, "[[rule]]\naction = \"dorp\"\n"));
    backend.wait_said("line 2, column 10: found \"dorp\"", PROMPT);
    let rules = shown(&site, &["rules", "show"]);
    assert!(rules["refused"].as_str().is_some_and(|why| why.contains("line 2")), "{rules:#}");
    assert!(packets(&rules["rules"], "echo") > 500, "{rules:#}");
    assert_eq!(packets(&rules["rules"], "nobody"), 0);
    table(&site, &["graph"]);
    let graph = shown(&site, &["graph"]);
    let nodes = graph["nodes"].as_array().expect("nodes");
    let spoof = nodes.iter().find(|node| node["name"] == "anti-spoofing").expect("a node");
    assert!(spoof["packets"].as_u64() > spoof["vectors"].as_u64(), "lists: {spoof}");
    // Who takes another's address is not heard any more.
    guests[0].ip(&["address", "add", "10.99.1.77/24", "dev", "gwf1"]);
    assert!(!is_heard(&guests[0], "10.99.1.77", "10.99.1.2"));
    site.wait("the guest's own address to be heard", PROMPT, || {
        is_heard(&guests[0], "10.99.1.1", "10.99.1.2").then_some(())
    });
    let graph = shown(&site, &["graph"]);
    let spoofed = |reason| graph["drops"][reason].as_u64().unwrap_or(0);
    assert!(spoofed("spoofed-ipv4") + spoofed("spoofed-arp") > 0, "{graph:#}");
    say(format!("all of it within {:.1} s", begin.elapsed().as_secs_f64()));
}

#[test]
fn rules_hold_between_a_guest_and_its_tap() {
    let _alone = alone();
    if !available(&PROGRAMS) {
        return;
    }
    let begin = Instant::now();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.toml");
    std::fs::write(&path, "").expect("the file");
    let file = path.to_str().expect("a name");
    let mut link = Link::start_with(1500, &["--rules", file], &[]);
    let lists = |link: &Link| {
        let graph = shown(&link.site, &["graph"]);
        let nodes = graph["nodes"].as_array().expect("nodes").clone();
        nodes.iter().filter_map(|node| node["vectors"].as_u64()).sum::<u64>()
    };
    assert_eq!(lists(&link), 0, "a file without rules costs nothing");
    let rules = "[[rule]]\nname = \"no echo\"\naction = \"drop\"\nnetwork = \"ipv4\"\n\
                 protocol = \"icmp\"\nvif = \"1.0\"\n[[filter]]\nname = \"tcp\"\n\
                 action = \"pass\"\nnetwork = \"ipv4\"\nprotocol = \"tcp\"\n";
    assert!(load(&link.site, &mut link.backend, &path, rules));
    assert!(!is_heard(&link.pair.inside, "10.99.1.2", "10.99.1.1"));
    for reverse in [false, true] {
        let mut args = vec!["-c", "10.99.1.1", "-n", "200M"];
        args.extend(["-R"].into_iter().filter(|_| reverse));
        let transfer = link.iperf(&args);
        say(format!("by rules, reverse {reverse}: {:.3} Gbit/s", transfer.gbps));
    }
    link.pair.check_checksums("rules");
    let shown = shown(&link.site, &["rules", "show"]);
    assert!(packets(&shown["rules"], "no echo") >= 1, "{shown:#}");
    assert!(packets(&shown["filters"], "tcp") > 1000, "{shown:#}");
    table(&link.site, &["rules", "show"]);
    assert!(load(&link.site, &mut link.backend, &path, ""));
    link.site.wait("the guest to be heard without rules", PROMPT, || {
        is_heard(&link.pair.inside, "10.99.1.2", "10.99.1.1").then_some(())
    });
    link.frontend.terminate();
    link.backend.terminate();
    say(format!("all of it within {:.1} s", begin.elapsed().as_secs_f64()));
}

#[test]
fn a_file_of_rules_is_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.toml");
    let check = |text: &str| {
        std::fs::write(&path, text).expect("a file");
        finish(grantway_with(&["rules", "check", path.to_str().expect("a name")]), PROMPT)
    };
    let good =
        check("[firewall]\ndefault = \"drop\"\n[[rule]]\naction = \"accept\"\nto-ports = 22\n");
    let said = String::from_utf8_lossy(&good.stdout).into_owned();
    assert!(
        good.status.success() && said.contains("valid: 0 vifs") && said.contains("1 rule,"),
        "{said}"
    );
    let bad = check("[[rule]]\naction = \"accept\"\nto-port = 22\n");
    assert_eq!(bad.status.code(), Some(1), "{}", words(&bad));
    let said = String::from_utf8_lossy(&bad.stdout).into_owned();
    assert!(bad.stderr.is_empty(), "{}", words(&bad));
    for part in [
        "rules.toml: line 3, column 1",
        "\"to-port\"",
        "did you mean \"to-ports\"?",
        "  3 | to-port = 22",
        "invalid: 1 fault",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let file = path.to_str().expect("a name");
    let json = finish(grantway_with(&["rules", "check", file, "--json"]), PROMPT);
    assert_eq!(json.status.code(), Some(1), "{}", words(&json));
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["valid"], &json["faults"][0]["line"]), (&false.into(), &3.into()));
    let missing = finish(grantway_with(&["rules", "check", "/nowhere/rules.toml"]), PROMPT);
    assert_eq!(missing.status.code(), Some(1));
    assert!(words(&missing).contains("expected a rules file"), "{}", words(&missing));
}
