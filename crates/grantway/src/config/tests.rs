//! Tests of files of options, and of the one that is shipped.

use super::*;
use crate::args::backend_definition;
use crate::cli::Cli;
use clap::ArgAction;
use grantway_command::program::CommandLine;
use std::fs;

const SHIPPED: &str = include_str!("../../../../packaging/etc/backend.toml");
const SHIPPED_FRONTEND: &str = include_str!("../../../../packaging/etc/frontend.toml");

/// Reads a command line that names a file with this text.
fn line(text: &str, words: &str) -> Result<Cli, Refusal> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("options.toml");
    fs::write(&path, text).unwrap();
    let words = words.replace("FILE", path.to_str().unwrap());
    Cli::read(words.split_whitespace().map(OsString::from).collect())
}

/// Returns the options in force of a command line that is valid.
fn in_force(text: &str, words: &str) -> String {
    match line(text, words) {
        Ok(mut line) => line.command.config_mut().unwrap().in_force.to_string(),
        Err(refused) => panic!("{text}\n{refused:?}"),
    }
}

/// Returns the error about a file.
fn refused(text: &str, words: &str) -> String {
    match line(text, words) {
        Err(Refusal::Failed { command, error }) => format!("{command}: {error}"),
        other => panic!("{text}\n{other:?}"),
    }
}

const BACKEND: &str = "grantway backend --config FILE";

#[test]
fn each_option_has_its_value_and_origin() {
    let text = "\n# Options.\nport = \"bridge\"\nqueues = 2 # two\ndrain-timeout = \"20s\"\n";
    let shown = in_force(text, "grantway backend --queues 3 --config FILE --no-sandbox");
    let has = |start: &str, end: &str| {
        let found = shown.lines().any(|line| line.starts_with(start) && line.ends_with(end));
        assert!(found, "no {start:?} and {end:?} in {shown}");
    };
    has("port = \"bridge\" ", "options.toml, line 3");
    has("drain-timeout = \"20s\" ", "options.toml, line 5");
    has("queues = 3 ", " # command line");
    has("no-sandbox = true ", " # command line");
    has("stall-timeout = \"60s\" ", " # default");
    has("# mode is not set", "");
    // What is printed is a file again, with the same effect.
    let again = in_force(&shown, BACKEND);
    let values = |text: &str| -> Vec<String> {
        let value = |line: &str| line.split("  #").next().unwrap().trim_end().to_owned();
        text.lines().map(value).collect()
    };
    assert_eq!(values(&again), values(&shown));
}

#[test]
fn the_command_line_wins_over_the_file_also_by_what_it_excludes() {
    let shown = in_force(
        "run-dir = \"/run/other\"\nmirror = \"m.pcap\"",
        &format!("{BACKEND} --host /tmp/gw --rules r.toml"),
    );
    assert!(shown.contains("host = \"/tmp/gw\""), "{shown}");
    assert!(shown.contains("mirror = \"m.pcap\""), "{shown}");
    assert!(!shown.contains("/run/other"), "{shown}");
    let gives_way = "options.toml, line 1, gives way\n";
    assert!(shown.contains("# run-dir is not set: ") && shown.contains(gives_way), "{shown}");
    // The unit of a frontend gives its TAP.
    let shown =
        in_force("port = \"null\"\nqueues = 2", "grantway frontend --config FILE --tap gw0");
    assert!(shown.contains("queues = 2") && shown.contains("# port is not set"), "{shown}");
    // An option that is needed may be in the file.
    let shown = in_force("port = \"null\"", "grantway frontend --config FILE");
    assert!(shown.contains("port = \"null\""), "{shown}");
    let shown = in_force("verbose = 2\nlog-format = \"json\"", BACKEND);
    assert!(shown.contains("verbose = 2") && shown.contains("log-format = \"json\""), "{shown}");
    let line = line("verbose = 2", BACKEND).unwrap();
    assert_eq!(line.log.verbose, 2);
}

#[test]
fn what_is_printed_is_a_file_again() {
    for (text, words) in [
        // The default of --run-dir cannot stand beside a host.
        ("host = \"/tmp/gw\"", BACKEND),
        ("", "grantway backend --config FILE --host /tmp/gw"),
        ("", "grantway frontend --config FILE --host /tmp/gw --domain 1 --tap gw0"),
        ("run-dir = \"/x\"\nhost = \"/y\"", "grantway backend --config FILE --run-dir /z"),
        // TOML has no larger number than 2^63 - 1.
        ("host = \"18446744073709551615\"", BACKEND),
        ("verbose = 0\nno-sandbox = false", BACKEND),
    ] {
        let shown = in_force(text, words);
        let command = words.split(' ').nth(1).unwrap();
        let again = in_force(&shown, &format!("grantway {command} --config FILE"));
        let values = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| line.split("  #").next().unwrap().trim_end().to_owned()).collect()
        };
        assert_eq!(values(&again), values(&shown), "{text} {words}");
        assert!(!values(&shown).is_empty());
    }
    let shown = in_force("verbose = 0\nno-sandbox = false", BACKEND);
    for origin in ["options.toml, line 1\n", "options.toml, line 2\n"] {
        assert!(shown.contains(origin), "no {origin:?} in {shown}");
    }
}

#[test]
fn each_fault_says_where_it_is_what_is_expected_and_what_to_do() {
    for (text, parts) in [
        (
            "queus = 2",
            &["line 1, column 1: found \"queus\"", "one of host", "did you mean \"queues\"?"][..],
        ),
        ("\n  zzz = 2", &["line 2, column 3", "there is no option --zzz: correct or remove it"]),
        ("config = \"x\"", &["found \"config\", expected one of"]),
        ("check = true", &["found \"check\", expected one of"]),
        (
            "queues = 99",
            &["column 10: found 99, expected a whole number from 1 to", "correct queues"],
        ),
        ("queues = true", &["found true, expected a text in quotes, or a whole number"]),
        ("queues = [1]", &["found [1], expected"]),
        ("queues = 1.5", &["found 1.5, expected"]),
        ("workers = \"many\"", &["found \"many\", expected a whole number from 1 to 64"]),
        ("cpu = -1", &["found -1, expected a whole number from 0"]),
        (
            "policy = \"stagin\"",
            &["one of \"copy\", \"map\", \"persistent\", \"staging\"", "did you mean \"staging\"?"],
        ),
        ("merge = false", &["found false, expected one of \"on\", \"off\""]),
        ("no-sandbox = \"yes\"", &["found \"yes\", expected true or false"]),
        ("verbose = -1", &["found -1, expected a whole number from 0 to 255"]),
        ("port = \"tapp\"", &["found \"tapp\", expected one of tap[:NAME]", "correct port"]),
        ("uplink = \"packet\"", &["found \"packet\", expected its name"]),
        ("metrics = \"localhost\"", &["an address and a port, such as 127.0.0.1:9633"]),
        ("tap-mac = \"x\"", &["expected `keep`, or the address of one device"]),
        ("stall-timeout = \"1 day\"", &["expected a time of at least 0 whole ms"]),
        (
            "[backend]\nqueues = 2",
            &["found a table, expected lines NAME = VALUE", "without a heading"],
        ),
        ("queues = 2\nqueues = 3", &["line 2", "duplicate key", "TOML"]),
        ("queues 2", &["line 1", "expected TOML; see https://toml.io"]),
        ("a.b = 2", &["found a table", "lines NAME = VALUE"]),
        (
            "queues = 2\nport = tap # mine",
            &["line 2, column 8: found tap, expected a value in quotes", "write port = \"tap\""],
        ),
        ("tap-mac = fe:ff:ff:ff:ff:fe", &["write tap-mac = \"fe:ff:ff:ff:ff:fe\""]),
        ("rules = /etc/rules.toml", &["write rules = \"/etc/rules.toml\""]),
        ("host = \"\"", &["found \"\", expected a text that is not empty"]),
    ] {
        let said = refused(text, BACKEND);
        assert!(said.starts_with("backend: /") && said.contains("options.toml: line "), "{said}");
        for part in parts {
            assert!(said.contains(part), "{text:?}: no {part:?} in {said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let words = ["grantway", "backend", "--config", "/none/x"];
    let missing = Cli::read(words.map(OsString::from).into());
    let missing = format!("{:?}", missing.err());
    assert!(
        missing.contains("/none/x: No such file") && missing.contains("create it"),
        "{missing}"
    );
}

#[test]
fn no_more_than_a_hundred_faults_are_told() {
    let text: String = (0..70_000).map(|n| format!("wrong{n} = 1\n")).collect();
    let faults = file::entries(&text, &[]).unwrap_err();
    assert_eq!(faults.len(), file::FAULTS_MAX);
    let lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, (1..=file::FAULTS_MAX).collect::<Vec<_>>());
}

#[test]
fn options_that_do_not_go_together_name_the_file() {
    let said = refused("mirror = \"m.pcap\"", BACKEND);
    for part in ["options.toml with the command line: ", "--rules <FILE>", "correct the file"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let said = refused("port = \"null\"\ntap = \"gw0\"", "grantway frontend --config FILE");
    assert!(said.contains("cannot be used with"), "{said}");
    assert!(said.contains("options.toml, lines 1 and 2, with the command line: "), "{said}");
    // A fault of the command line itself stays one.
    assert!(matches!(line("queues = 2", &format!("{BACKEND} --nonsense")), Err(Refusal::Line(_))));
    assert!(matches!(line("queues = 2", &format!("{BACKEND} --help")), Err(Refusal::Line(_))));
}

#[test]
fn every_option_is_judged_with_what_it_expects() {
    for name in ["backend", "frontend"] {
        let definition = Cli::definition();
        let (_, options) = options(&definition, name);
        for arg in options {
            // A flag or a path has its own rows above.
            let option = arg.get_long().unwrap();
            let names = arg.get_value_names().unwrap_or_default().join(" ");
            let is_path = ["DIR", "FILE", "FILE.pcap", "NAME"].contains(&names.as_str());
            if !matches!(arg.get_action(), ArgAction::Set) || is_path {
                continue;
            }
            let faults = file::entries(&format!("{option} = \"\u{1f600}\""), &[arg]);
            let fault = faults.expect_err(option).swap_remove(0);
            assert!(!fault.expected.contains("accepts"), "{option}: {fault}");
        }
    }
}

/// Checks that a shipped file sets nothing, and that each option that it shows is one.
fn check_shipped(text: &str, command: &str, own: &[&str]) {
    let definition = Cli::definition();
    let (_, options) = options(&definition, command);
    assert_eq!(file::entries(text, &options), Ok(vec![]), "{command}: nothing is set");
    let examples: Vec<_> = text.lines().filter_map(|line| line.strip_prefix('#')).collect();
    let examples: Vec<_> =
        examples.into_iter().filter(|line| !line.starts_with(' ') && !line.is_empty()).collect();
    let mut shown = Vec::new();
    for example in examples {
        let entries = file::entries(example, &options);
        let entries = entries.unwrap_or_else(|faults| panic!("{example}: {}", faults[0]));
        assert_eq!(entries.len(), 1, "{example}");
        shown.push(entries[0].id.clone());
        // What has a default is shown with it.
        let arg = options.iter().find(|arg| arg.get_id() == &entries[0].id).unwrap();
        if let [default] = arg.get_default_values() {
            let default = default.to_str().unwrap();
            let value = example.split_once(" = ").unwrap().1.trim_matches('"');
            assert_eq!(value, default, "{example}");
        }
    }
    for arg in options.iter().filter(|arg| !arg.is_hide_set()) {
        let times = shown.iter().filter(|id| *id == arg.get_id()).count();
        let is_own = own.contains(&arg.get_long().unwrap());
        assert_eq!(times, usize::from(!is_own), "{command}: {}", arg.get_id());
    }
}

#[test]
fn the_shipped_files_show_every_option_with_its_default() {
    check_shipped(SHIPPED, "backend", &["host", "domain"]);
    check_shipped(SHIPPED_FRONTEND, "frontend", &["host", "domain", "devid", "tap", "port"]);
}

#[test]
fn the_doctor_finds_port_and_fault() {
    let backend = backend_definition();
    let port = |text: &str| value_of(&backend, text, "port");
    assert_eq!(port("verbose = 1\nport = \"vhost:gw=0\"").as_deref(), Some("vhost:gw=0"));
    assert_eq!(port("verbose = 1\nport = \"pcap:in=a\"").as_deref(), Some("pcap:in=a"));
    assert_eq!((port("queues = 2"), port("port = 3"), port("[")), (None, None, None));
    let fault = |text: &str| fault_of(&backend, text).map(|fault| fault.line);
    assert_eq!((fault(SHIPPED), fault("\nx = 1")), (None, Some(2)));
}
