//! A line that shows the progress of a bench. It is redrawn on a terminal, printed once per point
//! elsewhere, and missing if the bench prints JSON.

use std::io::{IsTerminal, Write};

/// Progress of a bench.
pub struct Progress {
    points: usize,
    quiet: bool,
    terminal: bool,
}

impl Progress {
    /// Makes a progress of `points` points; prints nothing if `quiet`.
    pub fn new(points: usize, quiet: bool) -> Self {
        Self { points, quiet, terminal: std::io::stderr().is_terminal() }
    }

    /// Shows that a part of point `number` is done, from 0 to 1.
    pub fn show(&self, number: usize, what: &str, part: f64) {
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

    /// Ends the line: all points are done.
    pub fn done(&self) {
        if !self.quiet {
            eprint!("{}", if self.terminal { "\r\x1b[K" } else { "\n" });
        }
    }
}
