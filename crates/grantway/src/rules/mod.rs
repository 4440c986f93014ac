//! `grantway rules` checks rules files, and shows counters of loaded rules.

mod check;
mod live;
mod show;

pub use live::{LiveRules, secret};
pub use show::show;

use clap::{Args, Subcommand};
use grantway_command::error::CommandError;
use grantway_command::input;
use grantway_vector::Secret;
use grantway_vector::rules::{Names, parse};
use std::path::Path;

/// Largest file of rules, in bytes.
const FILE_MAX: u64 = 64 << 20;

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
    Check(check::CheckArgs),
    /// Show the counters of a running backend's rules.
    Show(show::ShowArgs),
}

/// Runs the command.
///
/// # Errors
///
/// The file cannot be read or is invalid, or no backend runs.
pub fn run(args: &RulesArgs) -> Result<(), CommandError> {
    match &args.what {
        RulesWhat::Check(args) => check::run(args),
        RulesWhat::Show(args) => show::run(args),
    }
}

/// Checks a file of rules.
///
/// # Errors
///
/// The file cannot be read, or is invalid.
pub fn valid(path: &Path) -> Result<(), CommandError> {
    // The result of a check does not depend on the secret.
    let read = parse(&read(path)?, &mut Names::default(), Secret(0, 0));
    read.map(drop).map_err(|e| CommandError::Failed(format!("{}: {e}", path.display())))
}

fn read(path: &Path) -> Result<String, CommandError> {
    input::text(path, FILE_MAX).map_err(|error| {
        CommandError::Failed(format!(
            "{}: {error}; expected a rules file in UTF-8 (see `grantway rules check --help`)",
            path.display()
        ))
    })
}
