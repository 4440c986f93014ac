//! `grantway plan` as an operator runs it, and against what a running set-up of the
//! same kind really takes.

mod common;

use common::site::Site;
use common::{PROMPT, alone, done, finish, grantway_with, say, words};
use serde_json::Value;

/// Frames of every size, so that small buffers and whole pages are used, as many
/// at once as fit; and how many each end makes for each queue.
const LOADS: [(&str, u64); 2] = [("size=60000", 5000), ("size=60", 50_000)];

fn plan(args: &[&str]) -> Value {
    let text = done(&[&["plan", "--json"], args].concat());
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// Returns the need of one vif in a plan.
fn need(plan: &Value, side: &str, what: &str) -> u64 {
    let needs = plan["needs"].as_array().expect("needs");
    let found = needs.iter().find(|need| need["side"] == side && need["what"] == what);
    found.and_then(|need| need["vif"].as_u64()).unwrap_or_else(|| panic!("{side}: {what}: {plan}"))
}

#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let output = finish(grantway_with(&[&["plan"], args].concat()), PROMPT);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", words(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.stdout.is_empty() && said.lines().count() == 1, "{args:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{args:?}: no {part:?} in {said}");
    }
}

/// Runs a vif of this policy with so many queues, and checks what it takes.
fn check_running(policy: &str, queues: u64) {
    // Mapping is the backend's alone.
    let wish = if policy == "map" { "copy" } else { policy };
    let count = queues.to_string();
    let plan = plan(&["--vifs", "1", "--queues", &count, "--policy", policy]);
    let [grants, ports] = ["grants, total", "event channels"].map(|w| need(&plan, "guest", w));
    let nodes = need(&plan, "guest", "store nodes");
    let rings = need(&plan, "backend", "pages mapped: rings, control ring");
    let buffers = need(&plan, "backend", "pages mapped: buffers");
    let resting = need(&plan, "backend", "at rest");
    let fewest = grants - need(&plan, "guest", "grants: buffers") + need(&plan, "guest", "at rest");
    let areas = need(&plan, "backend", "areas of address space");
    let journal = need(&plan, "backend", "journal in the run directory");
    let mut most = 0;
    for (size, frames) in LOADS {
        let generator = &*format!("generator:{size},burst=256,count={frames}");
        let site = Site::start();
        site.attach("");
        let mut backend = site.backend(None, &["--port", generator, "--policy", policy]);
        let args = ["--port", generator, "--queues", &count, "--policy", wish];
        let mut frontend = site.frontend(None, &args);
        site.wait_connected();
        // Nothing is under way any more when the counters are read.
        site.wait("both ends to have carried all", PROMPT, || {
            let vif = site.vif_report();
            let staged = policy != "staging" || vif["mapped"] == site.frontend_report()["staged"];
            let all = ["tx_packets", "rx_packets"]
                .iter()
                .all(|key| vif["stats"][*key] == frames * queues);
            (all && staged).then_some(())
        });
        let (front, back) = (site.frontend_report(), site.backend_report());
        assert_eq!((&front["policy"], &back["vifs"][0]["policy"]), (&wish.into(), &policy.into()));
        // A queue has further pages if it was busy.
        let granted = front["platform"]["granted"].as_u64().expect("grants");
        assert!((fewest..=grants).contains(&granted), "{policy}: {granted} grants");
        let of = |key: &str| back["platform"][key].as_u64().unwrap_or_else(|| panic!("{key}"));
        let kept = back["vifs"][0]["mapped"].as_u64().expect("mapped pages");
        let mapped = match policy {
            // What is mapped for packets is gone before anybody looks: the mean of
            // what was mapped at once.
            "map" => {
                assert_eq!(of("mapped"), rings, "{back:#}");
                let runs = of("map_batches") - rings;
                (of("maps") - rings).div_ceil(runs.max(1)) * queues
            }
            _ => {
                assert_eq!(of("mapped"), rings + kept, "{policy}: {back:#}");
                kept
            }
        };
        assert!(mapped.max(kept) <= buffers, "{policy}: {mapped} mapped, {buffers} planned");
        let now = of("map_batches") - of("unmap_batches");
        // The journal is an area that is not asked of the hypervisor for.
        assert!(now < areas, "{policy}: {now} areas, {areas} planned");
        if policy == "staging" {
            assert!(kept >= resting, "{policy}: {kept} mapped, {resting} at rest");
        }
        let (guest, host) = (site.domain(1), site.domain(0));
        let of = |domain: &Value, key: &str| {
            domain[key].as_u64().unwrap_or_else(|| panic!("{key}: {domain}"))
        };
        assert_eq!(of(&guest, "grants"), granted, "{policy}: {guest}");
        assert_eq!(of(&guest, "ports_bound"), ports, "{policy}: {guest}");
        assert_eq!(of(&host, "ports_bound"), ports, "{policy}: {host}");
        assert_eq!(of(&guest, "store_nodes"), nodes, "{policy}: {guest}");
        let watches = need(&plan, "backend", "store watches") + 1;
        assert_eq!(of(&host, "store_watches"), watches, "{policy}: {host}");
        let file = site.file("backend-0").join("vif1.0.journal");
        assert_eq!(std::fs::metadata(file).expect("a journal").len(), journal);
        most = most.max(mapped);
        frontend.terminate();
        backend.terminate();
    }
    say(format!("{policy}, {queues} queues: {grants} grants, {most} of {buffers} pages mapped"));
    assert!(policy != "map" || most > 0, "no page was mapped for a packet");
    // Of whole pages as many are seen as are out at once.
    assert!(policy != "persistent" || most * 10 >= resting * 8, "{most} of {resting}");
}

#[test]
fn planned_needs_are_those_of_running_vifs() {
    let _alone = alone();
    for policy in ["copy", "map", "persistent", "staging"] {
        for queues in [1, 2] {
            check_running(policy, queues);
        }
    }
}

#[test]
fn descriptors_are_bounded_as_planned() {
    let _alone = alone();
    let site = Site::start();
    let mut backend = site.backend(None, &["--port", "null"]);
    let descriptors = |pid: u32| {
        std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").count() as u64
    };
    let before = descriptors(backend.pid());
    assert!(before <= 64, "{before} descriptors without a vif");
    site.attach("");
    let mut frontend = site.frontend(None, &["--port", "null", "--queues", "4"]);
    site.wait_connected();
    let plan = plan(&["--vifs", "1", "--queues", "4"]);
    let (now, most) = (descriptors(backend.pid()), need(&plan, "backend", "descriptors"));
    assert!(now - before <= most, "{before}, then {now}, and {most} planned");
    frontend.terminate();
    backend.terminate();
}

#[test]
fn people_get_three_tables_and_commands() {
    let text = done(&["plan", "--vifs", "300", "--queues", "11", "--policy", "staging"]);
    for part in [
        "300 vifs with 11 queues each, policy staging, port tap, 1 per guest",
        "needed",
        "default",
        "here",
        "add gnttab_max_maptrack_frames=16384 to GRUB_CMDLINE_XEN_DEFAULT",
        "grantway backend --queues 11",
        "grantway backend --mapped-pages 4400",
        "round of a worker",
        "connections of the firewall",
        "limits too small.",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let text = done(&["plan", "--vifs", "2", "--port", "vhost"]);
    assert!(text.contains("port vhost") && text.contains("memory of vhost-net"), "{text}");
    let value = plan(&["--vifs", "1"]);
    assert_eq!((&value["plan"]["guests"], &value["plan"]["policy"]), (&1.into(), &"copy".into()));
    let map_count = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("a limit");
    let limits = value["limits"].as_array().expect("limits");
    let bounds = value["bounds"].as_array().expect("bounds");
    assert!(bounds.iter().all(|bound| bound["all"].as_u64() > Some(0)), "{bounds:?}");
    let areas = limits.iter().find(|limit| limit["limit"] == "vm.max_map_count").expect("areas");
    assert_eq!(areas["default"], 65_530);
    assert_eq!(areas["here"], map_count.trim().parse::<u64>().expect("a number"), "{areas}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    refused(&["--vifs", "0"], &["0 is not in 1..=1000000"]);
    refused(&["--vifs", "many"], &["many", "--vifs"]);
    refused(&[], &["--vifs"]);
    refused(&["--vifs", "1", "--queues", "0"], &["0 is not in 1..=16"]);
    refused(&["--vifs", "1", "--queues", "17"], &["17 is not in 1..=16"]);
    refused(&["--vifs", "1", "--policy", "flip"], &["flip", "copy, map, persistent, staging"]);
    refused(&["--vifs", "1", "--port", "null"], &["null", "tap, vhost"]);
    refused(&["--vifs", "40000"], &["40000 guests", "at most 32751", "--per-guest 2"]);
    refused(&["--vifs", "2", "--per-guest", "3"], &["--per-guest 3", "expected 1 to 2"]);
}

#[test]
fn a_check_fails_if_a_limit_is_too_small() {
    // Vifs with staged pages need more mappings than this limit of the backend allows.
    let few = ["plan", "--vifs", "100", "--policy", "staging", "--mapped-pages", "1"];
    for (check, status) in [(&[][..], 0), (&["--check"], 1), (&["--check", "--json"], 1)] {
        let output = finish(grantway_with(&[&few[..], check].concat()), PROMPT);
        assert_eq!(output.status.code(), Some(status), "{check:?}: {}", words(&output));
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{}", words(&output));
    }
}
