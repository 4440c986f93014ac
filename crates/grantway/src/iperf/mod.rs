//! `grantway iperf`: iperf 2's protocol, over TCP and UDP in user space.
//!
//! - [`args`]: the command line; [`header`]: what is written into what is sent.
//! - [`guest`]: the vif, its stack, and the loop that both ends run in.
//! - [`server`], [`client`]: the two ends; [`datagrams`]: what came of UDP, as a server
//!   counts it; [`report`]: what is printed.

pub mod args;
mod client;
mod datagrams;
mod guest;
mod header;
mod report;
mod server;

use crate::error::CommandError;
use args::{IperfArgs, IperfEnd};

/// Runs the command.
///
/// # Errors
///
/// The vif is not to be had, or the other end does not answer.
pub fn run(args: &IperfArgs) -> Result<(), CommandError> {
    match &args.end {
        IperfEnd::Server(args) => server::run(args),
        IperfEnd::Client(args) => client::run(args),
    }
}
