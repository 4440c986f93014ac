//! `grantway report` prints the reports of the programs that run in a folder.

use crate::running::{FolderArgs, some_reports};
use clap::Args;
use grantway_command::error::CommandError;
use grantway_command::output;
use serde_json::Value;

/// `grantway report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints one object with one report per socket in the directory: counters of vifs,
queues and ports, and calls to the hypervisor. `grantway show --json` prints the
same.

Example:
  grantway report | jq '.\"backend-0\".platform.copies'
  grantway report --host /tmp/gw")]
pub struct ReportArgs {
    /// Directory of the sockets.
    #[command(flatten)]
    pub folder: FolderArgs,
}

/// Prints all reports, by the names of their sockets.
///
/// # Errors
///
/// No program runs in the folder, or this user may not read it.
pub fn run(args: &ReportArgs) -> Result<(), CommandError> {
    output::line(Value::Object(some_reports(args.folder.dir())?).to_string())
}
