//! `grantway bench packets --end`: both halves of one row, each started by itself.

mod common;

use common::part::Part;
use common::{PROMPT, alone, done, finish, grantway_with, words};
use serde_json::Value;

/// The row that a half has printed.
fn row(text: &str) -> Value {
    let document: Value = serde_json::from_str(text.trim()).expect("one document");
    assert_eq!((&document["bench"], &document["host"]), (&"packets".into(), &"embedded".into()));
    document["rows"][0].clone()
}

#[test]
fn each_half_tells_what_crossed() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_string_lossy().into_owned();
    let mut host = Part::start("host", grantway_with(&["host", "--dir", &dir]));
    done(&["attach", "--host", &dir, "--domain", "1", ""]);
    let options = ["--policy", "staging", "--direction", "rx", "--seconds", "0.3", "--json"];
    let half = |own: &[&str]| {
        grantway_with(&[&["bench", "packets", "--host", &dir], own, &options].concat())
    };
    let backend = half(&["--end", "backend"]);
    let behind = std::thread::spawn(move || finish(backend, PROMPT));
    let front = finish(half(&["--end", "frontend", "--domain", "1"]), PROMPT);
    let behind = behind.join().expect("the backend's half");
    host.kill();
    for (half, end) in [(front, "frontend"), (behind, "backend")] {
        assert!(half.status.success(), "{}", words(&half));
        let row = row(&String::from_utf8_lossy(&half.stdout));
        assert_eq!((&row["end"], &row["policy"]), (&end.into(), &"staging".into()), "{row}");
        assert!(row["packets"].as_u64() > Some(0) && row["lost"] == 0, "{row}");
        assert!(row["copies_per_packet"].as_f64() < Some(0.1), "{row}");
    }
}

#[test]
fn a_half_is_of_one_row() {
    let refused = |args: &[&str]| words(&finish(grantway_with(args), PROMPT));
    let said = refused(&["bench", "packets", "--end", "backend"]);
    assert!(said.contains("--policy") && said.contains("expected one"), "{said}");
    let said = refused(&[
        "bench",
        "packets",
        "--end",
        "frontend",
        "--policy",
        "copy",
        "--direction",
        "guest-to-guest",
    ]);
    assert!(said.contains("--port check:from=MAC"), "{said}");
}
