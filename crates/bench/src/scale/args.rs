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
One backend serves many guests. Each guest has one vif with several queues, and
each queue has two event channels. One other process runs all guests. Active
vifs send frames of 64 bytes as fast as they are accepted, all from one thread.
The other vifs stay connected and idle.

If all vifs are active, the reference is one vif alone; otherwise it is the
active vifs without the idle ones. Default without --vifs: 300 vifs with copy,
all active, and 1000 vifs with staging, 8 of them active.

connect: time from the first guest that looks for its vif until packets can flow
on the last one, with all pages staged. RSS and private: memory of the backend
per vif, after packets have flowed; RSS includes pages that it shares with
guests. idle: processor share of the backend while no guest is active. Staged
pages are 4.1 MiB per vif with two queues; guests have these pages in any case.

Example:
  grantway bench scale
  grantway bench scale --vifs 300 --policy staging
  grantway bench scale --vifs 1000 --active 8 --policy staging --json")]
pub struct ScaleArgs {
    /// Number of guests, each with a vif.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(VIFS_MAX)))]
    pub vifs: Option<u16>,
    /// Number of vifs that send. Default: all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(VIFS_MAX)), requires = "vifs")]
    pub active: Option<u16>,
    /// Buffer policy.
    #[arg(long, value_enum, default_value_t = BufferPolicy::Copy, requires = "vifs")]
    pub policy: BufferPolicy,
    /// Queues per vif.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=QUEUES_MAX))]
    pub queues: u16,
    /// Time of measurement, for the vifs and for the reference.
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = seconds)]
    pub seconds: f64,
    /// Time of measurement of the idle backend.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = seconds)]
    pub idle: f64,
    /// Slices of each. Default: one per 0.1 s and at most 20, or more if a slice would take longer
    /// than 0.5 s.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pairs: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `grantway bench guests`.
#[derive(Debug, Args)]
#[command(after_help = "\
`grantway bench scale` starts this process, a host and a backend. It attaches a
vif to each domain from 1, connects all vifs, sends a frame on each queue,
prints `ready`, and then sends frames from the active vifs. SIGTERM and SIGINT
end it: it closes and detaches the vifs.

Example:
  grantway bench guests --host /tmp/gw --vifs 300 --active 0 --queues 2")]
pub struct GuestsArgs {
    /// Directory of the embedded host.
    #[arg(long, value_name = "DIR")]
    pub host: PathBuf,
    /// Number of guests, each with a vif.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(VIFS_MAX)))]
    pub vifs: u16,
    /// Number of vifs that send.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=i64::from(VIFS_MAX)))]
    pub active: u16,
    /// Queues per vif.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=QUEUES_MAX))]
    pub queues: u16,
    /// Buffer policy.
    #[arg(long, value_enum, default_value_t = BufferPolicy::Copy)]
    pub policy: BufferPolicy,
    /// Pin this process to a processor.
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
}

const _: () = assert!(VIFS_MAX as i64 <= DOMAIN_MAX);
