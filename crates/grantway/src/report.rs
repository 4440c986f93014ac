//! `grantway report` prints the reports of the programs that run in a folder.

use crate::args::ReportArgs;
use grantway_command::control::fetch;
use grantway_command::error::CommandError;
use grantway_command::output;
use serde_json::{Map, Value};
use std::path::Path;

/// Prints all reports, by the names of their sockets.
///
/// # Errors
///
/// No program runs in the folder, or this user may not look into it.
pub fn run(args: &ReportArgs) -> Result<(), CommandError> {
    let dir = args.host.as_ref().unwrap_or(&args.run_dir);
    let reports = reports_in(dir)?;
    if reports.is_empty() {
        return Err(CommandError::Failed(format!(
            "{}: no backend or frontend is running; {REMEDY}",
            dir.display()
        )));
    }
    output::line(Value::Object(reports).to_string())
}

const REMEDY: &str = "start `grantway backend` or `grantway frontend`, or give their directory \
                      with --host or --run-dir";

/// Returns the reports of all programs that run in a folder, by the names of their sockets.
///
/// # Errors
///
/// This user may not look into the folder.
pub fn reports_in(dir: &Path) -> Result<Map<String, Value>, CommandError> {
    gather(dir).map_err(|e| CommandError::Failed(format!("{}: {e}; {REMEDY}", dir.display())))
}

fn gather(dir: &Path) -> std::io::Result<Map<String, Value>> {
    let mut reports = Map::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let reports_there = path.extension().is_some_and(|extension| extension == "sock");
        // A socket may be left of a program that was killed.
        if let Some(name) = name.filter(|_| reports_there)
            && let Ok(report) = fetch(&path)
        {
            reports.insert(name, report);
        }
    }
    Ok(reports)
}
