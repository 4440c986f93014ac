//! How a command ends when it does not end well.

use crate::program::error::ProgramError;
use std::fmt::Display;
use std::process::ExitCode;

/// Why a command failed. The message says what was found, what was expected
/// and what to do, in one line.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line asks for something that cannot be: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// The command line was in order, and it could not be done: exit status 1.
    #[error("{0}")]
    Failed(String),
    /// What is wrong stands on standard output already: exit status 1.
    #[error("reported")]
    Reported,
}

impl CommandError {
    /// A failure, by the words of what failed.
    pub fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A command line that cannot be followed, by the words of what is wrong.
    pub fn usage(error: impl Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// What the process exits with.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) | Self::Reported => ExitCode::from(1),
        }
    }

    /// Says on standard error why `command` failed, unless that was said; gives what the
    /// process exits with.
    #[must_use]
    pub fn end(&self, command: &str) -> ExitCode {
        if !matches!(self, Self::Reported) {
            eprintln!("{}", self.line(command));
        }
        self.exit_code()
    }

    /// The one line that is shown.
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
