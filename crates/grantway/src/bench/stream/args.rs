//! `grantway bench stream` on the command line.

use crate::bench::args::{List, OutputArgs, policies, queues};
use clap::Args;
use grantway_backend::policy::PolicyKind;

/// `grantway bench stream`.
#[derive(Debug, Args)]
#[command(after_help = "\
For each policy a host, a backend and a guest, and two network namespaces which
only their vif joins: the backend's TAP in one, the guest's in the other. iperf3
sends TCP through, a second at a time, policy by policy in turns, first from the
guest, then to it. All of it is gone when it ends, on Ctrl-C too.

Gbit/s are what arrives of the payload, the median of the slices. Grant operations,
bytes that they copied, notifications and wake-ups are those of both ends, for each
packet that the backend moved, acknowledgements counted; with TCP segmentation
offloads a packet has up to 64 KiB. A single flow keeps to one queue, so several
queues get eight flows each. Needs root and iperf3.

Example:
  grantway bench stream --seconds 10
  grantway bench stream --policy copy,staging --queues 1,2 --report stream.html")]
pub struct StreamArgs {
    /// How the buffers cross, or `all`; the first is what the others are compared
    /// with.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = policies)]
    pub policy: List<PolicyKind>,
    /// Queues of the vif.
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = queues)]
    pub queues: List<u16>,
    /// How long each row of the table is measured: slices of one second.
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}
