//! The command line. An option's help says what it means; the module of its command says what it
//! does.

use crate::args::{
    AttachArgs, BackendArgs, DetachArgs, DoctorArgs, FrontendArgs, HostArgs, ListArgs, ReportArgs,
};
use crate::programs::{self, ProgramArgs};
use crate::{
    attach, backend, ctl, doctor, flows, frontend, generate, host, list, nodes, plan, report,
    rules, top, uevent,
};
use clap::{CommandFactory, Parser, Subcommand};
use grantway_command::error::CommandError;
use grantway_command::program::CommandLine;

/// The Xen paravirtual network path in user space.
#[derive(Debug, Parser)]
#[command(name = "grantway", version, arg_required_else_help = true)]
#[command(after_help = "\
Example, from nothing to frames that cross, in three terminals:
  grantway host --dir /tmp/gw
  grantway attach --host /tmp/gw --domain 1 '' && grantway backend --host /tmp/gw --port check
  grantway frontend --host /tmp/gw --domain 1 --devid 0 --port generator:size=64

Exit status: 0 done, 1 it could not be done, 2 the command line is wrong.")]
pub struct Cli {
    /// Log more: once for debug, twice for trace. RUST_LOG wins.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the embedded host: domains, grants, event channels and a xenstore.
    Host(HostArgs),
    /// Give a domain a vif, by the string that xl takes.
    Attach(AttachArgs),
    /// Take a vif from a domain.
    Detach(DetachArgs),
    /// Show the vifs of a host, and what the host holds.
    List(ListArgs),
    /// Serve the vifs of a host: the netback side.
    Backend(BackendArgs),
    /// Run one vif of a domain: the netfront side.
    Frontend(FrontendArgs),
    /// Speak TCP and UDP over a vif, in user space, with any iperf 2.
    Iperf(ProgramArgs),
    /// Ask a running frontend to use its control ring.
    Ctl(crate::ctl::args::CtlArgs),
    /// Print what running backends and frontends report, as JSON.
    Report(ReportArgs),
    /// Show what running backends do: rates, batches, drops, workers.
    Top(crate::top::TopArgs),
    /// Show the whole path at work on this machine, within seconds.
    Demo(ProgramArgs),
    /// Measure.
    Bench(ProgramArgs),
    /// Find what keeps a backend from serving, and say what to do about it.
    Doctor(DoctorArgs),
    /// Say what so many vifs need, and which limits are too small for them.
    Plan(crate::plan::args::PlanArgs),
    /// Check files of rules for the packets that go through a backend, and show theirs.
    Rules(crate::rules::RulesArgs),
    /// Show what went through the nodes of a running backend.
    Graph(crate::nodes::GraphArgs),
    /// Tell what each TCP flow of a capture did, and why it stood still.
    Flows(crate::flows::FlowsArgs),
    /// Write man pages, and completions for shells.
    #[command(hide = true)]
    Generate(crate::generate::GenerateArgs),
    /// Raise the kernel's events of vifs that a backend names on the standard input.
    #[command(name = uevent::COMMAND, hide = true, after_help = uevent::HELP)]
    UeventHelper,
}

impl CommandLine for Cli {
    fn verbose(&self) -> u8 {
        self.verbose
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
            Command::Top(_) => "top",
            Command::Demo(_) => "demo",
            Command::Bench(_) => "bench",
            Command::Doctor(_) => "doctor",
            Command::Plan(_) => "plan",
            Command::Rules(_) => "rules",
            Command::Graph(_) => "graph",
            Command::Flows(_) => "flows",
            Command::Generate(_) => "generate",
            Command::UeventHelper => uevent::COMMAND,
        }
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
            Command::Top(args) => top::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Plan(args) => plan::run(args),
            Command::Rules(args) => rules::run(args),
            Command::Graph(args) => nodes::run(args),
            Command::Flows(args) => flows::run(args),
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
