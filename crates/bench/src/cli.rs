//! The part of the command line that this program runs: it is given all of it, as
//! `grantway` was.

use crate::args::{BenchArgs, BenchWhat};
use crate::demo::DemoArgs;
use crate::{demo, latency, packets, peers, scale, seeds, stream, tcp, turns, vector};
use clap::{CommandFactory, Parser, Subcommand};
use grantway_command::error::CommandError;
use grantway_command::outline::Outline;
use grantway_command::program::CommandLine;

/// The benches of Grantway, which `grantway` runs.
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
    /// Show the whole path at work on this machine, within seconds.
    Demo(DemoArgs),
    /// Measure.
    Bench(Box<BenchArgs>),
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
            Command::Demo(_) => "demo",
            Command::Bench(_) => "bench",
            Command::Outline => "outline",
        }
    }

    fn run(&self) -> Result<(), CommandError> {
        match &self.command {
            Command::Demo(args) => demo::run(args),
            Command::Bench(args) => bench(args),
            Command::Outline => Outline::of(&Self::command()).print(),
        }
    }
}

/// Runs the bench that was asked for.
fn bench(args: &BenchArgs) -> Result<(), CommandError> {
    match &args.what {
        BenchWhat::Packets(args) => packets::run(args),
        BenchWhat::Latency(args) => latency::run(args),
        BenchWhat::Seeds(args) => seeds::run(args),
        BenchWhat::Peers(args) => peers::run(args),
        BenchWhat::Stream(args) => stream::run(args),
        BenchWhat::Tcp(args) => tcp::run(args),
        BenchWhat::Turns(args) => turns::run(args),
        BenchWhat::Vector(args) => vector::run(args),
        BenchWhat::Lists(args) => vector::count::run(args),
        BenchWhat::Scale(args) => scale::run(args),
        BenchWhat::Guests(args) => scale::guests::run(args),
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
