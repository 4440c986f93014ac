//! Running programs, for commands that ask for their reports.

use clap::Args;
use grantway_command::args::DOMAIN_MAX;
use grantway_command::control::{backend_socket, fetch};
use grantway_command::error::CommandError;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Directory in which running programs have their sockets.
#[derive(Debug, Args)]
pub struct FolderArgs {
    /// Directory of the embedded host. Default: real Xen.
    #[arg(long, value_name = "DIR")]
    pub host: Option<PathBuf>,
    /// Directory of the sockets on Xen.
    #[arg(long, value_name = "DIR", default_value = grantway_command::place::RUN_FOLDER, conflicts_with = "host")]
    pub run_dir: PathBuf,
}

impl FolderArgs {
    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        self.host.as_ref().unwrap_or(&self.run_dir)
    }
}

/// Choice of a backend.
#[derive(Debug, Args)]
pub struct RunningArgs {
    /// Directory of its socket.
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Domain that the backend runs in. Default: the only one with a backend.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=DOMAIN_MAX))]
    pub domain: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl RunningArgs {
    /// Returns the backend's report.
    ///
    /// # Errors
    ///
    /// No backend runs in the folder, or several run and none is named.
    pub fn fetch(&self) -> Result<Value, CommandError> {
        find(self.folder.dir(), self.domain).map(|(_, report)| report)
    }
}

/// Remedy if no backend is found.
pub const REMEDY: &str = "start `grantway backend`, or give its directory with --host or --run-dir";
/// Remedy if no program is found.
const NONE: &str = "start `grantway backend` or `grantway frontend`, or give their directory with \
                    --host or --run-dir";

/// Finds the backend of `domain`, or else the only backend that runs in the folder. Returns its
/// socket and its report.
///
/// # Errors
///
/// No backend runs in the folder, or several run and none is named.
pub fn find(dir: &Path, domain: Option<u16>) -> Result<(PathBuf, Value), CommandError> {
    if let Some(domain) = domain {
        let socket = backend_socket(dir, domain);
        let report = fetch(&socket)
            .map_err(|e| CommandError::Failed(format!("{}: {e}; {REMEDY}", socket.display())))?;
        return Ok((socket, report));
    }
    let mut found: Vec<_> = sockets(dir, "sock", REMEDY)?
        .into_iter()
        .filter(|(name, _)| name.starts_with("backend-"))
        .filter_map(|(_, path)| fetch(&path).ok().map(|report| (path, report)))
        .collect();
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

/// Returns the reports of all programs that run in a folder, by the names of their sockets.
///
/// # Errors
///
/// This user may not read the folder.
pub fn reports(dir: &Path) -> Result<Map<String, Value>, CommandError> {
    // A socket may be left of a program that was killed.
    let reports = sockets(dir, "sock", NONE)?
        .into_iter()
        .filter_map(|(name, path)| Some((name, fetch(&path).ok()?)));
    Ok(reports.collect())
}

/// Returns the reports of all programs that run in a folder, at least one.
///
/// # Errors
///
/// No program runs in the folder, or this user may not read it.
pub fn some_reports(dir: &Path) -> Result<Map<String, Value>, CommandError> {
    let reports = reports(dir)?;
    match reports.is_empty() {
        true => Err(CommandError::Failed(format!(
            "{}: no backend or frontend is running; {NONE}",
            dir.display()
        ))),
        false => Ok(reports),
    }
}

/// Returns the sockets of one kind in a folder, by name and in the order of their names.
///
/// # Errors
///
/// This user may not read the folder.
pub fn sockets(
    dir: &Path,
    extension: &str,
    remedy: &str,
) -> Result<Vec<(String, PathBuf)>, CommandError> {
    let look = || -> std::io::Result<Vec<_>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let is_kind = path.extension().is_some_and(|found| found == extension);
            found.extend(name.filter(|_| is_kind).map(|name| (name, path)));
        }
        found.sort();
        Ok(found)
    };
    look().map_err(|e| CommandError::Failed(format!("{}: {e}; {remedy}", dir.display())))
}
