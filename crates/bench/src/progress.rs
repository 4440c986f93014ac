//! A line that tells how far a bench is: redrawn on a terminal, one a point
//! elsewhere, none beside JSON.

use std::io::{IsTerminal, Write};

/// How far a bench is.
pub struct Progress {
    points: usize,
    quiet: bool,
    terminal: bool,
}

impl Progress {
    /// Nothing is done yet.
    pub fn new(points: usize, quiet: bool) -> Self {
        Self { points, quiet, terminal: std::io::stderr().is_terminal() }
    }

    /// So much of a point is done, from 0 to 1.
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

    /// All is done.
    pub fn done(&self) {
        if !self.quiet {
            eprint!("{}", if self.terminal { "\r\x1b[K" } else { "\n" });
        }
    }
}
