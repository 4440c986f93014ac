//! `grantway show` over both ends of a vif: each subject as a table and as JSON, and its other names.

mod common;

use common::part::Part;
use common::site::{MAC, Site};
use common::{PROMPT, alone, finish, succeed, words};
use serde_json::Value;

/// A vif of two queues, over which 2,000 frames go to a port that checks them.
struct Pair {
    site: Site,
    _parts: [Part; 2],
}

impl Pair {
    fn start() -> Self {
        let site = Site::start();
        site.attach(&format!("mac={MAC}"));
        let backend = site.backend(None, &["--port", "check", "--workers", "1"]);
        let flood = ["--port", "generator:size=64,count=1000,flows=8", "--queues", "2"];
        let frontend = site.frontend(None, &flood);
        site.wait_connected();
        let pair = Self { site, _parts: [backend, frontend] };
        pair.site.wait("all frames at the backend", PROMPT, || {
            let sent = pair.json(&["vifs"])[0]["tx_packets"].as_u64()?;
            (sent == 2000).then_some(())
        });
        pair
    }

    /// Text, each line of which fits a terminal.
    fn text(&self, args: &[&str]) -> String {
        let text = succeed(self.site.command(None, "show", args), PROMPT);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        text
    }

    fn json(&self, args: &[&str]) -> Value {
        let text = succeed(self.site.command(None, "show", &[args, &["--json"]].concat()), PROMPT);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
    }

    /// Exit status and words of a command that must fail.
    fn refused(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = finish(self.site.command(None, "show", args), PROMPT);
        (output.status.code(), words(&output))
    }
}

#[test]
fn each_subject_is_shown_as_a_table_and_as_json() {
    let _alone = alone();
    let pair = Pair::start();
    let tables = [
        (&[][..], &["vif1.0", "backend-0", "frontend-1.0", "up", "staging", "2.00k", "check"][..]),
        (&["queues"], &["vif1.0", "worker", "waiting", "posted"]),
        (&["drops"], &["nothing was dropped"]),
        (&["workers"], &["backend-0", "longest round ms"]),
        (&["nodes"], &["node", "packets/vector", "bridge"]),
        (&["staging"], &["frontend-1.0", "staged", "wished"]),
        (&["hash"], &["frontend-1.0", "hash:"]),
        (&["drops", "--vif", "vif1.0"], &["vif1.0: nothing was dropped"]),
        (&["vifs", "--domain", "0"], &["backend-0"]),
    ];
    for (args, parts) in tables {
        let text = pair.text(args);
        for part in parts {
            assert!(text.contains(part), "{args:?}: no {part:?} in {text}");
        }
    }
    let vifs = pair.json(&["vifs"]);
    let ends: Vec<_> = vifs.as_array().expect("rows").iter().map(|row| &row["end"]).collect();
    assert_eq!(ends, ["backend-0", "frontend-1.0"]);
    assert_eq!(vifs[1]["tx_packets"], 2000, "tx is from the guest at both ends: {vifs:#}");
    let queues = pair.json(&["queues", "--vif", "vif1.0"]);
    let queues = queues.as_array().expect("rows");
    assert_eq!(queues.len(), 4, "two queues at two ends: {queues:#?}");
    let of = |end: &str| {
        let rows = queues.iter().filter(|row| row["end"] == end);
        rows.map(|row| row["tx_packets"].as_u64().expect("a number")).sum::<u64>()
    };
    assert_eq!((of("backend-0"), of("frontend-1.0")), (2000, 2000));
    assert_eq!(pair.json(&["vifs", "--vif", "vif7.0"]).as_array().map(Vec::len), Some(0));
    assert_eq!(pair.json(&["drops"]).as_array().map(Vec::len), Some(0));
    assert!(pair.json(&["staging"])["frontend-1.0"]["queues"][1]["staged"].as_u64() > Some(0));
    assert!(pair.json(&["hash"])["frontend-1.0"]["queues"].as_u64() == Some(2));
}

#[test]
fn other_names_print_the_same() {
    let _alone = alone();
    let pair = Pair::start();
    let same = |command: &str, args: &[&str]| {
        let text = succeed(pair.site.command(None, command, args), PROMPT);
        serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
    };
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
    };
    let whole = pair.json(&[]);
    assert_eq!(keys(&whole), ["backend-0", "frontend-1.0"]);
    let report = same("report", &[]);
    assert_eq!(keys(&report["backend-0"]), keys(&whole["backend-0"]));
    assert_eq!(same("graph", &["--json"]), pair.json(&["nodes"]));
    let host = pair.json(&["host"]);
    assert_eq!(keys(&host), keys(&same("list", &["--tables", "--json"])));
    assert_eq!(host["vifs"][0]["vif"], "vif1.0");
}

#[test]
fn missing_subjects_and_wrong_options_are_refused() {
    let _alone = alone();
    let pair = Pair::start();
    let refusals: [(&[&str], i32, &str); 6] = [
        (&["rules"], 1, "no rules loaded; start it with --rules FILE"),
        (&["nodes", "--domain", "3"], 1, "start `grantway backend`"),
        (&["vifs", "--domain", "3"], 1, "no backend of domain 3 is running"),
        (&["nodes", "--vif", "vif1.0"], 2, "--vif has no effect on `show nodes`"),
        (&["hash", "--domain", "1"], 2, "--domain has no effect on `show hash`"),
        (&["vif"], 2, "vifs"),
    ];
    for (args, status, part) in refusals {
        let (found, said) = pair.refused(args);
        assert_eq!(found, Some(status), "{args:?}: {said}");
        assert!(said.contains(part) && said.trim_end().lines().count() == 2, "{args:?}: {said}");
    }
    let empty = Site::start();
    for args in [&[][..], &["staging"], &["rules"]] {
        let output = finish(empty.command(None, "show", args), PROMPT);
        let said = words(&output);
        assert!(output.status.code() == Some(1) && said.contains("is running"), "{args:?}: {said}");
    }
}
