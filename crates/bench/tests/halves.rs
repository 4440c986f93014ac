//! `grantway bench packets --end`: both halves of one row, each started by itself.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::part::Part;
use common::{PROMPT, alone, done, finish, grantway_with, words};
use serde_json::Value;

/// Returns the row that a half printed.
fn row(text: &str) -> Value {
    let document: Value = serde_json::from_str(text.trim()).expect("one document");
    assert_eq!((&document["bench"], &document["host"]), (&"packets".into(), &"embedded".into()));
    document["rows"][0].clone()
}

/// Number of packets that are to cross.
const PACKETS: u64 = 20_000;
/// Number of slots of a ring.
const RING: u64 = 256;

/// Runs both halves of a row. Returns the rows of the guest's half and of the backend's.
fn halves(policy: &str, direction: &str) -> [Value; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_string_lossy().into_owned();
    let mut host = Part::start("host", grantway_with(&["host", "--dir", &dir]));
    done(&["attach", "--host", &dir, "--domain", "1", ""]);
    let packets = PACKETS.to_string();
    let options = ["--policy", policy, "--direction", direction, "--packets", &packets, "--json"];
    let half = |own: &[&str]| {
        grantway_with(&[&["bench", "packets", "--host", &dir], own, &options].concat())
    };
    let backend = half(&["--end", "backend"]);
    let behind = std::thread::spawn(move || finish(backend, PROMPT));
    let front = finish(half(&["--end", "frontend", "--domain", "1"]), PROMPT);
    let behind = behind.join().expect("the backend's half");
    host.kill();
    [(front, "frontend"), (behind, "backend")].map(|(half, end)| {
        assert!(half.status.success(), "{}", words(&half));
        let row = row(&String::from_utf8_lossy(&half.stdout));
        assert_eq!((&row["end"], &row["policy"]), (&end.into(), &policy.into()), "{row}");
        let crossed = row["packets"].as_u64().expect("a count");
        // A guest that sends must fill a ring in addition, to know that all packets were taken.
        let most = if direction == "tx" { PACKETS + RING } else { PACKETS };
        assert!((PACKETS..=most).contains(&crossed) && row["lost"] == 0, "{row}");
        row
    })
}

/// The first packets of a policy are counted here. The tests `counts` and `staging` count the cost
/// of a policy once both ends agreed on it.
#[test]
fn each_half_tells_what_crossed() {
    let _alone = alone();
    for direction in ["tx", "rx"] {
        // A packet of one slot is one grant copy, and only the backend copies.
        let [front, behind] = halves("copy", direction);
        assert_eq!(front["copies_per_packet"], 0.0, "{front}");
        assert_eq!(behind["copies_per_packet"], 1.0, "{behind}");
        // Each packet that crossed is copied whole. A guest that sends leaves packets on its ring,
        // and may be gone before they are copied. Such a packet counts as a copy, but none of its
        // bytes are copied.
        let bytes = behind["copied_bytes_per_packet"].as_f64().expect("a number");
        let crossed = behind["packets"].as_u64().expect("a count");
        let tried = (64 * crossed) as f64 / bytes;
        let most = if direction == "tx" { PACKETS + RING } else { crossed };
        let is_one = (crossed..=most).any(|n| (tried - n as f64).abs() < 1e-6);
        assert!(is_one, "{crossed} crossed, {tried} tried, expected at most {most}: {behind}");
        // Packets are copied until pages are staged, and not afterwards.
        let [front, behind] = halves("staging", direction);
        assert_eq!(front["copies_per_packet"], 0.0, "{front}");
        assert!(behind["copies_per_packet"].as_f64() <= Some(1.0), "{behind}");
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
    let all = ["bench", "packets", "--end", "backend", "--policy", "copy", "--packets", "9"];
    let said = refused(&[&all[..], &["--direction", "guest-to-guest"]].concat());
    assert!(said.contains("--packets") && said.contains("expected tx or rx"), "{said}");
}
