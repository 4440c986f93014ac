//! Impossible requests are refused in one line that names what was expected and the remedy. The
//! exit status is 2 for a wrong command line, and 1 for a command that failed.
//!
//! The rows that need TAPs need root, /dev/net/tun and `ip`.

mod common;

use common::network::{Namespace, available};
use common::part::Part;
use common::site::{MAC, Site};
use common::{PROMPT, Unprivileged, alone, finish, grantway_with, misused, wait_for, words};
use grantway_needs::{Need, met};
use std::process::Command;

/// Runs a command that must end with `status` and one line that holds `parts`.
fn refused(mut command: Command, status: i32, parts: &[&str]) {
    command.env("RUST_LOG", "error");
    let told = format!("{command:?}");
    let output = finish(command, PROMPT);
    assert_eq!(output.status.code(), Some(status), "{told}: {}", words(&output));
    assert!(output.stdout.is_empty(), "{told}: {}", words(&output));
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said.lines().count(), 1, "{told}: one line, not\n{said}");
    for part in parts {
        assert!(said.contains(part), "{told}: no {part:?} in: {said}");
    }
}

#[test]
fn a_wrong_vif_string_is_refused() {
    let _alone = alone();
    let site = Site::start();
    let keys = "mac, vifname, bridge, script, rate, mtu, devid, backend";
    let hexadecimal = "six pairs of hexadecimal digits";
    for (vif, status, parts) in [
        ("colour=red", 2, [r#"unknown vif key "colour""#, keys]),
        ("nonsense", 2, ["KEY=VALUE", keys]),
        ("mac=zz", 2, [r#"mac="zz""#, hexadecimal]),
        ("mac=00:16:3e:00:00", 2, ["00:16:3e:00:00", hexadecimal]),
        ("mac=01:00:00:00:00:01", 2, ["multicast", "make the first byte even"]),
        ("mac=00:16:3e:00:00:01,mac=00:16:3e:00:00:02", 2, ["given twice", "remove one"]),
        ("mtu=67", 2, [r#"mtu="67""#, "68 to 65535"]),
        ("mtu=65536", 2, [r#"mtu="65536""#, "68 to 65535"]),
        ("rate=fast", 2, [r#"rate="fast""#, "10Mb/s"]),
        ("devid=-1", 2, [r#"devid="-1""#, "0 to 65535"]),
        ("trusted=1", 2, [r#"unknown vif key "trusted""#, "trusted, untrusted"]),
        ("checksum=half", 2, [r#"checksum="half""#, "full or offload"]),
        ("trusted,untrusted", 2, ["given twice", "remove one"]),
        ("vifname=a-name-beyond-15", 2, ["at most 15", "choose a shorter one"]),
        ("vifname=a/b", 2, ["'/'", "letters, digits"]),
        ("model=e1000", 2, ["emulated", "remove it"]),
        ("backend=9", 1, ["domain 9 does not exist", "grantway attach"]),
    ] {
        refused(site.command(None, "attach", &["--domain", "1", vif]), status, &parts);
    }
    assert!(site.domain(1).is_null(), "a domain was made for a vif that was refused");
    site.attach(&format!("mac={MAC}"));
    let again = ["--domain", "1", "devid=0"];
    refused(site.command(None, "attach", &again), 1, &["already attached", "free: 1"]);
}

#[test]
fn missing_things_are_named() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let no_vif = ["--domain", "1", "--devid", "3", "--port", "null"];
    refused(site.command(None, "frontend", &no_vif), 1, &["no vif 3", "attach one first"]);
    let no_domain = ["--domain", "5", "--port", "null"];
    let parts = ["domain 5: found no running domain", "grantway attach"];
    refused(site.command(None, "frontend", &no_domain), 1, &parts);
    refused(site.command(None, "backend", &no_domain), 1, &parts);
    let no_vif = ["--domain", "1", "--devid", "5"];
    refused(site.command(None, "detach", &no_vif), 1, &["vif1.5 is not attached", "list"]);
    let no_domain = ["--domain", "5", "--devid", "0"];
    refused(site.command(None, "detach", &no_domain), 1, &["domain 5 does not exist", "list"]);
}

#[test]
fn two_processes_of_one_kind_are_refused() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let host = grantway_with(&["host", "--dir", &site.path()]);
    refused(host, 1, &["another host", "choose another --dir"]);
    let frontend = site.frontend(None, &["--port", "null"]);
    let second = site.command(None, "frontend", &["--domain", "1", "--port", "null"]);
    refused(second, 1, &[&format!("process {} runs domain 1", frontend.pid()), "stop it"]);
    let mut backend = site.backend(None, &["--port", "null"]);
    site.wait_connected();
    let second = site.command(None, "backend", &["--port", "null"]);
    refused(second, 1, &["backend", "stop it"]);
    assert!(backend.is_alive());
    // Nor did the second one's attempt cost the first one its socket.
    assert_eq!(site.vif_report()["connected"], true);
}

#[test]
fn a_second_backend_of_a_domain_is_refused_whatever_became_of_the_socket() {
    let _alone = alone();
    let site = Site::start();
    let mut first = site.backend(None, &["--port", "null"]);
    // So it looks to one of two that start at the same time.
    std::fs::remove_file(site.file("backend-0.sock")).expect("the first one's socket");
    let mut second = Part::spawn("second", site.command(None, "backend", &["--port", "null"]));
    let status = second.wait_end(PROMPT);
    assert_eq!(status.code(), Some(1));
    let process = format!("process {}", first.pid());
    let said = second.said();
    assert!(said.contains(&process) && said.contains("stop it first"), "{said}");
    assert!(first.is_alive());
    // A kill leaves the claim to the next one.
    first.kill();
    drop(site.backend(None, &["--port", "null"]));
}

#[test]
fn a_folder_without_a_host_is_refused_by_every_command() {
    let _alone = alone();
    let empty = tempfile::tempdir().expect("a folder");
    let empty = empty.path().to_str().expect("a plain name");
    for folder in ["/nonexistent/folder", "/etc/passwd", empty] {
        for args in [
            &["attach", "--domain", "1"][..],
            &["detach", "--domain", "1", "--devid", "0"],
            &["list"],
            &["backend", "--port", "null"],
            &["frontend", "--domain", "1", "--port", "null"],
        ] {
            let mut command = grantway_with(args);
            command.args(["--host", folder]);
            refused(command, 1, &[folder, "start one: grantway host --dir"]);
        }
    }
    let host = |dir: &str| grantway_with(&["host", "--dir", dir]);
    refused(host("/etc/passwd"), 1, &["not a folder", "choose another --dir"]);
    refused(host("/proc/none"), 1, &["choose a --dir that you may write to"]);
    let long = format!("{empty}/{}", "long".repeat(30));
    refused(host(&long), 1, &["107 bytes", "choose a shorter --dir"]);
}

#[test]
fn an_impossible_port_is_refused() {
    let _alone = alone();
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let kinds = "tap[:NAME], vhost[:NAME], packet:NAME, bridge, null, echo, check[:from=MAC]";
    let none = site.file("none.pcap");
    let none = format!("pcap:in={}", none.display());
    for (spec, status, parts) in [
        ("floppy", 2, ["no such kind", kinds]),
        ("", 2, ["no such kind", kinds]),
        ("null:x", 2, ["after the colon", "just `null`"]),
        ("check:", 2, ["KEY=VALUE", "a KEY of from"]),
        ("generator:size=13", 2, ["size 13", "14 to 65535"]),
        ("generator:size=65536", 2, ["size 65536", "14 to 65535"]),
        ("generator:size=x", 2, [r#"size="x""#, "whole number"]),
        ("generator:burst=0", 2, ["burst 0", "at least 1"]),
        ("generator:flows=65537", 2, ["65537 flows", "1 to 65536"]),
        (
            "generator:speed=9",
            2,
            [r#"no key "speed""#, "size, rate, burst, flows, count, window, timed, to, from"],
        ),
        ("generator:size=64,size=65", 2, ["given twice", "keep one"]),
        ("pcap", 2, ["no file", "pcap:in=FILE"]),
        ("pcap:out=/tmp/x.txt", 2, ["no format", ".pcap or .pcapng"]),
        ("pcap:in=/etc/passwd", 1, ["neither pcap nor pcapng", "editcap"]),
        (&none, 1, ["none.pcap", "No such file"]),
        ("tap:a-name-beyond-15", 2, ["at most 15", "choose a shorter one"]),
    ] {
        let frontend = ["--domain", "1", "--port", spec];
        refused(site.command(None, "frontend", &frontend), status, &parts);
        if status == 2 {
            refused(site.command(None, "backend", &["--port", spec]), status, &parts);
        }
    }
}

#[test]
fn a_number_out_of_range_is_refused() {
    let _alone = alone();
    let frontend = ["frontend", "--host", "x", "--domain", "1"];
    for (base, args, parts) in [
        (&frontend[..], ["--mtu", "5"], ["5", "68"]),
        (&["attach", "--host", "x"], ["--domain", "0"], ["'0'", "32751"]),
        (&["attach", "--host", "x"], ["--domain", "32752"], ["32752", "32751"]),
        (&["host", "--dir", "x"], ["--ports", "17"], ["17", "4096"]),
        (&["list", "--host", "x"], ["--colour", "red"], ["--colour", "unexpected"]),
    ] {
        misused(&[base, &args[..]].concat(), &parts);
    }
    misused(&["dance"], &["dance"]);
    misused(&["list"], &["--host"]);
    misused(&frontend, &["--tap"]);
    // What is no number of bytes, but known before anything is asked for.
    let tap = grantway_with(&[&frontend[..], &["--tap", "a-name-beyond-15"]].concat());
    refused(tap, 2, &["at most 15", "choose a shorter one"]);
}

#[test]
fn without_rights_a_tap_is_refused() {
    let _alone = alone();
    let user = Unprivileged::with(&[]);
    let folder = user.folder().join("host");
    let folder = folder.to_str().expect("a plain name");
    let _host = Part::start("host", user.command(&["host", "--dir", folder]));
    let attach = user.command(&["attach", "--host", folder, "--domain", "1"]);
    common::succeed(attach, PROMPT);
    let parts = if std::path::Path::new("/dev/net/tun").exists() {
        ["no permission", "run as root or give CAP_NET_ADMIN"]
    } else {
        ["/dev/net/tun", "modprobe tun"]
    };
    let frontend = ["frontend", "--host", folder, "--domain", "1", "--tap", "gwf1"];
    refused(user.command(&frontend), 1, &parts);
    let mut backend = user.command(&["backend", "--host", folder]);
    backend.env("RUST_LOG", "error");
    let mut backend = Part::spawn("backend", backend);
    let status = backend.wait_end(PROMPT);
    assert_eq!(status.code(), Some(1));
    let said = backend.said();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn the_host_of_another_user_is_refused() {
    let _alone = alone();
    if !met(&[Need::Root]) {
        return;
    }
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let user = Unprivileged::with(&[]);
    let path = site.path();
    for args in [
        &["list"][..],
        &["attach", "--domain", "2"],
        &["backend", "--port", "null"],
        &["frontend", "--domain", "1", "--port", "null"],
    ] {
        let args = [args, &["--host", &path]].concat();
        refused(user.command(&args), 1, &[&path, "run as that user"]);
    }
}

#[test]
fn an_unavailable_tap_is_refused() {
    let _alone = alone();
    if !available(&["ip"]) {
        return;
    }
    let namespace = Namespace::new("c");
    let place = Some(&namespace);
    let (site, other) = (Site::start(), Site::start());
    for site in [&site, &other] {
        site.attach(&format!("mac={MAC},vifname=gwb9"));
    }
    let tap = |name: &str| site.command(place, "frontend", &["--domain", "1", "--tap", name]);
    // Held by another program.
    let holder = other.frontend(place, &["--tap", "gwf1"]);
    refused(tap("gwf1"), 1, &["gwf1", "another program", "stop that program", "another name"]);
    // No TAP at all, and a TUN.
    namespace.ip(&["link", "add", "gwv1", "type", "veth", "peer", "name", "gwv2"]);
    namespace.ip(&["tuntap", "add", "dev", "gwt1", "mode", "tun"]);
    for name in ["gwv1", "gwt1", "lo"] {
        refused(tap(name), 1, &[name, "exists and is", "choose another name"]);
        assert!(namespace.interface(name).is_some(), "{name} is as it was");
    }
    refused(tap("a/b"), 2, &["'/'", "letters, digits"]);

    // A backend serves on without the vif that cannot have its TAP, says why
    // in its log and in the store's list of vifs, and takes it up once it can.
    let taker = other.backend(place, &[]);
    let mut backend = site.backend(place, &[]);
    backend.wait_said("gwb9", PROMPT);
    assert!(backend.said().contains("another program"), "{}", backend.said());
    assert!(backend.is_alive());
    site.detached();
    site.attach(&format!("mac={MAC},vifname=gwb8"));
    wait_for("the other TAP", PROMPT, || namespace.interface("gwb8"));
    drop((holder, taker));
}

#[test]
fn a_program_that_is_missing_is_named_with_its_package() {
    let user = Unprivileged::with(&[]);
    let folder = user.folder();
    let [beside, empty] = [folder.display().to_string(), folder.join("none").display().to_string()];
    for (words, name) in [
        (&["bench", "packets"][..], "grantway-bench"),
        (&["help", "bench"], "grantway-bench"),
        (&["demo", "--help"], "grantway-bench"),
        (&["iperf", "server", "--nonsense"], "grantway-iperf"),
        (&["generate", "x"], "grantway-bench"),
    ] {
        let mut command = user.command(words);
        command.env("PATH", &empty);
        let build = format!("cargo build --release -p {name}");
        refused(command, 1, &["grantway ", name, "missing", &beside, "PATH", &build]);
    }
}
