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
    /// Say whether a file is in order, and where it is not.
    Check(CheckArgs),
    /// Show what the rules of a running backend let pass and dropped.
    Show(show::ShowArgs),
}

/// `grantway rules check`.
#[derive(Debug, Args)]
#[command(after_help = "\
A file is TOML, and all of it is optional:

  flows = true                    # count the flows that go by
  [bridge]
  age = 300                       # seconds that a station is remembered
  stations = 64                   # how many of each vif
  [[vif]]
  name = \"1.0\"                    # domain and number, or \"uplink\"
  mac = \"00:16:3e:00:00:01\"       # or several, in [ ]: what it may send from
  addresses = [\"10.0.0.2\", \"fd00::/64\"]
  isolated = true                 # it reaches no other isolated vif
  rate = 12500000                 # bytes a second; burst = bytes at once
  [firewall]
  default = \"drop\"                # where no rule fits
  [[rule]]                        # the first that fits says what becomes of a frame
  action = \"accept\"
  network = \"ipv4\"                # or ipv6, arp, other
  protocol = \"tcp\"                # or udp, icmp, icmpv6, a number
  from = \"10.0.0.0/8\"             # to = ...; one, or several
  to-ports = \"8000-8080\"          # from-ports = ...
  vif = \"1.0\"
  state = [\"new\", \"established\"]  # or invalid, untracked
  [[filter]]                      # fields as of a rule, one value each, and
  action = \"police\"               # pass, drop, mirror; queue with queue = N; police
  rate = 1000000                  # with rate and burst; redirect with port = \"1.0\"
  to-port = \"5000/0xfff8\"         # from-port, tcp-flags: perhaps with a mask
  from-mac = \"00:16:3e:00:00:00/ff:ff:ff:00:00:00\" # to-mac; type and vlan are numbers

Rules and filters may have a name of their own; counters go by it.

Exit status: 0 where the file is in order, 1 otherwise.

Example:
  grantway rules check rules.toml")]
pub struct CheckArgs {
    /// The file.
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
        "{path}: in order: {}, {}, {}",
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
            "{}: {error}; expected a file of rules in UTF-8, as `grantway rules check --help` \
             shows",
            path.display()
        ))
    })
}
