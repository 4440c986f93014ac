//! The command line. The help of an option defines it; the module of a command describes what the
//! command does.

use crate::args::{
    AttachArgs, BackendArgs, DetachArgs, DoctorArgs, FrontendArgs, HostArgs, ListArgs, LogArgs,
};
use crate::config::ConfigArgs;
use crate::programs::{self, ProgramArgs};
use crate::{
    attach, backend, config, ctl, doctor, flows, frontend, generate, host, list, nodes, overview,
    plan, report, rules, show, top, uevent,
};
use clap::{CommandFactory, Parser, Subcommand};
use grantway_command::error::CommandError;
use grantway_command::log::LogFormat;
use grantway_command::program::{CommandLine, Refusal};
use std::ffi::OsString;

/// The Xen paravirtual network path in user space.
#[derive(Debug, Parser)]
#[command(name = "grantway", version = grantway_command::VERSION)]
#[command(arg_required_else_help = true, before_help = overview::EXAMPLES)]
#[command(after_help = "\
Without Xen; host, backend and frontend each need a terminal:
  grantway host --dir /tmp/gw
  grantway attach --host /tmp/gw --domain 1
  grantway backend --host /tmp/gw --port check
  grantway frontend --host /tmp/gw --domain 1 --port generator:size=64

`grantway COMMAND --help` describes a command.
Exit status: 0 success, 1 failure, 2 invalid command line.")]
pub struct Cli {
    /// Options about the log.
    #[command(flatten)]
    pub log: LogArgs,
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an embedded host: domains, grants, event channels, xenstore.
    Host(HostArgs),
    /// Add a vif to a domain, in the syntax of xl.
    Attach(AttachArgs),
    /// Remove a vif from a domain.
    Detach(DetachArgs),
    /// Show the vifs and tables of an embedded host.
    #[command(hide = true)]
    List(ListArgs),
    /// Serve the vifs of guests, in place of xen-netback.
    Backend(BackendArgs),
    /// Run one vif of a guest, in place of xen-netfront.
    Frontend(FrontendArgs),
    /// Measure TCP and UDP over a vif, in user space, with any iperf 2.
    Iperf(ProgramArgs),
    /// Change the hash and the staged pages of a running frontend.
    Ctl(crate::ctl::args::CtlArgs),
    /// Print the reports of running backends and frontends as JSON.
    #[command(hide = true)]
    Report(report::ReportArgs),
    /// Show vifs, queues, drops and more, once.
    Show(show::ShowArgs),
    /// Show rates, batches, drops and workers of running backends.
    Top(crate::top::TopArgs),
    /// Run the whole path on this machine for a few seconds.
    Demo(ProgramArgs),
    /// Measure packets, latency, TCP, scale and more.
    Bench(ProgramArgs),
    /// Find faults that keep guests offline, with a remedy for each.
    Doctor(DoctorArgs),
    /// Show what a number of vifs needs, and limits that are too small.
    Plan(crate::plan::args::PlanArgs),
    /// Check a rules file, or show the counters of a backend's rules.
    Rules(crate::rules::RulesArgs),
    /// Show packets and time per node of a running backend.
    #[command(hide = true)]
    Graph(crate::nodes::GraphArgs),
    /// Show TCP flows of a capture or a backend, and why they stalled.
    Flows(crate::flows::FlowsArgs),
    /// Print completions for a shell.
    Completions(generate::CompletionsArgs),
    /// Write man pages and shell completions.
    #[command(hide = true)]
    Generate(crate::generate::GenerateArgs),
    /// Raise udev events for the vifs that a backend names on standard input.
    #[command(name = uevent::COMMAND, hide = true, after_help = uevent::HELP)]
    UeventHelper,
}

impl Command {
    /// Returns the options that a file may add to, of a command that has them.
    pub fn config_mut(&mut self) -> Option<&mut ConfigArgs> {
        match self {
            Self::Backend(args) => Some(&mut args.options),
            Self::Frontend(args) => Some(&mut args.options),
            _ => None,
        }
    }
}

impl CommandLine for Cli {
    fn verbose(&self) -> u8 {
        self.log.verbose
    }

    fn log_format(&self) -> LogFormat {
        self.log.log_format
    }

    fn name(&self) -> &'static str {
        match &self.command {
            Command::Host(_) => "host",
            Command::Attach(_) => "attach",
            Command::Detach(_) => "detach",
            Command::List(_) => "list",
            Command::Backend(_) => "backend",
            Command::Frontend(_) => "frontend",
            Command::Iperf(_) => "iperf",
            Command::Ctl(_) => "ctl",
            Command::Report(_) => "report",
            Command::Show(_) => "show",
            Command::Top(_) => "top",
            Command::Demo(_) => "demo",
            Command::Bench(_) => "bench",
            Command::Doctor(_) => "doctor",
            Command::Plan(_) => "plan",
            Command::Rules(_) => "rules",
            Command::Graph(_) => "graph",
            Command::Flows(_) => "flows",
            Command::Completions(_) => "completions",
            Command::Generate(_) => "generate",
            Command::UeventHelper => uevent::COMMAND,
        }
    }

    fn definition() -> clap::Command {
        overview::grouped(Self::command())
    }

    fn read(words: Vec<OsString>) -> Result<Self, Refusal> {
        config::read(Self::definition(), words, |line: &mut Self| line.command.config_mut())
    }

    fn run(&self) -> Result<(), CommandError> {
        match &self.command {
            Command::Host(args) => host::run(args),
            Command::Attach(args) => attach::attach(args),
            Command::Detach(args) => attach::detach(args),
            Command::List(args) => list::run(args),
            Command::Backend(args) => backend::run(args),
            Command::Frontend(args) => frontend::run(args),
            Command::Bench(_) | Command::Demo(_) => programs::run(programs::BENCH),
            Command::Iperf(_) => programs::run(programs::IPERF),
            Command::Ctl(args) => ctl::run(args),
            Command::Report(args) => report::run(args),
            Command::Show(args) => show::run(args),
            Command::Top(args) => top::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Plan(args) => plan::run(args),
            Command::Rules(args) => rules::run(args),
            Command::Graph(args) => nodes::run(args),
            Command::Flows(args) => flows::run(args),
            Command::Completions(args) => generate::completions(args, Self::command()),
            Command::Generate(args) => generate::run(args, Self::command()),
            Command::UeventHelper => uevent::run(),
        }
    }
}

#[cfg(test)]
#[path = "../../command/tests/examples/mod.rs"]
mod examples;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_teaches_with_an_example() {
        examples::every_command_teaches::<Cli>(&["bench", "demo", "iperf"]);
    }

    #[test]
    fn every_example_is_a_command_line() {
        examples::every_example_is_a_command_line::<Cli>();
    }
}
