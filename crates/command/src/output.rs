//! Standard output.

use crate::error::CommandError;
use rustix::termios::{isatty, tcgetwinsize};
use std::io::{ErrorKind, Write};

/// Writes a text and a newline, and flushes. A reader that has gone (`| head`) is no failure, since
/// it has seen enough.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn line(text: impl AsRef<str>) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    let text = text.as_ref();
    let text = text.strip_suffix('\n').unwrap_or(text);
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::Failed(format!("standard output: {e}; it must be writable")))
        }
        _ => Ok(()),
    }
}

/// Writes a text in place of the contents of a terminal, as many lines as fit. Writes all of it if
/// standard output is no terminal.
///
/// # Errors
///
/// The errors of [`line()`].
pub fn screen(text: &str) -> Result<(), CommandError> {
    let out = std::io::stdout();
    if !isatty(&out) {
        return line(format!("{text}\n"));
    }
    // A terminal that does not know its size says 0.
    let rows = tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_row));
    let rows = if rows < 2 { 24 } else { rows };
    let shown: Vec<_> = text.lines().take(rows - 1).collect();
    line(format!("\x1b[H\x1b[2J{}", shown.join("\n")))
}
