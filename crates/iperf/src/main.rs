//! The program that `grantway iperf` runs: iperf 2's protocol, over TCP and UDP in user
//! space.
//!
//! - [`cli`], [`args`]: the command line. The headers and the counts of UDP are `grantway-iperf2`.
//! - [`log`]: the log of the stack's own state.
//! - [`guest`]: the vif, its stack, and the loop that both ends run in.
//! - [`server`], [`client`]: the two ends. [`report`]: the lines that are printed.
#![forbid(unsafe_code)]

mod args;
mod cli;
mod client;
mod guest;
mod log;
mod report;
mod server;

use grantway_command::program::{Part, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::<Part<cli::Command>>()
}
