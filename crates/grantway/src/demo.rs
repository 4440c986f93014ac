//! `grantway demo`: the main job on the embedded host, from nothing to a table.

use crate::bench::contest::Point;
use crate::bench::document::Document;
use crate::bench::packets;
use crate::bench::rig::Direction;
use crate::bench::slices::Timing;
use crate::cli::{Api, DemoArgs, WaitModeArg};
use crate::error::CommandError;
use crate::output;
use grantway_backend::policy::PolicyKind;

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
    let points: Vec<Point> = Direction::ONE_WAY.into_iter().flat_map(of).collect();
    if !args.json {
        eprintln!(
            "A host, a backend and a guest, each a process of its own, joined by one vif, by every\n\
             policy in turn; then two guests, each with its vif, on the backend's own bridge.\n\
             Packets are numbered by the sender and checked by the receiver.\n"
        );
    }
    let timing = Timing::short(args.seconds, None)?;
    let rows = packets::measure(&points, &PolicyKind::ALL, timing, args.json)?;
    if args.json {
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
