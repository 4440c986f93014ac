//! `grantway ctl` against a running frontend and backend: what it sets is where
//! frames go, and what cannot be is told in one line. Needs neither root nor Xen.

mod common;

use common::part::Part;
use common::site::Site;
use common::{PROMPT, alone, finish, grantway_with, succeed, wait_for, words};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const KEY: &str =
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

/// The arguments of `ctl` for domain 1's vif 0.
fn ctl<'a>(site: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["ctl", "--host", site, "--domain", "1", "hash"], args].concat()
}

fn done(site: &str, args: &[&str]) -> String {
    succeed(grantway_with(&ctl(site, args)), PROMPT)
}

/// A command that must end with `status` and one line that holds `parts`.
#[track_caller]
fn refused(site: &str, args: &[&str], status: i32, parts: &[&str]) {
    let output = finish(grantway_with(&ctl(site, args)), PROMPT);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {}", words(&output));
    assert!(output.stdout.is_empty(), "{args:?}: {}", words(&output));
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{args:?}: no {part:?} in {said}");
    }
}

/// Both ends with four queues, frames going to the guest.
fn start(site: &Site) -> (Part, Part) {
    site.attach("");
    let generator = "generator:size=60,flows=16,rate=2000";
    let backend = site.backend(None, &["--port", generator, "--workers", "2"]);
    let frontend = site.frontend(None, &["--port", "null", "--queues", "4"]);
    site.wait_connected();
    (backend, frontend)
}

/// Waits until frames arrive on these queues and, of four for each flow, on no others.
#[track_caller]
fn arrive_on(site: &Site, queues: &[usize]) {
    let counts = || -> Vec<u64> {
        let report = site.frontend_report();
        let queues = report["queues"].as_array().expect("queues");
        queues.iter().map(|queue| queue["stats"]["rx_packets"].as_u64().unwrap()).collect()
    };
    wait_for(&format!("frames on queues {queues:?} alone"), PROMPT, || {
        let before = counts();
        let after = wait_for("frames of all flows", PROMPT, || {
            let after = counts();
            let came: u64 = after.iter().sum::<u64>() - before.iter().sum::<u64>();
            (came >= 4 * 16).then_some(after)
        });
        let moved: Vec<usize> = (0..4).filter(|&n| after[n] > before[n]).collect();
        (moved == queues).then_some(())
    });
}

#[test]
fn frames_go_to_the_queues_that_were_set() {
    let _alone = alone();
    let site = Site::start();
    let path = site.path();
    let (mut backend, mut frontend) = start(&site);
    let unset = "hash: not set; the backend chooses among 4 queues";
    assert_eq!(done(&path, &["show"]).trim(), unset);
    arrive_on(&site, &[0, 1, 2, 3]);
    let said = done(&path, &["set", "--key", KEY, "--mapping", "2,2,2"]);
    assert!(said.contains("hash: set") && said.contains(KEY), "{said}");
    assert!(said.contains("types: ipv4,ipv4-tcp,ipv6,ipv6-tcp"), "{said}");
    assert!(said.contains("mapping: 2,2,2"), "{said}");
    arrive_on(&site, &[2]);
    // Clients that say nothing, or nonsense, hold nobody up.
    let socket = site.file("frontend-1.0.ctl");
    let silent: Vec<_> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut odd = UnixStream::connect(&socket).unwrap();
    odd.write_all(b"{\"hash-set\":{\"types\":99,\"key\":\"00\",\"mapping\":[]}}\n").unwrap();
    let mut told = String::new();
    odd.read_to_string(&mut told).unwrap();
    assert!(told.contains("refused") && told.contains("0x63"), "{told}");
    let json: Value = serde_json::from_str(&done(&path, &["show", "--json"])).unwrap();
    assert_eq!((&json["state"], &json["queues"]), (&"set".into(), &4.into()), "{json}");
    assert_eq!(json["setting"]["key"], KEY);
    drop(silent);
    // The backend goes and comes: killed, a successor goes on; closed, it is set anew.
    for close in [false, true] {
        match close {
            false => backend.kill(),
            true => backend.interrupt(),
        }
        backend = site.backend(None, &["--port", "generator:size=60,flows=16,rate=2000"]);
        site.wait_connected();
        wait_for("the hash", PROMPT, || done(&path, &["show"]).contains("hash: set").then_some(()));
        arrive_on(&site, &[2]);
    }
    // Refused by the vif: hashing is off, and the next one is taken.
    refused(&path, &["set", "--mapping", "0,4"], 1, &["names queue 4", "has 4, counted from 0"]);
    assert!(done(&path, &["show"]).contains("refused"));
    assert!(done(&path, &["set"]).contains("modulo"), "a random key, no table");
    assert!(done(&path, &["set", "--algorithm", "none"]).contains("not set"));
    arrive_on(&site, &[0, 1, 2, 3]);
    backend.terminate();
    let told = done(&path, &["show"]);
    assert!(told.contains("not set"), "{told}");
    frontend.terminate();
    assert!(!socket.exists());
}

/// A command line that must end with 2, and one line that says what was found and
/// what was expected.
#[track_caller]
fn misused(args: &[&str], found: &str, expected: &str) {
    let output = finish(grantway_with(args), PROMPT);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", words(&output));
    assert!(output.stdout.is_empty(), "{args:?}: {}", words(&output));
    let said = String::from_utf8(output.stderr).expect("text");
    let right = said.lines().count() == 1 && said.contains(found) && said.contains(expected);
    assert!(right, "{args:?}: expected one line with {found:?} and {expected:?}: {said}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let long = "00".repeat(41);
    let types = "possible values: ipv4, ipv4-tcp, ipv6, ipv6-tcp";
    let key = "expected 1 to 40 bytes of two hexadecimal digits each";
    let queue = "expected a whole number from 0 to 15";
    let pages = "expected a whole number from 1 to 65536";
    let none = "remove one of the two";
    for (args, found, expected) in [
        (&["hash"][..], "requires a subcommand", "subcommands: show, set"),
        (&["hash", "turn"], "'turn'", "--help"),
        (&["hash", "show", "all"], "'all'", "--help"),
        (&["hash", "show", "--json=yes"], "'yes'", "--help"),
        (&["hash", "set", "--types", "udp"], "'udp'", types),
        (&["hash", "set", "--types", "ipv4,,ipv6"], "--types", types),
        (&["hash", "set", "--types", ""], "--types", types),
        (&["hash", "set", "--types"], "--types", types),
        (&["hash", "set", "--key", ""], "--key", key),
        (&["hash", "set", "--key", "6d5"], "'6d5'", key),
        (&["hash", "set", "--key", "0x6d"], "'0x6d'", key),
        (&["hash", "set", "--key", "6dé0"], "'6dé0'", key),
        (&["hash", "set", "--key", &long], &long, key),
        (&["hash", "set", "--mapping", "0,x"], "'x'", queue),
        (&["hash", "set", "--mapping", "0,,1"], "''", queue),
        (&["hash", "set", "--mapping", "16"], "'16'", queue),
        (&["hash", "set", "--mapping", "-1"], "'-1'", queue),
        (&["hash", "set", "--mapping", "99999999999999999999"], "'9999", queue),
        (&["hash", "set", "--algorithm", "crc"], "'crc'", "possible values: toeplitz, none"),
        (&["hash", "set", "--algorithm"], "--algorithm", "possible values: toeplitz, none"),
        (&["hash", "set", "--algorithm", "none", "--key", "00"], "--key", none),
        (&["hash", "set", "--algorithm", "none", "--mapping", "0"], "--mapping", none),
        (&["hash", "set", "--speed", "9"], "'--speed'", "--help"),
        (&["staging"], "requires a subcommand", "subcommands: show, add, remove"),
        (&["staging", "turn"], "'turn'", "--help"),
        (&["staging", "show", "--csv"], "'--csv'", "--help"),
        (&["staging", "show", "0"], "'0'", "--help"),
        (&["staging", "add"], "<PAGES>", "not provided"),
        (&["staging", "add", "x"], "'x'", pages),
        (&["staging", "add", "0"], "'0'", pages),
        (&["staging", "add", "65537"], "'65537'", pages),
        (&["staging", "remove", "-1"], "'-1'", pages),
        (&["staging", "remove", "1.5"], "'1.5'", pages),
        (&["staging", "remove", "1", "2"], "'2'", "--help"),
        (&["staging", "remove", "1", "--queue", "16"], "'16'", queue),
        (&["staging", "remove", "1", "--queue", "-1"], "'-1'", queue),
        (&["staging", "remove", "1", "--queue", ""], "--queue", queue),
        (&["staging", "remove", "1", "--queue", "all"], "'all'", queue),
    ] {
        misused(&[&["ctl", "--host", "/none", "--domain", "1"], args].concat(), found, expected);
    }
    let show = ["hash", "show"];
    let domain = "expected a whole number from 1 to 32751";
    let devid = "expected a whole number from 0 to 65535";
    for (args, found, expected) in [
        (&["--domain", "1"][..], "required arguments", "--host <DIR>"),
        (&["--host", "/none"], "required arguments", "--domain <N>"),
        (&["--host", "", "--domain", "1"], "--host <DIR>", "value is required"),
        (&["--host", "/none", "--domain", "0"], "'0'", domain),
        (&["--host", "/none", "--domain", "32752"], "'32752'", domain),
        (&["--host", "/none", "--domain", "guest"], "'guest'", domain),
        (&["--host", "/none", "--domain", "-1"], "'-1'", domain),
        (&["--host", "/none", "--domain", "1", "--devid", "65536"], "'65536'", devid),
        (&["--host", "/none", "--domain", "1", "--devid", "-1"], "'-1'", devid),
        (&["--host", "/none", "--domain", "1", "--devid", "x"], "'x'", devid),
        (&["--host", "/none", "--domain", "1", "--domain", "2"], "--domain", "multiple times"),
    ] {
        misused(&[&["ctl"], args, &show].concat(), found, expected);
    }
    misused(&["ctl", "--host", "/none", "--domain", "1"], "requires a subcommand", "hash, staging");
    // What is in order and cannot be done is another matter.
    let site = Site::start();
    let path = site.path();
    refused(
        &path,
        &["show"],
        1,
        &["no frontend is running for vif 0 of domain 1", "grantway frontend"],
    );
    // Of the Xen domain that this machine is there is no number to give.
    let own = finish(grantway_with(&["ctl", "--run-dir", "/none", "hash", "show"]), PROMPT);
    assert_eq!(own.status.code(), Some(1));
    assert!(words(&own).contains("/none/frontend-0.ctl"), "{}", words(&own));
    refused("/none", &["show"], 1, &["/none", "no frontend is running", "grantway frontend"]);
}
