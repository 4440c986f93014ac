//! A running backend, for the commands that ask it for its report.

use clap::Args;
use grantway_command::args::DOMAIN_MAX;
use grantway_command::control::{backend_socket, fetch};
use grantway_command::error::CommandError;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Choice of a backend.
#[derive(Debug, Args)]
pub struct RunningArgs {
    /// Folder of the embedded host; on Xen where missing.
    #[arg(long, value_name = "DIR")]
    pub host: Option<PathBuf>,
    /// Folder of sockets on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
    /// The domain that it serves in; where missing, the one in which one runs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=DOMAIN_MAX))]
    pub domain: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Remedy if no backend is found.
pub const REMEDY: &str = "start `grantway backend`, or give its directory with --host or --run-dir";

impl RunningArgs {
    /// Returns the backend's report.
    ///
    /// # Errors
    ///
    /// No backend runs in the folder, or several do and none is named.
    pub fn fetch(&self) -> Result<Value, CommandError> {
        let dir = self.host.as_ref().unwrap_or(&self.run_dir);
        find(dir, self.domain).map(|(_, report)| report)
    }
}

/// Finds the backend of `domain`, or else the only one that runs in the folder. Returns its socket
/// and its report.
///
/// # Errors
///
/// No backend runs in the folder, or several do and none is named.
pub fn find(dir: &Path, domain: Option<u16>) -> Result<(PathBuf, Value), CommandError> {
    let failed =
        |path: &Path, e| CommandError::Failed(format!("{}: {e}; {REMEDY}", path.display()));
    if let Some(domain) = domain {
        let socket = backend_socket(dir, domain);
        let report = fetch(&socket).map_err(|e| failed(&socket, e))?;
        return Ok((socket, report));
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| failed(dir, e))? {
        let path = entry.map_err(|e| failed(dir, e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A socket may be left of a backend that was killed.
        if name.starts_with("backend-")
            && name.ends_with(".sock")
            && let Ok(report) = fetch(&path)
        {
            found.push((path, report));
        }
    }
    match found.len() {
        0 => {
            Err(CommandError::Failed(format!("{}: no backend is running; {REMEDY}", dir.display())))
        }
        1 => Ok(found.swap_remove(0)),
        many => Err(CommandError::Failed(format!(
            "{}: {many} backends are running; choose one with --domain",
            dir.display()
        ))),
    }
}
