//! The part of the command line that this program runs: it is given all of it, as
//! `grantway` was.

use crate::args::{IperfArgs, IperfEnd};
use crate::{client, server};
use clap::{CommandFactory, Parser, Subcommand};
use grantway_command::error::CommandError;
use grantway_command::outline::Outline;
use grantway_command::program::CommandLine;

/// TCP and UDP over a vif, which `grantway` runs.
#[derive(Debug, Parser)]
#[command(name = "grantway", version, arg_required_else_help = true)]
#[command(bin_name = "grantway")]
pub struct Cli {
    /// Log more: once for debug, twice for trace. RUST_LOG wins.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Speak TCP and UDP over a vif, in user space, with any iperf 2.
    Iperf(Box<IperfArgs>),
    /// Print what this command line looks like, for `grantway generate`.
    #[command(hide = true)]
    Outline,
}

impl CommandLine for Cli {
    fn verbose(&self) -> u8 {
        self.verbose
    }

    fn name(&self) -> &'static str {
        match self.command {
            Command::Iperf(_) => "iperf",
            Command::Outline => "outline",
        }
    }

    fn run(&self) -> Result<(), CommandError> {
        match &self.command {
            Command::Iperf(args) => match &args.end {
                IperfEnd::Server(args) => server::run(args),
                IperfEnd::Client(args) => client::run(args),
            },
            Command::Outline => Outline::of(&Self::command()).print(),
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
        examples::every_command_teaches::<Cli>(&["outline"]);
    }

    #[test]
    fn every_example_is_a_command_line() {
        examples::every_example_is_a_command_line::<Cli>();
    }
}
