//! `grantway bench vector`, as an operator runs it.
//!
//! The comparison with nftables needs root, `ip` and `nft`; if one is missing, it prints `skipped`
//! and passes.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::network::available;
use common::{PROMPT, alone, finish, grantway_with, succeed, words};
use std::process::Command;

#[test]
fn bench_vector_prints_one_document() {
    for (args, rows) in [
        (&["--rules", "1,20", "--list", "64"][..], 4),
        (&["--filters", "10,0", "--list", "1"], 2),
        (&["--list", "8"], 10),
    ] {
        let all = [&["bench", "vector", "--seconds", "0.01", "--json"], args].concat();
        let output = finish(grantway_with(&all), PROMPT);
        assert!(output.status.success(), "{}", words(&output));
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("one document");
        assert_eq!(document["bench"], "vector");
        let found = document["rows"].as_array().expect("rows");
        assert_eq!(found.len(), rows, "{document}");
        for row in found {
            assert!(row["ns_per_packet"].as_f64().is_some_and(|ns| ns > 1.0), "{row}");
        }
    }
    let refused = finish(grantway_with(&["bench", "vector", "--list", "257"]), PROMPT);
    assert_eq!(refused.status.code(), Some(2));
    assert!(words(&refused).contains("1 to 256"), "{}", words(&refused));
}

#[test]
fn the_graph_alone_says_how_many_frames_are_counted() {
    for args in [&["--rules", "5", "--list", "64"][..], &["--spoof", "--list", "1"]] {
        let all = [&["bench", "lists", "--packets", "100"], args].concat();
        let said = succeed(grantway_with(&all), PROMPT);
        assert!(["100\n", "128\n"].contains(&said.as_str()), "{said}");
    }
}

#[test]
fn the_kernels_rules_fit_the_same_frames_and_nothing_stays() {
    let _alone = alone();
    if !available(&["ip", "nft"]) {
        return;
    }
    let mut command = grantway_with(&["bench", "vector", "--nftables", "--rules", "1,100"]);
    command.args(["--list", "64", "--seconds", "0.05", "--pairs", "1", "--json"]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().expect("the bench");
    let own = format!("gwn{}-", child.id());
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", words(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6, "nftables, lists of one and of 64, twice: {document:#}");
    for rows in rows.chunks(3) {
        let [kernel, one, many] = rows else { panic!("{document:#}") };
        assert_eq!((&kernel["path"], &kernel["list"]), (&"nftables".into(), &().into()));
        assert_eq!((&one["list"], &many["list"]), (&1.into(), &64.into()));
        for ours in [one, many] {
            assert_eq!(ours["path"], "vector");
            assert_eq!(ours["fitted"], kernel["fitted"], "the same rules: {document:#}");
        }
    }
    assert!(rows[5]["fitted"].as_f64() > Some(0.005), "{document:#}");
    let mut list = Command::new("ip");
    list.args(["netns", "list"]);
    let shown = succeed(list, PROMPT);
    assert!(!shown.lines().any(|line| line.starts_with(&own)), "{shown}");
}

#[test]
fn the_kernel_and_filters_are_not_compared() {
    let both = ["bench", "vector", "--nftables", "--filters", "1"];
    let refused = finish(grantway_with(&both), PROMPT);
    assert_eq!(refused.status.code(), Some(2));
    assert!(words(&refused).contains("--filters"), "{}", words(&refused));
}
