//! The command line of a program that `grantway` executes for some of its commands. The program
//! is given the whole command line, as `grantway` was.

use super::CommandLine;
use crate::error::CommandError;
use crate::log::LogFormat;
use crate::outline::Outline;
use clap::{CommandFactory, Parser, Subcommand};

/// Commands of such a program.
pub trait Commands: Subcommand {
    /// Returns the name of the command that was given, for messages.
    fn name(&self) -> &'static str;

    /// Runs the command.
    ///
    /// # Errors
    ///
    /// The command could not be carried out.
    fn run(&self) -> Result<(), CommandError>;
}

/// Some commands of Grantway, which `grantway` runs.
#[derive(Debug, Parser)]
#[command(name = "grantway", version = crate::VERSION, arg_required_else_help = true)]
#[command(bin_name = "grantway")]
pub struct Part<C: Commands> {
    /// Log more: -v for debug, -vv for trace. RUST_LOG overrides this.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 900)]
    verbose: u8,
    /// Log format on standard error: text, or json with one object per event.
    #[arg(
        long,
        value_enum,
        global = true,
        value_name = "FORMAT",
        hide_possible_values = true,
        default_value_t,
        display_order = 901
    )]
    log_format: LogFormat,
    /// The command.
    #[command(subcommand)]
    command: Command<C>,
}

#[derive(Debug, Subcommand)]
enum Command<C: Commands> {
    #[command(flatten)]
    Own(C),
    /// Print what this command line looks like, for `grantway generate`.
    #[command(hide = true)]
    Outline,
}

impl<C: Commands> CommandLine for Part<C> {
    fn verbose(&self) -> u8 {
        self.verbose
    }

    fn log_format(&self) -> LogFormat {
        self.log_format
    }

    fn name(&self) -> &'static str {
        match &self.command {
            Command::Own(own) => own.name(),
            Command::Outline => "outline",
        }
    }

    fn run(&self) -> Result<(), CommandError> {
        match &self.command {
            Command::Own(own) => own.run(),
            Command::Outline => Outline::of(&Self::command()).print(),
        }
    }
}
