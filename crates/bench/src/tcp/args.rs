//! Command line of `grantway bench tcp`.

use clap::Args;
use grantway_command::args::BufferPolicy;

/// `grantway bench tcp`.
#[derive(Debug, Args)]
#[command(after_help = "\
Two guests on the bridge of a backend, each with a stack in user space and no kernel's
TCP anywhere, one stream, once with the backend's offloads and once without any; and
iperf3 over a veth between two namespaces, likewise. iperf3 copies its data to the
kernel and from there; the guests' programs do so to and from their stacks, and then
once more without, as a program may that makes its data where it is sent from. They
send by turns, a second at a time, forwards and backwards. Gbit/s are of payload, the
median of the slices; ratio is to the veth of the same kind, the median of pairs. With
--traced the guests send once more each way while `grantway flows` listens to their
backend, and the ratio is to the same while nobody does. All of it is gone when it
ends. Needs root, iperf3, ip and ethtool.

Example:
  grantway bench tcp
  grantway bench tcp --seconds 20 --policy copy --json
  grantway bench tcp --seconds 20 --traced")]
pub struct TcpArgs {
    /// Policy by which the guests' buffers cross.
    #[arg(long, value_enum, default_value_t = BufferPolicy::Staging)]
    pub policy: BufferPolicy,
    /// Measure also the cost of a reader of the flows.
    #[arg(long)]
    pub traced: bool,
    /// Seconds that each row of the table is measured, in slices of one second.
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Print JSON: one document in one line.
    #[arg(long)]
    pub json: bool,
}
