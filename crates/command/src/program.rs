//! A program of the command line: its start and end, and the search for another program.

pub(crate) mod error;
mod part;

pub use error::ProgramError;
pub use part::{Commands, Part};

use crate::args::refuse;
use crate::error::CommandError;
use crate::log::LogFormat;
use crate::{log, panics};
use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The command line of a program.
pub trait CommandLine: Parser {
    /// Returns the number of times that `-v` was given.
    fn verbose(&self) -> u8;

    /// Returns the format of the log.
    fn log_format(&self) -> LogFormat;

    /// Returns the command that was asked for, for messages.
    fn name(&self) -> &'static str;

    /// Returns the definition of the command line.
    #[must_use]
    fn definition() -> clap::Command {
        Self::command()
    }

    /// Reads the command line `words`, the first of which is the program's name.
    ///
    /// # Errors
    ///
    /// The command line is wrong, or asks for help.
    fn read(words: Vec<OsString>) -> Result<Self, Refusal> {
        let mut definition = Self::definition();
        let found = definition.try_get_matches_from_mut(words);
        let read = found.and_then(|found| Self::from_arg_matches(&found));
        read.map_err(|refused| Refusal::Line(refused.format(&mut definition)))
    }

    /// Runs the command.
    ///
    /// # Errors
    ///
    /// The command could not be done.
    fn run(&self) -> Result<(), CommandError>;
}

/// Reason why a program does not begin.
#[derive(Debug)]
pub enum Refusal {
    /// The command line is wrong, or asks for help or version.
    Line(clap::Error),
    /// A file that the command line names is wrong.
    Failed {
        /// Command, for the message.
        command: String,
        /// The fault.
        error: CommandError,
    },
}

impl Refusal {
    /// Says why the program does not begin. Returns the exit status of the process.
    fn end(&self) -> ExitCode {
        match self {
            Self::Line(error) => refuse(error),
            Self::Failed { command, error } => error.end(command),
        }
    }
}

/// Runs a program from its command line to its exit status.
#[must_use]
pub fn main<C: CommandLine>() -> ExitCode {
    let line = match C::read(std::env::args_os().collect()) {
        Ok(line) => line,
        Err(refused) => return refused.end(),
    };
    panics::end_the_process();
    match log::start(line.verbose(), line.log_format()).and_then(|()| line.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.end(line.name()),
    }
}

/// Returns the path of the program `name`: beside this program, or in the first folder of `PATH`
/// that has it.
///
/// # Errors
///
/// No folder has the program.
pub fn find(name: &str) -> Result<PathBuf, ProgramError> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().unwrap_or(Path::new(""));
    find_in(name, beside, &std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(name: &str, beside: &Path, path: &OsStr) -> Result<PathBuf, ProgramError> {
    let folders = std::iter::once(beside.to_owned()).chain(std::env::split_paths(path));
    // An empty name stands for the working folder, where no program is looked for.
    let folders = folders.filter(|folder| !folder.as_os_str().is_empty());
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| ProgramError::Missing {
        name: name.to_owned(),
        beside: beside.display().to_string(),
    })
}

/// Becomes the program `name`, with these arguments.
///
/// # Errors
///
/// There is no such program, or it cannot be run. Without an error this function does not return.
pub fn become_program(
    name: &str,
    args: impl IntoIterator<Item = OsString>,
) -> Result<(), ProgramError> {
    let path = find(name)?;
    let source = Command::new(&path).args(args).exec();
    Err(ProgramError::Refused { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_beside_comes_before_that_of_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let [beside, empty, other] = ["beside", "empty", "other"].map(|name| {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            folder
        });
        let path = std::env::join_paths([&empty, &other]).unwrap();
        let missing = find_in("grantway-bench", &beside, &path).unwrap_err().to_string();
        assert!(missing.contains(&format!("neither in {} nor", beside.display())), "{missing}");
        assert!(missing.contains("cargo build --release -p grantway-bench"), "{missing}");
        for folder in [&other, &beside] {
            std::fs::write(folder.join("grantway-bench"), "").unwrap();
            let found = find_in("grantway-bench", &beside, &path).unwrap();
            assert_eq!(found, folder.join("grantway-bench"));
        }
    }
}
