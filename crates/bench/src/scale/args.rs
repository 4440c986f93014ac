//! Command lines of `grantway bench scale`, and of the process that has its guests.

use clap::Args;
use grantway_command::args::seconds;
use grantway_command::args::{BufferPolicy, DOMAIN_MAX, QUEUES_MAX};
use std::path::PathBuf;

/// Most vifs of a bench. Each guest is a domain of its own, so the store of the embedded host, the
/// descriptors of the process and its memory limit their number.
pub const VIFS_MAX: u16 = 4096;

/// `grantway bench scale`.
#[derive(Debug, Args)]
#[command(after_help = "\
One backend serves many guests, each with a vif of several queues and an event channel
each way for each of them; one more process has all guests. Active vifs send frames of
64 bytes as fast as they are taken, all of them together from one thread. The others
stay connected and do nothing.

Where all are active, the reference is one vif alone; else it is as many vifs as are
active, with no others beside them. Without --vifs: 300 by copy, all active, and 1000
by staging, 8 of them active.

connect: from the first guest that looks for its vif to the last one whose packets may
flow, staged pages included. RSS and private: what the backend's process has in memory
for each vif, after packets have flowed; pages that it shares with guests are in the
first only. idle: what the backend takes of a processor while no guest does anything.
Staged pages are 4.1 MiB a vif of two queues, and guests have them in any case.

Example:
  grantway bench scale
  grantway bench scale --vifs 300 --policy staging
  grantway bench scale --vifs 1000 --active 8 --policy staging --json")]
pub struct ScaleArgs {
    /// Number of guests, each with a vif.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(VIFS_MAX)))]
    pub vifs: Option<u16>,
    /// Number of vifs that send; by default all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(VIFS_MAX)), requires = "vifs")]
    pub active: Option<u16>,
    /// Policy by which the buffers cross.
    #[arg(long, value_enum, default_value_t = BufferPolicy::Copy, requires = "vifs")]
    pub policy: BufferPolicy,
    /// Queues of each vif.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=QUEUES_MAX))]
    pub queues: u16,
    /// Seconds that the vifs and the reference are measured each.
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds)]
    pub seconds: f64,
    /// Seconds that the backend is watched while there is no work.
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    pub idle: f64,
    /// Slices of each; by default one per 0.1 s, at most 20 unless that makes them longer than 0.5
    /// s.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pairs: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `grantway bench guests`.
#[derive(Debug, Args)]
#[command(after_help = "\
For grantway bench scale, which starts a host and a backend for them. Attaches a vif to
each domain from 1 on, connects all of them, has a frame cross on each queue, says
`ready`, and sends frames from those that are active. SIGTERM and SIGINT end it: then
the vifs are closed and detached.

Example:
  grantway bench guests --host /tmp/gw --vifs 300 --active 0 --queues 2")]
pub struct GuestsArgs {
    /// Folder of the embedded host.
    #[arg(long, value_name = "DIR")]
    pub host: PathBuf,
    /// Number of guests, each with a vif.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(VIFS_MAX)))]
    pub vifs: u16,
    /// Number of vifs that send.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=i64::from(VIFS_MAX)))]
    pub active: u16,
    /// Queues of each vif.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=QUEUES_MAX))]
    pub queues: u16,
    /// Policy by which the buffers cross.
    #[arg(long, value_enum, default_value_t = BufferPolicy::Copy)]
    pub policy: BufferPolicy,
    /// Pin this process to a processor.
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
}

const _: () = assert!(VIFS_MAX as i64 <= DOMAIN_MAX);
