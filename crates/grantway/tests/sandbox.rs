//! The sandbox of a running backend, as the kernel shows it, and what it stops.

mod common;

use common::capture;
use common::network::{Namespace, available};
use common::part::Part;
use common::site::{MAC, Site};
use common::{PROMPT, alone, wait_for};
use grantway_needs::{Need, met, skip};
use grantway_sandbox::{Landlock, Offer};
use rustix::process::Signal;
use std::os::unix::fs::symlink;
use std::path::Path;

const SECCOMP: Need<'_> =
    Need::File("/proc/sys/kernel/seccomp/actions_avail", "a kernel with seccomp");

// Capabilities, as bits.
const DAC_OVERRIDE: u64 = 1 << 1;
const NET_ADMIN: u64 = 1 << 12;
const SYS_PTRACE: u64 = 1 << 19;

/// The number behind a name in a thread's status.
fn status(thread: &Path, name: &str, radix: u32) -> u64 {
    let text = std::fs::read_to_string(thread.join("status")).expect("a thread's status");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.unwrap_or_else(|| panic!("no {name} in {text}")).trim();
    u64::from_str_radix(number, radix).unwrap_or_else(|e| panic!("{name}: {number}: {e}"))
}

/// The threads of a part, by name.
fn threads(part: &Part) -> Vec<(String, std::path::PathBuf)> {
    let folder = format!("/proc/{}/task", part.pid());
    let all = std::fs::read_dir(folder).expect("a process's threads");
    let named = all.map(|entry| {
        let path = entry.expect("a thread").path();
        let name = std::fs::read_to_string(path.join("comm")).expect("its name");
        (name.trim().to_owned(), path)
    });
    named.collect()
}

#[test]
fn a_backend_gives_up_what_it_does_not_need() {
    let _alone = alone();
    if !met(&[SECCOMP]) {
        return;
    }
    let site = Site::start();
    site.attach(&format!("mac={MAC}"));
    let metrics = ["--metrics", "127.0.0.1:0"];
    let args = [&["--port", "echo", "--workers", "2"][..], &metrics].concat();
    let backend = site.backend(None, &args);
    let _frontend = site.frontend(None, &["--port", "generator:size=200"]);
    site.wait_connected();
    site.wait("frames", PROMPT, || {
        site.vif_report()["port"]["received"].as_u64().filter(|frames| *frames > 1000)
    });
    for held in ["no new privileges", "no thread runs programs", "workers open, run and connect"] {
        backend.wait_said(held, PROMPT);
    }
    let all = threads(&backend);
    assert_eq!(all.iter().filter(|(name, _)| name == "worker").count(), 2, "{all:?}");
    // The tests may be confined themselves, by a container for example.
    let own = Path::new("/proc/self");
    let rights = |kept: u64| status(own, "CapPrm", 16) & kept;
    for (name, thread) in all {
        let (more, kept) = match name.as_str() {
            "worker" => (4, rights(SYS_PTRACE)),
            _ => (1, rights(NET_ADMIN | SYS_PTRACE | DAC_OVERRIDE)),
        };
        assert_eq!(status(&thread, "NoNewPrivs", 10), 1, "{name}");
        assert_eq!(status(&thread, "Seccomp", 10), 2, "{name}: a filter");
        let filters = status(own, "Seccomp_filters", 10) + more;
        assert_eq!(status(&thread, "Seccomp_filters", 10), filters, "{name}");
        for set in ["CapPrm", "CapEff"] {
            assert_eq!(status(&thread, set, 16), kept, "{name}: {set}");
        }
    }
}

#[test]
fn without_the_sandbox_the_log_says_so() {
    let _alone = alone();
    let site = Site::start();
    let backend = site.backend(None, &["--port", "null", "--no-sandbox"]);
    backend.wait_said("--no-sandbox: all threads keep all rights of this user", PROMPT);
    for (name, thread) in threads(&backend) {
        for kept in ["NoNewPrivs", "Seccomp", "CapPrm"] {
            let own = status(Path::new("/proc/self"), kept, 16);
            assert_eq!(status(&thread, kept, 16), own, "{name}: {kept}");
        }
    }
}

#[test]
fn a_file_beside_the_list_is_not_opened() {
    let _alone = alone();
    let found = Offer::of_kernel(Path::new("/")).landlock;
    if !matches!(found, Landlock::Version(_)) {
        return skip(&format!("needs a kernel with landlock; found: {found:?}"));
    }
    let (site, named, other) = (Site::start(), folder(), folder());
    let (rules, elsewhere) = (named.path().join("rules.toml"), other.path().join("rules.toml"));
    for file in [&rules, &elsewhere] {
        std::fs::write(file, "").expect("a file of rules");
    }
    let path = rules.to_str().expect("a plain name");
    let mut backend = site.backend(None, &["--port", "null", "--rules", path]);
    backend.wait_said("opens listed files only (landlock", PROMPT);
    backend.signal(Signal::HUP);
    backend.wait_said("rules reloaded", PROMPT);
    // An editor writes a new file, and moves it there.
    backend.hush();
    let new = named.path().join("new");
    std::fs::write(&new, "").expect("a file of rules");
    std::fs::rename(&new, &rules).expect("the new file's place");
    backend.signal(Signal::HUP);
    backend.wait_said("rules reloaded", PROMPT);
    backend.hush();
    std::fs::remove_file(&rules).expect("the file's end");
    symlink(&elsewhere, &rules).expect("a link");
    backend.signal(Signal::HUP);
    backend.wait_said("Permission denied", PROMPT);
    assert!(backend.is_alive());
}

#[test]
fn captures_are_opened_wherever_they_lie() {
    let _alone = alone();
    let (site, played, written) = (Site::start(), folder(), folder());
    let (input, output) = (played.path().join("in.pcap"), written.path().join("out.pcap"));
    capture::write(&input, &capture::frames(20, 1514, 7));
    site.attach(&format!("mac={MAC}"));
    let port = format!("pcap:in={},out={}", input.display(), output.display());
    // Both are opened when the vif is taken up, and again after a restart.
    for _ in 0..2 {
        let mut backend = site.backend(None, &["--port", &port]);
        let mut frontend = site.frontend(None, &["--port", "generator:size=64,count=50"]);
        site.wait("frames both ways", PROMPT, || {
            let port = site.vif_report()["port"].take();
            let all = (port["sent"].as_u64()?, port["received"].as_u64()?);
            (all.0 >= 50 && all.1 >= 20).then_some(())
        });
        frontend.terminate();
        backend.terminate();
        assert_eq!(capture::read(&output).len(), 50);
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_tap_is_made_served_and_removed_in_the_sandbox() {
    let _alone = alone();
    if !available(&["ip"]) {
        return;
    }
    let (site, namespace) = (Site::start(), Namespace::new("c"));
    let vif = format!("mac={MAC},vifname=gwb7");
    site.attach(&vif);
    let mut backend = site.backend(Some(&namespace), &["--workers", "2"]);
    wait_for("the TAP", PROMPT, || namespace.interface("gwb7"));
    let mut frontend = site.frontend(None, &["--port", "null", "--queues", "2"]);
    site.wait_connected();
    frontend.terminate();
    site.detached();
    wait_for("the TAP's end", PROMPT, || namespace.interface("gwb7").is_none().then_some(()));
    // Deleted under a guest, and taken over after a kill.
    site.attach(&vif);
    let _frontend = site.frontend(None, &["--port", "null", "--queues", "2"]);
    site.wait_connected();
    backend.kill();
    let mut backend = site.backend(Some(&namespace), &["--workers", "2"]);
    site.wait_connected();
    assert!(backend.is_alive());
    backend.terminate();
}
