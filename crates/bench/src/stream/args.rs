//! Command line of `grantway bench stream`.

use crate::args::{List, Listed, OutputArgs, named, policies, queues};
use clap::Args;
use grantway_backend::policy::Policy;
use grantway_command::args::Switch;

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

With `--gso off` the frontend is one that has no large frames, and its kernel cuts
what it sends; `--merge off,on` then shows what it brings that both ends merge
segments for receivers that accept large frames.

Example:
  grantway bench stream --seconds 10
  grantway bench stream --policy staging --gso off --merge off,on
  grantway bench stream --policy copy,staging --queues 1,2 --report stream.html")]
pub struct StreamArgs {
    /// Policies by which the buffers cross, or `all`; the others are compared with the first, with
    /// the first of the switches.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = policies)]
    pub policy: List<Policy>,
    /// Queues of the vif.
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = queues)]
    pub queues: List<u16>,
    /// Use of large TCP frames by the frontend: on, off, or `all`.
    #[arg(long, value_name = "LIST", default_value = "on", value_parser = switches)]
    pub gso: List<Switch>,
    /// Merging of TCP segments by both ends: on, off, or `all`.
    #[arg(long, value_name = "LIST", default_value = "on", value_parser = switches)]
    pub merge: List<Switch>,
    /// Seconds that each row of the table is measured, in slices of one second.
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn switches(text: &str) -> Listed<Switch> {
    named(text, &[Switch::On, Switch::Off], |switch| switch.as_str().to_owned())
}
