//! The commands that this program runs.

use crate::args::{BenchArgs, BenchWhat};
use crate::demo::DemoArgs;
use crate::{
    crew, demo, latency, packets, papers, peers, prices, scale, stream, tcp, turns, vector,
};
use clap::Subcommand;
use grantway_command::error::CommandError;
use grantway_command::program::Commands;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole path on this machine for a few seconds.
    Demo(DemoArgs),
    /// Measure packets, latency, TCP, scale and more.
    Bench(Box<BenchArgs>),
}

impl Commands for Command {
    fn name(&self) -> &'static str {
        match self {
            Self::Demo(_) => "demo",
            Self::Bench(_) => "bench",
        }
    }

    fn run(&self) -> Result<(), CommandError> {
        match self {
            Self::Demo(args) => demo::run(args),
            Self::Bench(args) => bench(args),
        }
    }
}

/// Runs the bench that was asked for.
fn bench(args: &BenchArgs) -> Result<(), CommandError> {
    match &args.what {
        BenchWhat::Packets(args) => packets::run(args),
        BenchWhat::Latency(args) => latency::run(args),
        BenchWhat::Papers(args) => papers::run(args),
        BenchWhat::Peers(args) => peers::run(args),
        BenchWhat::Stream(args) => stream::run(args),
        BenchWhat::Tcp(args) => tcp::run(args),
        BenchWhat::Turns(args) => turns::run(args),
        BenchWhat::Crew(args) => crew::run(args),
        BenchWhat::Vector(args) => vector::run(args),
        BenchWhat::Lists(args) => vector::count::run(args),
        BenchWhat::Scale(args) => scale::run(args),
        BenchWhat::Prices(args) => prices::run(args),
        BenchWhat::Guests(args) => scale::guests::run(args),
        BenchWhat::TapEnd(args) => peers::tap_end::run(args),
    }
}

#[cfg(test)]
#[path = "../../command/tests/examples/mod.rs"]
mod examples;

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_command::program::Part;

    #[test]
    fn every_command_teaches_with_an_example() {
        examples::every_command_teaches::<Part<Command>>(&["outline"]);
    }

    #[test]
    fn every_example_is_a_command_line() {
        examples::every_example_is_a_command_line::<Part<Command>>();
    }
}
