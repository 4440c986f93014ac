//! Standard output.

use crate::error::CommandError;
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
