//! Pages that stay mapped, between whole commands: no grant operation a packet,
//! what `grantway ctl ... staging` changes, and a backend that is killed under it.
//! Needs neither root nor Xen.

mod common;

use common::part::Part;
use common::site::Site;
use common::{PROMPT, alone, finish, grantway_with, succeed, wait_for, words};
use serde_json::Value;

/// Staged pages of a queue at rest, and of a busy one.
const PAGES: [u64; 2] = [272, 400];
const GENERATOR: &str = "generator:size=60,rate=2000,flows=16";

fn ctl<'a>(site: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["ctl", "--host", site, "--domain", "1", "staging"], args].concat()
}

fn done(site: &str, args: &[&str]) -> String {
    succeed(grantway_with(&ctl(site, args)), PROMPT)
}

/// Pages of each queue that are staged, and those that are worth it.
fn queues(site: &str) -> Vec<[u64; 2]> {
    let report: Value = serde_json::from_str(&done(site, &["show", "--json"])).unwrap();
    let queues = report["queues"].as_array().unwrap();
    queues.iter().map(|queue| ["staged", "pages"].map(|key| queue[key].as_u64().unwrap())).collect()
}

/// Waits until all pages of these queues are staged, and mapped.
#[track_caller]
fn all_staged(site: &Site, numbers: &[usize]) {
    let path = site.path();
    wait_for("all pages to be staged and mapped", PROMPT, || {
        let queues = queues(&path);
        let full = |&number: &usize| {
            let [staged, pages] = queues[number];
            staged == pages && PAGES.contains(&pages)
        };
        let sum: u64 = queues.iter().map(|[staged, _]| staged).sum();
        (numbers.iter().all(full) && site.vif_report()["mapped"] == sum).then_some(())
    });
}

#[track_caller]
fn refused(site: &str, args: &[&str], status: i32, part: &str) {
    let output = finish(grantway_with(&ctl(site, args)), PROMPT);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {}", words(&output));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().count() == 1 && said.contains(part), "{args:?}: {said}");
}

/// Packets both ways, and grant operations, of the backend so far.
fn spent(site: &Site) -> (u64, u64, u64) {
    let report = site.backend_report();
    let of = |value: &Value| value.as_u64().unwrap();
    let (vif, platform) = (&report["vifs"][0]["stats"], &report["platform"]);
    let grants = of(&platform["copies"]) + of(&platform["maps"]) + of(&platform["unmaps"]);
    (of(&vif["tx_packets"]), of(&vif["rx_packets"]), grants)
}

/// Waits until no slot is out that was posted before: each queue has carried more than a
/// ring of packets each way.
fn turns_over(site: &Site) {
    let carried = || -> Vec<u64> {
        let vif = site.vif_report();
        let queues = vif["queues"].as_array().expect("queues");
        let both = |queue: &Value| ["tx_packets", "rx_packets"].map(|key| queue[key].as_u64());
        queues.iter().flat_map(both).map(|count| count.expect("a count")).collect()
    };
    let before = carried();
    wait_for("each queue to carry more than a ring", PROMPT, || {
        let now = carried();
        now.iter().zip(&before).all(|(now, before)| now - before > 256).then_some(())
    });
}

/// While many packets go both ways nothing is asked of the hypervisor, unless a queue has just
/// become busy or is at rest again: then other pages are mapped.
#[track_caller]
fn costs_nothing(site: &Site) {
    let mut before = spent(site);
    wait_for("packets both ways without grant operations", PROMPT, || {
        let now = spent(site);
        if now.2 != before.2 {
            before = now;
        }
        (now.0 > before.0 + 300 && now.1 > before.1 + 300).then_some(())
    });
}

fn start_backend(site: &Site) -> Part {
    site.backend(None, &["--port", GENERATOR, "--workers", "2"])
}

#[test]
fn staged_pages_cost_nothing_and_change_under_load() {
    let _alone = alone();
    let site = Site::start();
    let path = site.path();
    site.attach("");
    let mut backend = start_backend(&site);
    let args = ["--port", GENERATOR, "--queues", "2", "--policy", "staging"];
    let mut frontend = site.frontend(None, &args);
    site.wait_connected();
    all_staged(&site, &[0, 1]);
    turns_over(&site);
    costs_nothing(&site);
    let text = done(&path, &["show"]);
    let one_of = |pages: [u64; 2], text: &str| pages.iter().any(|n| text.contains(&n.to_string()));
    assert!(text.contains("queue") && one_of(PAGES, &text) && text.contains("1024"), "{text}");
    // What is taken back is copied, and staged again it is not.
    let less = PAGES.map(|pages| pages - 200);
    done(&path, &["remove", "200", "--queue", "1"]);
    assert!(less.contains(&queues(&path)[1][0]), "{:?}", queues(&path));
    all_staged(&site, &[0]);
    done(&path, &["remove", "9999"]);
    assert_eq!([0, 1].map(|number| queues(&path)[number][0]), [0, 0]);
    let before = spent(&site);
    wait_for("copies", PROMPT, || (spent(&site).2 > before.2 + 100).then_some(()));
    done(&path, &["add", "9999"]);
    all_staged(&site, &[0, 1]);
    turns_over(&site);
    costs_nothing(&site);
    let list = succeed(grantway_with(&["list", "--host", &path]), PROMPT);
    let both = one_of([2 * PAGES[0], 2 * PAGES[1]], &list) || list.contains("672");
    assert!(list.contains("staging") && both, "{list}");
    // A successor maps them again once all vifs are taken over; the frontend is not asked.
    // What crosses before that is copied.
    for _ in 0..3 {
        backend.kill();
        backend = start_backend(&site);
        site.wait_connected();
        all_staged(&site, &[0, 1]);
        turns_over(&site);
        costs_nothing(&site);
        all_staged(&site, &[0, 1]);
    }
    done(&path, &["remove", "200", "--queue", "0"]);
    assert!(less.contains(&queues(&path)[0][0]), "{:?}", queues(&path));
    all_staged(&site, &[1]);
    // Closed, not killed: the next connection is staged anew.
    backend.interrupt();
    backend = start_backend(&site);
    site.wait_connected();
    all_staged(&site, &[0, 1]);
    refused(&path, &["add", "1", "--queue", "2"], 1, "has 2, counted from 0");
    frontend.terminate();
    backend.terminate();
}

#[test]
fn impossible_options_are_refused_in_one_line() {
    let _alone = alone();
    let site = Site::start();
    let path = site.path();
    refused(&path, &["show"], 1, "no frontend is running for vif 0 of domain 1");
    site.attach("");
    let mut backend = start_backend(&site);
    let mut frontend = site.frontend(None, &["--port", "null", "--policy", "copy"]);
    site.wait_connected();
    refused(&path, &["add", "1"], 1, "--policy auto or staging");
    frontend.terminate();
    backend.terminate();
}

#[test]
fn a_backend_that_offers_less_gives_one_line_in_the_log() {
    let _alone = alone();
    let site = Site::start();
    site.attach("");
    let less = ", which does not offer staging";
    for (most, agreed, wish, said) in [
        ("persistent", "persistent", "staging", less),
        ("copy", "copy", "staging", less),
        ("persistent", "persistent", "auto", "\n"),
        ("copy", "copy", "auto", "\n"),
    ] {
        let mut backend = site.backend(None, &["--port", GENERATOR, "--policy", most]);
        let mut frontend = site.frontend(None, &["--port", GENERATOR, "--policy", wish]);
        site.wait_connected();
        frontend.wait_said(&format!("policy {agreed}, backend trusted{said}"), PROMPT);
        wait_for("packets both ways", PROMPT, || {
            let (sent, received, _) = spent(&site);
            (sent > 300 && received > 300).then_some(())
        });
        assert_eq!(site.vif_report()["policy"], agreed);
        let report = site.frontend_report();
        assert_eq!((&report["policy"], &report["agreed"]), (&agreed.into(), &agreed.into()));
        assert_eq!(report["wished"], wish);
        assert_eq!(frontend.said().lines().count(), 1, "{}", frontend.said());
        frontend.terminate();
        backend.terminate();
    }
}
