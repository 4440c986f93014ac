//! Command line of `grantway bench stream`.

use crate::args::{List, Listed, OutputArgs, named, policies, queues};
use clap::Args;
use grantway_backend::policy::Policy;
use grantway_command::args::{Switch, whole_seconds};

/// `grantway bench stream`.
#[derive(Debug, Args)]
#[command(after_help = "\
For each policy it starts a host, a backend and a guest, and two network
namespaces that only their vif connects: one has the backend's TAP, the other
the guest's. iperf3 sends TCP for one second at a time, with the policies
interleaved, first from the guest, then to it. All of this is removed at the
end, also on Ctrl-C.

Gbit/s is the received payload, median of the slices. Grant operations, copied
bytes, notifications and wake-ups are totals of both ends per packet that the
backend moved, acknowledgements included. With TCP segmentation offloads a
packet has up to 64 KiB. One flow stays on one queue, so several queues get
eight flows each. Needs root and iperf3.

With `--gso off` the frontend does not use large frames, and its kernel segments
what it sends. Add `--merge off,on` to compare with and without merging of
segments for receivers that accept large frames.

Example:
  grantway bench stream --seconds 10
  grantway bench stream --policy staging --gso off --merge off,on
  grantway bench stream --policy copy,staging --queues 1,2 --report stream.html")]
pub struct StreamArgs {
    /// Buffer policies, or `all`. The first policy with the first switches is the reference of the
    /// ratios.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = policies)]
    pub policy: List<Policy>,
    /// Queues of the vif.
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = queues)]
    pub queues: List<u16>,
    /// Large TCP frames in the frontend: on, off, or `all`.
    #[arg(long, value_name = "LIST", default_value = "on", value_parser = switches)]
    pub gso: List<Switch>,
    /// Merging of TCP segments in both ends: on, off, or `all`.
    #[arg(long, value_name = "LIST", default_value = "on", value_parser = switches)]
    pub merge: List<Switch>,
    /// Time of measurement per row, in slices of one second.
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = whole_seconds(1..=3600))]
    pub seconds: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn switches(text: &str) -> Listed<Switch> {
    named(text, &[Switch::On, Switch::Off], |switch| switch.as_str().to_owned())
}
