//! Tests of files of rules, right and wrong.

use super::*;
use crate::nodes::classifier::Treatment;
use proptest::prelude::*;

const SECRET: Secret = Secret(1, 2);

const WHOLE: &str = r#"
flows = true

[bridge]
age = 60
stations = 32

[[vif]]
name = "1.0"
mac = "00:16:3e:00:00:01"
addresses = ["10.0.0.2", "fd00::/64"]
isolated = true
stations = 4
rate = 12500000
burst = 100000

[firewall]
default = "drop"

[[rule]]
name = "answers"
action = "accept"
state = "established"

[[rule]]
action = "accept"
network = "ipv4"
protocol = "tcp"
from = "10.0.0.0/8"
to = ["10.0.0.1", "10.1.0.0/16"]
from-ports = "1024-65535"
to-ports = 80
vif = ["1.0", "2.0"]
state = ["new"]

[[filter]]
name = "bulk"
action = "police"
rate = "8Mbit/s"
protocol = "udp"
to-port = "5000/0xfff8"

[[filter]]
action = "redirect"
port = "uplink"
vlan = 5

[[filter]]
action = "queue"
queue = 3
from-mac = "00:16:3e:00:00:00/ff:ff:ff:00:00:00"
tcp-flags = "0x02/0x12"

[[filter]]
action = "mirror"
type = 0x0806
"#;

#[test]
fn a_whole_file() {
    let mut names = Names::default();
    let rules = parse(WHOLE, &mut names, SECRET).unwrap();
    assert!(rules.flows);
    assert_eq!((rules.learning.age, rules.learning.stations), (60_000_000_000, 32));
    let vif = rules.vif(PortId(0)).unwrap();
    assert_eq!(names.name(PortId(0)), Some("1.0"));
    assert_eq!(vif.allowed.macs, [0x0016_3e00_0001]);
    assert_eq!(vif.allowed.networks.len(), 2);
    assert!(vif.isolated && vif.rate.unwrap().burst == 100_000);
    assert_eq!((rules.stations(PortId(0)), rules.stations(PortId(1))), (4, 32));
    assert_eq!(rules.firewall.default, Action::Drop);
    let rule = &rules.firewall.rules[1];
    assert_eq!((rule.name.as_str(), rule.protocol), ("rule 2", Some(6)));
    assert_eq!(
        (rule.source_ports.clone(), rule.target_ports.clone()),
        (Some(1024..=65535), Some(80..=80))
    );
    assert_eq!((rule.targets.len(), rule.vifs.len(), rule.states.len()), (2, 2, 1));
    let treatments: Vec<_> = rules.filters.filters.iter().map(|f| f.treatment).collect();
    assert!(matches!(treatments[0], Treatment::Police(Rate { bytes: 1_000_000, .. })));
    assert!(
        matches!(treatments[1], Treatment::Redirect(port) if names.name(port) == Some("uplink"))
    );
    assert_eq!(treatments[2..], [Treatment::Queue(3), Treatment::Mirror]);
}

#[test]
fn an_empty_file_says_nothing() {
    let rules = parse("", &mut Names::default(), SECRET).unwrap();
    assert!(rules.vifs.is_empty() && rules.firewall.rules.is_empty());
    assert_eq!(rules.firewall.default, Action::Accept);
}

#[test]
fn errors_say_where_what_and_what_to_do() {
    let rule = "[[rule]]\naction = \"accept\"\n";
    let filter = "[[filter]]\naction = \"drop\"\n";
    for (text, line, column, parts) in [
        ("flows = 1", 1, 9, vec!["found 1", "true or false"]),
        ("flwos = true", 1, 1, vec!["\"flwos\"", "bridge, firewall", "did you mean \"flows\"?"]),
        ("xyz = true", 1, 1, vec!["\"xyz\"", "bridge, firewall", "correct or remove"]),
        ("a = [", 1, 6, vec!["TOML"]),
        ("\n[rule]\n", 2, 1, vec!["[[rule]]", "begin each"]),
        (
            "[[rule]]\nname = \"x\"",
            1,
            1,
            vec!["[[rule]] without \"action\"", "\"accept\" or", "add"],
        ),
        ("[[rule]]\n  action = \"acept\"", 2, 12, vec!["\"acept\"", "\"accept\" or \"drop\""]),
        (&format!("{rule}from = \"10.0.0.0/33\""), 3, 8, vec!["10.0.0.0/33", "10.0.0.0/8"]),
        (&format!("{rule}from = [\"::1\", \"x\"]"), 3, 16, vec!["\"x\"", "address"]),
        (&format!("{rule}to-ports = \"9-8\""), 3, 12, vec!["9-8", "1024-65535"]),
        (&format!("{rule}to-ports = 65536"), 3, 12, vec!["65536", "0 to 65535"]),
        (&format!("{rule}protocol = \"tpc\""), 3, 12, vec!["tpc", "icmpv6"]),
        (&format!("{rule}state = \"old\""), 3, 9, vec!["old", "established"]),
        (&format!("{rule}vif = \"vif1\""), 3, 7, vec!["vif1", "\"1.0\""]),
        (&format!("{rule}name = \"a\"\n{rule}name = \"a\""), 4, 1, vec!["\"a\" again", "rename"]),
        (&format!("{filter}{filter}"), 3, 1, vec!["\"filter 1\"", "never matches"]),
        (&format!("{filter}queue = 1"), 3, 9, vec!["no queue", "remove"]),
        (&format!("{filter}from-port = \"80/0x0f\""), 3, 13, vec!["80/0x0f", "mask"]),
        (&format!("{filter}from-mac = \"0:1\""), 3, 12, vec!["0:1", "MAC"]),
        ("[[filter]]\naction = \"police\"", 1, 1, vec!["without \"rate\"", "bytes per second"]),
        ("[[filter]]\naction = \"redirect\"", 1, 1, vec!["without \"port\""]),
        (
            "[[vif]]\nname = \"1.0\"\nrate = \"10Mbps\"",
            3,
            8,
            vec!["10Mbps", "bytes per second from 1", "100Mbit/s"],
        ),
        ("[[vif]]\nname = \"1.0\"\nburst = 2000", 3, 9, vec!["2000", "a rate"]),
        ("[[vif]]\nmac = 5", 1, 1, vec!["without \"name\""]),
        (
            "[[vif]]\nname = \"1.0\"\nisolated = true\n[[vif]]\nname = \"1.0\"",
            5,
            8,
            vec!["each vif once"],
        ),
        ("[bridge]\nage = 0", 2, 7, vec!["found 0", "1 to 1000000"]),
        ("[bridge]\nage = { a = 1 }", 2, 7, vec!["a whole number"]),
        ("[firewall]", 1, 1, vec!["without \"default\""]),
    ] {
        let error = match parse(text, &mut Names::default(), SECRET) {
            Ok(_) => panic!("no error in {text:?}"),
            Err(error) => error,
        };
        assert_eq!((error.line, error.column), (line, column), "{text:?}: {error}");
        let said = error.to_string();
        for part in parts {
            assert!(said.contains(part), "no {part:?} in {said:?}");
        }
    }
}

#[test]
fn a_check_finds_all_faults_in_the_order_of_the_file() {
    let text = "[firewal]\n[[rule]]\naction = \"acept\"\nprotocol = \"tpc\"\nfrm = 1\n\
                [[filter]]\nvlan = 5000\n[[vif]]\nname = 7\nmac = [\"x\", \"y\"]\n[bridge]\nage = 0\n";
    let faults = check(text, &mut Names::default(), SECRET).unwrap_err();
    let places: Vec<_> = faults.iter().map(|fault| (fault.line, fault.column)).collect();
    let expected =
        [(1, 2), (3, 10), (4, 12), (5, 1), (6, 1), (7, 8), (9, 8), (10, 8), (10, 13), (12, 7)];
    assert_eq!(places, expected, "{faults:?}");
    assert_eq!(faults[0].remedy, "did you mean \"firewall\"?");
    assert_eq!(faults[3].remedy, "did you mean \"from\"?");
    // A reader for whom one fault is enough gets the first that is found.
    let first = parse(text, &mut Names::default(), SECRET).unwrap_err();
    assert_eq!(first, faults[0]);
    let many: String = (0..1000).map(|n| format!("x{n} = 1\n")).collect();
    assert_eq!(check(&many, &mut Names::default(), SECRET).unwrap_err().len(), FAULTS_MAX);
    assert!(check(WHOLE, &mut Names::default(), SECRET).is_ok());
}

#[test]
fn too_many_vifs_are_refused() {
    let many: String = (0..=4096).map(|n| format!("[[vif]]\nname = \"{n}.0\"\n")).collect();
    let error = parse(&many, &mut Names::default(), SECRET).unwrap_err();
    assert_eq!((error.line, error.expected.as_str()), (8194, "at most 4096 vifs"));
}

/// Checks that an error points into the file, or behind its end, and has all its texts.
fn check_error(text: &str) {
    let Err(error) = parse(text, &mut Names::default(), SECRET) else { return };
    let lines: Vec<_> = text.split('\n').collect();
    assert!((1..=lines.len()).contains(&error.line), "{error} of {text:?}");
    let line = lines[error.line - 1];
    assert!((1..=line.chars().count() + 1).contains(&error.column), "{error} of {text:?}");
    assert!(!error.found.is_empty() && !error.expected.is_empty() && !error.remedy.is_empty());
}

proptest! {
    #[test]
    fn a_damaged_file_is_refused_with_a_place_in_it(
        changes in proptest::collection::vec((any::<usize>(), any::<char>(), 0u8..3), 1..6),
        words in proptest::collection::vec((any::<usize>(), any::<usize>()), 0..2),
        end in any::<usize>(),
    ) {
        let mut text: Vec<char> = WHOLE.chars().collect();
        // Words of the file in other places: so more of the file is read.
        for (from, to) in words {
            let all: Vec<String> =
                text.iter().collect::<String>().split(' ').map(str::to_owned).collect();
            let mut changed = all.clone();
            changed[to % all.len()] = all[from % all.len()].clone();
            text = changed.join(" ").chars().collect();
        }
        check_error(&text.iter().collect::<String>());
        for (at, char, how) in changes {
            let at = at % text.len();
            match how {
                0 => text[at] = char,
                1 => text.insert(at, char),
                _ => drop(text.remove(at)),
            }
        }
        check_error(&text.iter().collect::<String>());
        text.truncate(end % text.len());
        check_error(&text.iter().collect::<String>());
    }
}
