//! `grantway demo`: all policies on the embedded host, from nothing to a table.

use crate::contest::Point;
use crate::document::Document;
use crate::packets;
use crate::rig::Direction;
use crate::slices::Timing;
use grantway_backend::policy::Policy;
use grantway_command::args::seconds;
use grantway_command::args::{Api, WaitModeArg};
use grantway_command::error::CommandError;
use grantway_command::output;

/// `grantway demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs neither Xen nor root.

Example:
  grantway demo --seconds 2")]
pub struct DemoArgs {
    /// Time of measurement per row.
    #[arg(long, value_name = "TIME", default_value = "0.4s", value_parser = seconds)]
    pub seconds: f64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const SIZES: [usize; 3] = [64, 1496, 65_535];

/// Measures every policy on every point and prints one table.
///
/// # Errors
///
/// A part of the rig failed.
pub fn run(args: &DemoArgs) -> Result<(), CommandError> {
    let of = |direction| {
        SIZES.map(|size| Point {
            direction,
            size,
            queues: 1,
            burst: 64,
            mode: WaitModeArg::Adaptive,
            api: Api::Copy,
            rate: None,
            timed: 0,
        })
    };
    // Every direction with every size.
    let points: Vec<Point> = Direction::ONE_WAY.into_iter().flat_map(of).collect();
    if !args.json {
        eprintln!(
            "First a host, a backend and a guest with one vif: three processes, once per buffer\n\
             policy. Then two guests, each with a vif, on the backend's own bridge. The sender\n\
             numbers the packets and the receiver checks them.\n"
        );
    }
    let timing = Timing::short(args.seconds, None)?;
    let rows = packets::measure(&points, &Policy::ALL, timing, args.json)?;
    if args.json {
        // JSON has no explanations.
        return Document::new("demo", &rows).print();
    }
    output::line(format!(
        "{}\n\
         Look at the ratios of 64 bytes: small packets cost mostly grant operations, and\n\
         mapped pages (staging, persistent) need none.\n\n\
         lost: detected by sequence numbers. A sender waits for space; a bridge does not wait\n\
         for a receiver. Grant operations of the embedded host do real work of the same kind as\n\
         Xen's, at another cost. state: place of the two processors (near: one shared cache;\n\
         far: separate caches), which changes figures by several times.\n\
         Further columns: grantway demo --json. More: grantway bench --help",
        packets::brief(&rows)
    ))
}
