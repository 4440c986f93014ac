//! Files of inputs: one a line, in hexadecimal, so that a change shows as a
//! line. Empty lines and those that begin with `#` are none. `scripts/fuzz` writes them.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// Longest input in bytes; `scripts/fuzz` has the same number.
pub const MAX_INPUT: usize = 1024;

/// Most inputs that are kept for a target; `scripts/fuzz` has the same number.
pub const MAX_KEPT: usize = 600;

/// Returns the file of the inputs that are kept for `target` in this repository.
#[must_use]
pub fn kept(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.hex"))
}

/// Reads a file of inputs.
///
/// # Errors
/// It cannot be read, or a line is none: the error names it.
pub fn read(file: &Path) -> io::Result<Vec<Vec<u8>>> {
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    let inputs = lines.filter(|(_, line)| !line.starts_with('#')).map(|(number, line)| {
        let what = format!(
            "{}:{}: expected an even number of hexadecimal digits, at most {MAX_INPUT} bytes",
            file.display(),
            number + 1
        );
        decode(line).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, what))
    });
    inputs.collect()
}

/// Returns an input as a line.
#[must_use]
pub fn encode(input: &[u8]) -> String {
    input.iter().fold(String::new(), |mut line, byte| {
        let _ = write!(line, "{byte:02x}");
        line
    })
}

/// Returns the input of a line; `None` if the line is none.
#[must_use]
pub fn decode(line: &str) -> Option<Vec<u8>> {
    let digits = line.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !digits || !line.len().is_multiple_of(2) || line.len() > 2 * MAX_INPUT {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(line.get(at..at + 2)?, 16).ok();
    (0..line.len()).step_by(2).map(pair).collect()
}
