//! `grantway demo`: the main job on the embedded host, from nothing to a table.

use crate::bench::packets::{Measured, Point, measure};
use crate::bench::rig::Direction;
use crate::bench::table;
use crate::cli::DemoArgs;
use crate::error::CommandError;
use crate::output;
use std::io::{IsTerminal, Write};

const SIZES: [usize; 3] = [64, 1496, 65_535];

/// Measures every point and prints one table.
///
/// # Errors
///
/// A part of the rig failed.
pub fn run(args: &DemoArgs) -> Result<(), CommandError> {
    let mut rows: Vec<Measured> = Vec::new();
    let points: Vec<Point> = [Direction::Tx, Direction::Rx, Direction::GuestToGuest]
        .into_iter()
        .flat_map(|direction| SIZES.map(|size| (direction, size)))
        .map(|(direction, size)| Point {
            policy: "copy".into(),
            direction,
            size,
            queues: 1,
            burst: 64,
            seconds: args.seconds,
        })
        .collect();
    if !args.json {
        eprintln!(
            "A host, a backend and a guest, each a process of its own, joined by one vif;\n\
             then two guests, each with its vif, on the backend's own bridge.\n\
             Packets are numbered by the sender and checked by the receiver.\n"
        );
    }
    let progress = Progress::new(points.len(), args.json);
    for (number, point) in points.iter().enumerate() {
        let what = format!("{}, {} bytes", point.direction.words(), point.size);
        rows.push(measure(point, &mut |part| progress.show(number, &what, part))?);
    }
    progress.done();
    if args.json {
        let text = serde_json::to_string(&rows).map_err(CommandError::failed)?;
        return output::line(text);
    }
    output::line(format!(
        "{}\n\
         lost: by sequence numbers; a sender waits for space, but a bridge does not wait for a\n\
         receiver. PPI, SPI: packets and slots per interrupt of the receiving end ('-': it never\n\
         slept); PPN, SPN: per turn that found some. Guest to guest counts the copies of both.\n\
         Grant operations are real work of the same kind as Xen's, but not Xen's cost: on the\n\
         embedded host a grant copy is a process_vm_readv or _writev. state: where the two\n\
         processors were (near: one cache; far: two), since figures differ several times by it.",
        table(&rows)
    ))
}

/// A line that tells how far it is: redrawn on a terminal, one a point
/// elsewhere.
struct Progress {
    points: usize,
    quiet: bool,
    terminal: bool,
}

impl Progress {
    fn new(points: usize, quiet: bool) -> Self {
        Self { points, quiet, terminal: std::io::stderr().is_terminal() }
    }

    fn show(&self, number: usize, what: &str, part: f64) {
        if self.quiet {
            return;
        }
        let at = number + 1;
        if !self.terminal {
            if part == 0.0 {
                eprintln!("[{at}/{}] {what}", self.points);
            }
            return;
        }
        let whole = (number as f64 + part) / self.points as f64;
        let filled = (whole * 30.0) as usize;
        let bar: String = (0..30).map(|i| if i < filled { '#' } else { '.' }).collect();
        eprint!("\r\x1b[K[{bar}] {at}/{} {what}", self.points);
        let _ = std::io::stderr().flush();
    }

    fn done(&self) {
        if !self.quiet {
            eprint!("{}", if self.terminal { "\r\x1b[K" } else { "\n" });
        }
    }
}
