//! The end of a command that fails.

use crate::log;
use crate::program::error::ProgramError;
use std::fmt::Display;
use std::process::ExitCode;

/// The reason why a command failed. The message says what was found, what was expected and what to
/// do, in one line.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line asks for something that cannot be: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// The command line was right, but the command could not be done: exit status 1.
    #[error("{0}")]
    Failed(String),
    /// The fault stands on standard output already: exit status 1.
    #[error("reported")]
    Reported,
}

impl CommandError {
    /// Makes a failure of any error's text.
    pub fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// Makes an error about the command line of any error's text.
    pub fn usage(error: impl Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// Returns the exit status of the process.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) | Self::Reported => ExitCode::from(1),
        }
    }

    /// Says on standard error why `command` failed, unless it was reported already. Returns the
    /// exit status of the process.
    #[must_use]
    pub fn end(&self, command: &str) -> ExitCode {
        if !matches!(self, Self::Reported) {
            eprintln!("{}{}", log::error_prefix(), self.line(command));
        }
        self.exit_code()
    }

    /// Returns the one line that is shown.
    fn line(&self, command: &str) -> String {
        let text = self.to_string();
        let words: Vec<_> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        format!("grantway {command}: {}", words.join(" "))
    }
}

impl From<grantway_hypervisor::Error> for CommandError {
    fn from(error: grantway_hypervisor::Error) -> Self {
        Self::failed(error)
    }
}

impl From<ProgramError> for CommandError {
    fn from(error: ProgramError) -> Self {
        Self::failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_whatever_the_message() {
        let error = CommandError::Failed("one\n  two\n\nthree".into());
        assert_eq!(error.line("host"), "grantway host: one two three");
    }
}
