//! `--report` of the benches that need no rights: one page that needs no other file, with the
//! printed tables and plots of them.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::{PROMPT, Unprivileged, alone, finish, grantway_with, succeed, words};
use std::path::Path;

/// Runs a bench. Returns its output and its page.
fn run(args: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page.html");
    let mut command = grantway_with(args);
    command.arg("--report").arg(&path);
    let text = succeed(command, PROMPT);
    let page = std::fs::read_to_string(&path).expect("a page");
    let left = std::fs::read_dir(folder.path()).expect("the folder");
    assert_eq!(left.count(), 1, "beside the page there is nothing");
    for absent in ["<script", "src=", "http://", "https://", "url(", "@import", "NaN"] {
        assert!(!page.contains(absent), "{absent:?} in the page");
    }
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
    assert!(page.contains(&format!("grantway {}", args.join(" "))), "no command line in {page}");
    (text, page)
}

/// Returns the titles of all plots. Each plot must be drawn for both widths.
fn plots(page: &str) -> Vec<&str> {
    let titles = page.split("<figcaption>").skip(1);
    let titles: Vec<_> = titles.filter_map(|part| part.split("</figcaption>").next()).collect();
    for width in ["wide", "narrow"] {
        let drawn = page.matches(&format!("<svg class=\"plot {width}\"")).count();
        assert_eq!(drawn, titles.len(), "{titles:?}");
    }
    titles
}

#[track_caller]
fn has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
}

/// Checks that the page has all cells of every printed row.
#[track_caller]
fn has_rows(page: &str, text: &str, first: &str) {
    let rows: Vec<_> = text.lines().filter(|line| line.trim_start().starts_with(first)).collect();
    assert!(!rows.is_empty(), "{text}");
    for row in rows {
        let cells = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        for cell in cells {
            let cell = format!(">{}</td>", cell.replace('>', "&gt;"));
            assert!(page.contains(&cell), "no {cell:?} of {row:?} in {page}");
        }
    }
}

/// Returns the wait mode of ends without `--mode`. On a single processor no end spins.
fn usual_mode() -> &'static str {
    let alone = std::thread::available_parallelism().is_ok_and(|n| n.get() == 1);
    if alone { "interrupt" } else { "adaptive" }
}

#[test]
fn packets_over_sizes_and_bursts() {
    let _alone = alone();
    let mut args = vec!["bench", "packets", "--policy", "copy,staging", "--size", "1496,64"];
    args.extend(["--burst", "8,32", "--seconds", "0.1"]);
    let (text, page) = run(&args);
    let over = |what, common| format!("Packets per second over {what}, {common}");
    let [sizes, bursts] = [["burst 8", "burst 32"], ["64 bytes", "1496 bytes"]];
    let sizes = sizes.map(|common| over("frame size", common));
    let bursts = bursts.map(|common| over("burst", common));
    let mut found = plots(&page);
    found.sort_unstable();
    let mut expected: Vec<_> = sizes.iter().chain(&bursts).map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let mode = format!("<dt>mode</dt><dd>{}</dd>", usual_mode());
    has(&page, &["Guest transmit", &mode, "<dt>queues</dt><dd>1</dd>"]);
    has(
        &page,
        &["<dt>n</dt>", "<dt>state</dt>", "embedded", ">Mpps</th>", ">state ns</th>", ">n</th>"],
    );
    has_rows(&page, &text, "1496");
}

#[test]
fn wake_ups_over_rates_by_policy_and_mode() {
    let _alone = alone();
    let mut args = vec!["bench", "packets", "--policy", "copy", "--mode", "busy,interrupt"];
    args.extend(["--rate", "500,2k", "--burst", "1", "--seconds", "0.1"]);
    let (_, page) = run(&args);
    assert_eq!(plots(&page), ["Wake-ups over offered load"]);
    // On a single processor both modes wait for interrupts, and a mode that all rows share is in no
    // label.
    let label = if usual_mode() == "interrupt" { "copy" } else { "copy, interrupt" };
    has(&page, &["wake\u{2011}ups/s</th>", &format!("</svg>{label}</li>")]);
}

#[test]
fn a_single_point_is_a_table_only() {
    let _alone = alone();
    let (_, page) = run(&["bench", "packets", "--policy", "copy", "--seconds", "0.1"]);
    assert_eq!(plots(&page), [""; 0]);
    has(&page, &["<table>", ">copy</td>"]);
}

#[test]
fn latency_as_a_distribution() {
    let _alone = alone();
    let mut args = vec!["bench", "latency", "--policy", "copy,staging", "--rate", "2k"];
    args.extend(["--direction", "tx,round-trip", "--every", "1", "--seconds", "0.2"]);
    let (text, page) = run(&args);
    assert_eq!(plots(&page), ["Latency"; 2]);
    has(&page, &["Guest transmit", "Round trip", ">90%</text>", ">max</text>", ">p99.9</th>"]);
    for direction in ["guest transmit", "round trip"] {
        let rows = text.lines().filter_map(|line| line.strip_prefix(direction));
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.len(), 2, "{text}");
        has_rows(&page, &rows.join("\n"), "");
    }
}

#[test]
fn papers_beside_ours_with_factors_over_queues() {
    let _alone = alone();
    let (text, page) = run(&["bench", "papers", "--paper", "004", "--seconds", "0.02"]);
    let titles = plots(&page);
    let [sent, received] =
        ["transmit", "receive"].map(|way| format!("Factor over queues, guest {way}"));
    assert_eq!(titles, [&sent, &received, &sent, &received], "one of each for both tables");
    has(&page, &["Paper 004, Mpps: ", "Paper 004, Gbit/s: ", "at wire speed", ">148.81</td>"]);
    has_rows(&page, &text, "guest ");
}

/// Returns true if a row is of lists of one frame, with which others are compared.
fn is_of_one(row: &str) -> bool {
    row.split("  ").filter(|cell| !cell.is_empty()).nth(1).is_some_and(|list| list.trim() == "1")
}

#[test]
fn lists_over_length_and_rules() {
    let _alone = alone();
    // A gain needs slices that were measured in one state of the machine. If no state lasted long
    // enough, there is no gain, and no plot of it.
    let gains = |text: &str| text.lines().any(|line| line.contains('[') && !is_of_one(line));
    let mut args = vec!["bench", "vector", "--rules", "1,50", "--list", "8,64"];
    args.extend(["--seconds", "0.05", "--pairs", "10"]);
    let (text, page) = run(&args);
    let expected = [
        "Gain over list length",
        "Time per packet over list length",
        "Time per packet over number of rules",
    ];
    assert_eq!(plots(&page), expected[usize::from(!gains(&text))..], "{text}");
    has(&page, &["</svg>50 rules</li>", "</svg>lists of 64</li>", "<dt>n</dt>", ">state ns</th>"]);
    has_rows(&page, &text, "50 rules");
    let mut args = vec!["bench", "vector", "--list", "64"];
    args.extend(["--seconds", "0.05", "--pairs", "10"]);
    let (text, page) = run(&args);
    assert_eq!(plots(&page), expected[usize::from(!gains(&text))..2], "{text}");
    has(&page, &[">paper</th>", ">1.35</td>"]);
}

#[test]
fn a_page_that_cannot_be_written_is_told_before_anything_is_measured() {
    let _alone = alone();
    let user = Unprivileged::with(&["grantway-bench"]);
    let folder = Path::new("/no/such/x.html");
    for bench in ["packets", "latency", "papers", "vector"] {
        // The time is longer than the test waits.
        let args = ["bench", bench, "--seconds", "3600", "--report"];
        for path in [folder, Path::new("/")] {
            let mut command = user.command(&args);
            command.arg(path);
            let output = finish(command, PROMPT);
            assert_eq!(output.status.code(), Some(1), "{}", words(&output));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(said.lines().count(), 1, "{said}");
            has(&said, &["--report ", "expected a file in a writable directory"]);
        }
    }
}
