//! Options of a file: in force from the start, over a reload and after a restart.

mod common;

use common::part::Part;
use common::site::{MAC, Site};
use common::{PROMPT, alone, finish, grantway_with, succeed, words};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::write;
use std::path::PathBuf;

/// A site, and a file of options in it.
struct Written {
    site: Site,
    file: PathBuf,
}

impl Written {
    fn new(text: &str) -> Self {
        let site = Site::start();
        site.attach(&format!("mac={MAC}"));
        let file = site.file("options.toml");
        write(&file, text).expect("a file of options");
        Self { site, file }
    }

    fn file(&self) -> &str {
        self.file.to_str().expect("a plain name")
    }

    fn backend(&self, args: &[&str]) -> Part {
        self.site.backend(None, &[&["--config", self.file()], args].concat())
    }

    /// The value and the origin of an option of the running backend.
    fn option(&self, name: &str) -> (Value, Value) {
        let json = succeed(self.site.command(None, "show", &["config", "--json"]), PROMPT);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let options = json["backend-0"]["options"].as_array().expect("options").clone();
        let found = options.into_iter().find(|option| option["name"] == name);
        let found = found.unwrap_or_else(|| panic!("no {name} in {json}"));
        (found["value"].clone(), found["from"].clone())
    }
}

#[test]
fn options_of_the_file_are_in_force_until_a_restart() {
    let _alone = alone();
    let it = Written::new("port = \"echo\"\nqueues = 2\nworkers = 1\n");
    let mut backend = it.backend(&["--queues", "3"]);
    let _frontend = it.site.frontend(None, &["--port", "null"]);
    it.site.wait_connected();
    assert_eq!(it.site.vif_report()["port"]["name"], "echo");
    assert_eq!(it.option("port"), (json!("echo"), json!("file")));
    assert_eq!(it.option("queues"), (json!(3), json!("command-line")));
    assert_eq!(it.option("policy"), (json!("staging"), json!("default")));
    assert_eq!(it.option("uplink"), (Value::Null, json!("nothing")));
    let text = succeed(it.site.command(None, "show", &["config"]), PROMPT);
    for part in
        ["# backend-0", "# Options of grantway backend", "options.toml, line 1", "# frontend-1.0"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // A reload reads rules alone.
    write(&it.file, "port = \"echo\"\nworkers = 2\n").expect("other options");
    backend.signal(Signal::HUP);
    backend.wait_said("no rules to reload", PROMPT);
    assert_eq!(it.option("workers"), (json!(1), json!("file")));
    // The successor has the new options, and the vif.
    backend.terminate();
    let _backend = it.backend(&[]);
    assert_eq!(it.option("workers"), (json!(2), json!("file")));
    assert_eq!(it.option("queues"), (json!(4), json!("default")));
    it.site.wait_connected();
}

#[test]
fn an_invalid_file_ends_a_backend_before_it_takes_anything() {
    let _alone = alone();
    let it = Written::new("# Options.\nport = \"echo\"\nqueus = 2\npolicy = \"stagin\"\n");
    let args = ["--config", it.file()];
    let output = finish(it.site.command(None, "backend", &args), PROMPT);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{}", words(&output));
    let place = format!("grantway backend: {}: line 3, column 1: found \"queus\"", it.file());
    assert!(said.starts_with(&place) && said.ends_with("did you mean \"queues\"?\n"), "{said}");
    // A check shows all faults.
    let check = ["backend", "--config", it.file(), "--check"];
    let output = finish(grantway_with(&check), PROMPT);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    for part in [
        "  3 | queus = 2\n    | ^\n",
        "  4 | policy = \"stagin\"\n    |          ^\n",
        "invalid: 2 faults",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(output.stderr.is_empty(), "{}", words(&output));
}

#[test]
fn a_check_prints_the_configuration_and_looks_at_the_rules() {
    let _alone = alone();
    let it = Written::new("port = \"bridge\"\nuplink = \"null\"\n");
    // It needs no host.
    let check = ["backend", "--config", it.file(), "--check", "--queues", "2"];
    let text = succeed(grantway_with(&check), PROMPT);
    for part in ["port = \"bridge\"", "options.toml, line 2", "queues = 2", "# command line"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let rules = it.site.file("rules.toml");
    write(&rules, "[firewal]\n").expect("rules");
    write(&it.file, format!("rules = {:?}\n", rules.to_str().expect("a plain name")))
        .expect("options");
    let output = finish(grantway_with(&["backend", "--config", it.file(), "--check"]), PROMPT);
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(words(&output).contains("rules.toml: line 1, column 2"), "{}", words(&output));
    // So are options that need each other.
    write(&it.file, "uplink = \"null\"\n").expect("options");
    let output = finish(grantway_with(&["backend", "--config", it.file(), "--check"]), PROMPT);
    let parts = ["options.toml with the command line: ", "add --port bridge"];
    assert!(parts.iter().all(|part| words(&output).contains(part)), "{}", words(&output));
    // A device without end is no file of rules.
    write(&it.file, "rules = \"/dev/zero\"\n").expect("options");
    let output = finish(grantway_with(&["backend", "--config", it.file(), "--check"]), PROMPT);
    assert!(words(&output).contains("/dev/zero: more than"), "{}", words(&output));
}

#[test]
fn the_shipped_files_are_read_as_they_are() {
    let _alone = alone();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/etc");
    for (command, more) in [("backend", None), ("frontend", Some(["--tap", "gw0"]))] {
        let file = format!("{folder}/{command}.toml");
        let mut args = vec![command, "--config", &file, "--check"];
        args.extend(more.iter().flatten());
        let text = succeed(grantway_with(&args), PROMPT);
        assert!(!text.contains(", line "), "{text}");
        assert!(text.contains("run-dir = \"/run/grantway\""), "{text}");
    }
}
