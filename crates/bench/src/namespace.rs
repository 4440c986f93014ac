//! Network namespaces of a bench.

use super::tools::{PROMPT, Watch, run};
use grantway_command::error::CommandError;
use std::process::Command;

/// A network namespace; deleted with its interfaces when dropped.
pub struct Namespace(String);

impl Namespace {
    /// Makes it.
    ///
    /// # Errors
    ///
    /// There is one of that name, or it is not ours to make.
    pub fn new(name: String, watch: &Watch) -> Result<Self, CommandError> {
        run("ip", &["netns", "add", &name], PROMPT, watch)?;
        let namespace = Self(name);
        namespace.ip(&["link", "set", "lo", "up"], watch)?;
        Ok(namespace)
    }

    /// Runs `ip` in it, and gives what it said.
    ///
    /// # Errors
    ///
    /// It did not do as it was told.
    pub fn ip(&self, args: &[&str], watch: &Watch) -> Result<String, CommandError> {
        run("ip", &[&["-n", &self.0], args].concat(), PROMPT, watch)
    }

    /// A program in it. `ip` becomes the program, so that the child is it.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, program: S) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).output();
    }
}
