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
    /// Seconds that each line of the table is measured.
    #[arg(long, value_name = "S", default_value = "0.4", value_parser = seconds)]
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
            "A host, a backend and a guest, each a process of its own, joined by one vif, by every\n\
             policy in turn; then two guests, each with its vif, on the backend's own bridge.\n\
             Packets are numbered by the sender and checked by the receiver.\n"
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
         Look at the ratios of 64 bytes: what a packet costs beyond its bytes is its grant\n\
         operations, and staged or persistent pages need none once they are mapped.\n\n\
         lost: by sequence numbers; a sender waits for space, but a bridge does not wait for a\n\
         receiver. PPN: packets per turn of the receiving end. Grant operations are real work of\n\
         the same kind as Xen's, but not Xen's cost. state: where the two processors were (near:\n\
         one cache; far: two), since figures differ several times by it. More: grantway bench --help",
        packets::text(&rows)
    ))
}
