//! The log of the stack's own state (`docs/stack-log.md`).

use grantway_command::error::CommandError;
use grantway_ports::{Clock, wall};
use grantway_stack::{FlowLine, Stack};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Least time between two lines of a flow.
const EVERY: Duration = Duration::from_millis(10);

/// A log, being written.
pub struct StackLog {
    file: BufWriter<File>,
    path: PathBuf,
    /// The clock of a capture.
    wall: Clock,
    /// Time of the last lines.
    last: Duration,
}

impl StackLog {
    /// Makes the file, and has the stack keep the states of its flows.
    ///
    /// # Errors
    ///
    /// The file cannot be made.
    pub fn begin(path: &Path, stack: &mut Stack) -> Result<Self, CommandError> {
        let file = File::create(path)
            .map_err(|error| CommandError::Failed(format!("{}: {error}", path.display())))?;
        stack.log_flows(true);
        let file = BufWriter::new(file);
        Ok(Self { file, path: path.to_owned(), wall: wall(), last: Duration::ZERO })
    }

    /// Writes a line for each flow that moved, if it is time for it.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&mut self, stack: &mut Stack, now: Duration) -> Result<(), CommandError> {
        match now.saturating_sub(self.last) >= EVERY {
            true => self.write_now(stack, now),
            false => Ok(()),
        }
    }

    /// Writes a line for each flow that moved, and all lines to the file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn end(&mut self, stack: &mut Stack, now: Duration) -> Result<(), CommandError> {
        self.write_now(stack, now)?;
        self.file.flush().map_err(|error| failed(&self.path, &error))
    }

    fn write_now(&mut self, stack: &mut Stack, now: Duration) -> Result<(), CommandError> {
        self.last = now;
        let Self { file, path, wall, .. } = self;
        let time = wall();
        let mut done = Ok(());
        stack.flow_states(&mut |state| {
            if done.is_ok() {
                done = writeln!(file, "{}", FlowLine { time, state: *state });
            }
        });
        done.map_err(|error| failed(path, &error))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Failed(format!("{}: {error}", path.display()))
}
