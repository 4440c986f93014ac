//! Benches with impossible options: each is refused in one line that says which value is expected.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::misused;

#[test]
fn a_bench_that_cannot_be_is_refused() {
    for (args, parts) in [
        (["packets", "--policy", "best"], ["\"best\"", "copy, "]),
        (["packets", "--policy", "copy,copy"], ["\"copy\"", "given twice"]),
        (["packets", "--mode", "idle"], ["\"idle\"", "busy, adaptive, interrupt"]),
        (["packets", "--direction", "round-trip"], ["\"round-trip\"", "tx, rx, guest-to-guest"]),
        (["packets", "--size", "big"], ["\"big\"", "60 to 65535"]),
        (["packets", "--size", "0"], ["\"0\"", "60 to 65535"]),
        (["packets", "--size", "64,70000"], ["\"70000\"", "60 to 65535"]),
        (["packets", "--burst", "0"], ["\"0\"", "1 to 1024"]),
        (["packets", "--burst", "1025"], ["\"1025\"", "1 to 1024"]),
        (["packets", "--queues", "17"], ["\"17\"", "1 to 16"]),
        (["packets", "--rate", "0"], ["\"0\"", "frames per second from 1"]),
        (["packets", "--seconds", "0"], ["'0'", "0.01 to 86400"]),
        (["packets", "--pairs", "0"], ["'0'", "1..=10000"]),
        (["latency", "--rate", "fast"], ["\"fast\"", "frames per second from 1"]),
        (["latency", "--size", "60"], ["\"60\"", "64 to 65535"]),
        (["latency", "--every", "0"], ["'0'", "1..=1000000"]),
        (["latency", "--policy", ""], ["\"\"", "all, or a list of copy"]),
        (["papers", "--paper", "005"], ["\"005\"", "000, 001, 002, 003, 004"]),
        (["papers", "--burst", "0"], ["'0'", "1..=1024"]),
    ] {
        misused(&[&["bench"], &args[..]].concat(), &parts);
    }
    misused(&["demo", "--seconds", "25h"], &["'25h'", "0.01"]);
    let long = ["bench", "packets", "--seconds", "4", "--pairs", "2"];
    misused(&long, &["slices of 2.0 s", "at most 0.5 s", "--pairs 8"]);
}
