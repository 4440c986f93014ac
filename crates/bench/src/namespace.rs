//! Network namespaces of a bench.

use super::tools::{PROMPT, Watch, run};
use grantway_command::error::CommandError;
use std::process::Command;

/// A network namespace; deleted with its interfaces when dropped.
pub struct Namespace(String);

impl Namespace {
    /// Makes the namespace.
    ///
    /// # Errors
    ///
    /// A namespace of that name exists, or this process may not make one.
    pub fn new(name: String, watch: &Watch) -> Result<Self, CommandError> {
        run("ip", &["netns", "add", &name], PROMPT, watch)?;
        let namespace = Self(name);
        namespace.ip(&["link", "set", "lo", "up"], watch)?;
        Ok(namespace)
    }

    /// Turns IPv6 off for interfaces that are made from now on, so that the kernel sends nothing of
    /// its own on them.
    ///
    /// # Errors
    ///
    /// The setting cannot be written.
    pub fn without_ipv6(&self, watch: &Watch) -> Result<(), CommandError> {
        // A kernel without IPv6 has no such file.
        let at = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        let script = format!("test ! -e {at} || echo 1 > {at}");
        run("ip", &["netns", "exec", &self.0, "sh", "-c", &script], PROMPT, watch).map(drop)
    }

    /// Runs `ip` in the namespace. Returns its output.
    ///
    /// # Errors
    ///
    /// `ip` failed, or did not end in time.
    pub fn ip(&self, args: &[&str], watch: &Watch) -> Result<String, CommandError> {
        run("ip", &[&["-n", &self.0], args].concat(), PROMPT, watch)
    }

    /// Returns a command that runs a program in the namespace. `ip` becomes the program, so the
    /// child process is the program itself.
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
