//! Command line of `grantway bench tcp`.

use clap::Args;
use grantway_command::args::{BufferPolicy, whole_seconds};

/// `grantway bench tcp`.
#[derive(Debug, Args)]
#[command(after_help = "\
Sends one TCP stream between two guests on the backend's bridge. Each guest has
a TCP stack in user space; no kernel TCP is used. It runs with and without the
backend's offloads. iperf3 over a veth between two namespaces is the reference,
also with and without offloads. iperf3 copies its data into the kernel and out
of it. The guests' programs also copy their data into their stacks and out of
them, and then run once more without these copies, like a program that makes its
data in place. The variants are interleaved, one second at a time, forwards and
backwards. Gbit/s is payload, the median of the slices; the ratio is to the veth
of the same kind, the median of pairs. With --traced the guests also send while
`grantway flows` reads from their backend, and the ratio is to the same run
without a reader. With --without-veth only guests whose programs copy are
measured, and iperf3, ip and ethtool are not needed. All of this is removed at
the end. Needs root, iperf3, ip and ethtool.

Example:
  grantway bench tcp
  grantway bench tcp --seconds 20 --policy copy --json
  grantway bench tcp --seconds 20 --traced
  grantway bench tcp --seconds 20 --traced --without-veth")]
pub struct TcpArgs {
    /// Buffer policy of the guests.
    #[arg(long, value_enum, default_value_t = BufferPolicy::Staging)]
    pub policy: BufferPolicy,
    /// Also measure the cost of a reader (`grantway flows`).
    #[arg(long)]
    pub traced: bool,
    /// Measure only guests whose programs copy.
    #[arg(long)]
    pub without_veth: bool,
    /// Time of measurement per row, in slices of one second.
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = whole_seconds(1..=3600))]
    pub seconds: u32,
    /// Print JSON: one document in one line.
    #[arg(long)]
    pub json: bool,
}
