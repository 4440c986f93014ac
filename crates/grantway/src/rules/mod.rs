//! `grantway rules` checks files of rules, and shows what running rules did.

mod live;
mod show;

pub use live::{LiveRules, secret};

use clap::{Args, Subcommand};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_vector::Secret;
use grantway_vector::rules::{Names, VifRules, parse};
use std::path::{Path, PathBuf};

/// `grantway rules`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  grantway rules check rules.toml
  grantway rules show --json")]
pub struct RulesArgs {
    /// Command about rules.
    #[command(subcommand)]
    pub what: RulesWhat,
}

/// Commands about rules.
#[derive(Debug, Subcommand)]
pub enum RulesWhat {
    /// Check a rules file and show its faults.
    Check(CheckArgs),
    /// Show the counters of a running backend's rules.
    Show(show::ShowArgs),
}

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

Exit status: 0 if the file is valid, 1 otherwise.

Example:
  grantway rules check rules.toml")]
pub struct CheckArgs {
    /// Rules file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Runs the command.
///
/// # Errors
///
/// The file cannot be read, or is invalid; or no backend runs.
pub fn run(args: &RulesArgs) -> Result<(), CommandError> {
    match &args.what {
        RulesWhat::Check(args) => check(args),
        RulesWhat::Show(args) => show::run(args),
    }
}

fn check(args: &CheckArgs) -> Result<(), CommandError> {
    let path = args.file.display();
    let text = read(&args.file)?;
    // The result of a check does not depend on the secret.
    let rules = parse(&text, &mut Names::default(), Secret(0, 0))
        .map_err(|error| CommandError::Failed(format!("{path}: {error}")))?;
    let vifs = rules.vifs.iter().filter(|vif| **vif != VifRules::default());
    output::line(format!(
        "{path}: valid: {}, {}, {}",
        count(vifs.count(), "vif"),
        count(rules.firewall.rules.len(), "rule"),
        count(rules.filters.filters.len(), "filter"),
    ))
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn read(path: &Path) -> Result<String, CommandError> {
    std::fs::read_to_string(path).map_err(|error| {
        CommandError::Failed(format!(
            "{}: {error}; expected a rules file in UTF-8 (see `grantway rules check --help`)",
            path.display()
        ))
    })
}
