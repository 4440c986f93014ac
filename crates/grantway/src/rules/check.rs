//! `grantway rules check`: a rules file, and its faults.

use clap::Args;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_vector::Secret;
use grantway_vector::rules::{FAULTS_MAX, Names, Rules, TextFault, VifRules, check};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// `grantway rules check`.
#[derive(Debug, Args)]
#[command(after_help = "\
A rules file is TOML. All parts are optional:

  flows = true                    # count flows
  [bridge]
  age = 300                       # seconds until a silent station is forgotten
  stations = 64                   # stations per vif
  [[vif]]
  name = \"1.0\"                    # domain and number, or \"uplink\"
  mac = \"00:16:3e:00:00:01\"       # source addresses; several in [ ]
  addresses = [\"10.0.0.2\", \"fd00::/64\"]
  isolated = true                 # cannot reach other isolated vifs
  rate = 12500000                 # bytes per second; burst = bytes at once
  [firewall]
  default = \"drop\"                # if no rule matches
  [[rule]]                        # the first rule that matches decides
  action = \"accept\"
  network = \"ipv4\"                # or ipv6, arp, other
  protocol = \"tcp\"                # or udp, icmp, icmpv6, a number
  from = \"10.0.0.0/8\"             # to = ...; one or several
  to-ports = \"8000-8080\"          # from-ports = ...
  vif = \"1.0\"
  state = [\"new\", \"established\"]  # or invalid, untracked
  [[filter]]                      # fields as in a rule, but one value each
  action = \"police\"               # or pass, drop, mirror, redirect, queue
  rate = 1000000                  # for police, with burst; queue needs
                                  # queue = N, redirect needs port = \"1.0\"
  to-port = \"5000/0xfff8\"         # or from-port, tcp-flags; /mask is optional
  from-mac = \"00:16:3e:00:00:00/ff:ff:ff:00:00:00\"
                                  # or to-mac; type and vlan are numbers

A rule or a filter may have a `name`. Its counters keep that name.

All faults are shown, each with its line. Of a file that is not TOML only the
first fault is known.

Exit status: 0 if the file is valid, 1 otherwise.

Example:
  grantway rules check rules.toml
  grantway rules check rules.toml --json | jq '.faults[].line'")]
pub struct CheckArgs {
    /// Rules file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Checks the file, and prints its content or its faults.
///
/// # Errors
///
/// The file cannot be read, or is invalid.
pub fn run(args: &CheckArgs) -> Result<(), CommandError> {
    let text = super::read(&args.file)?;
    // The result of a check does not depend on the secret.
    let checked = check(&text, &mut Names::default(), Secret(0, 0));
    output::line(match args.json {
        true => json_of(&args.file, &checked).to_string(),
        false => text_of(&args.file, &text, &checked),
    })?;
    checked.map(drop).map_err(|_| CommandError::Reported)
}

/// Returns the number of vifs that have rules, of rules and of filters.
fn counts(rules: &Rules) -> [usize; 3] {
    let vifs = rules.vifs.iter().filter(|vif| **vif != VifRules::default());
    [vifs.count(), rules.firewall.rules.len(), rules.filters.filters.len()]
}

fn json_of(file: &Path, checked: &Result<Rules, Vec<TextFault>>) -> Value {
    match checked {
        Ok(rules) => {
            let [vifs, rules, filters] = counts(rules);
            json!({
                "file": file, "valid": true, "vifs": vifs, "rules": rules, "filters": filters,
                "faults": [],
            })
        }
        Err(faults) => {
            let fault = |fault: &TextFault| {
                json!({
                    "line": fault.line, "column": fault.column, "found": fault.found,
                    "expected": fault.expected, "remedy": fault.remedy,
                })
            };
            let faults: Vec<_> = faults.iter().map(fault).collect();
            json!({ "file": file, "valid": false, "faults": faults })
        }
    }
}

fn text_of(file: &Path, text: &str, checked: &Result<Rules, Vec<TextFault>>) -> String {
    let file = file.display();
    let faults = match checked {
        Ok(rules) => {
            let [vifs, rules, filters] = counts(rules);
            let [vifs, rules] = [count(vifs, "vif"), count(rules, "rule")];
            return format!("{file}: valid: {vifs}, {rules}, {}", count(filters, "filter"));
        }
        Err(faults) => faults,
    };
    let mut shown = String::new();
    for fault in faults {
        // Writing to a string cannot fail.
        let _ = writeln!(shown, "{file}: {fault}\n{}", fault.excerpt(text));
    }
    let more = if faults.len() < FAULTS_MAX { "" } else { ", or more" };
    shown + &format!("{file}: invalid: {}{more}", count(faults.len(), "fault"))
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> (String, Value) {
        let checked = check(text, &mut Names::default(), Secret(0, 0));
        let file = Path::new("r.toml");
        (text_of(file, text, &checked), json_of(file, &checked))
    }

    #[test]
    fn each_fault_has_its_line_and_a_caret() {
        let (text, json) =
            checked("flows = true\n[firewal]\ndefault = \"drop\"\n[bridge]\n\tage = 0");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("r.toml: line 2, column 2: found \"firewal\""), "{text}");
        assert!(lines[0].ends_with("did you mean \"firewall\"?"), "{text}");
        assert_eq!(lines[1..3], ["  2 | [firewal]", "    |  ^"]);
        assert!(lines[3].contains("a whole number from 1 to 1000000"), "{text}");
        assert_eq!(lines[4..], ["  5 |  age = 0", "    |        ^", "r.toml: invalid: 2 faults"]);
        assert_eq!((&json["valid"], &json["faults"][1]["line"]), (&json!(false), &json!(5)));
    }

    #[test]
    fn a_caret_stands_below_the_fault_of_a_long_line() {
        let long = format!("{}flows = 1", " ".repeat(200));
        let (text, _) = checked(&long);
        let lines: Vec<_> = text.lines().collect();
        let at = lines[2].find('^').unwrap();
        assert_eq!(lines[1].as_bytes()[at], b'1', "{text}");
        assert!(lines[1].len() <= 80, "{text}");
    }

    #[test]
    fn a_valid_file_has_counts() {
        let (text, json) = checked("[[rule]]\naction = \"accept\"\n");
        assert_eq!(text, "r.toml: valid: 0 vifs, 1 rule, 0 filters");
        assert_eq!((&json["valid"], &json["rules"]), (&json!(true), &json!(1)));
    }
}
