//! The command that this program runs.

use crate::args::{IperfArgs, IperfEnd};
use crate::{client, server};
use clap::Subcommand;
use grantway_command::error::CommandError;
use grantway_command::program::Commands;

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure TCP and UDP over a vif, in user space, with any iperf 2.
    Iperf(Box<IperfArgs>),
}

impl Commands for Command {
    fn name(&self) -> &'static str {
        "iperf"
    }

    fn run(&self) -> Result<(), CommandError> {
        let Self::Iperf(args) = self;
        match &args.end {
            IperfEnd::Server(args) => server::run(args),
            IperfEnd::Client(args) => client::run(args),
        }
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
