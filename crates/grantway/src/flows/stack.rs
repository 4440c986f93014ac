//! Reads the log of a stack in user space.

use grantway_command::error::CommandError;
use grantway_flows::stack::{StackLog, StackSample};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Most bytes of a line.
const LINE: u64 = 4096;

/// Reads a log.
///
/// # Errors
///
/// The file cannot be read, or is not a log.
pub(super) fn read(path: &Path) -> Result<StackLog, CommandError> {
    let failed = |what: String| CommandError::Failed(format!("{}{what}", path.display()));
    let file = File::open(path).map_err(|error| failed(format!(": {error}")))?;
    let mut reader = BufReader::new(file);
    let (mut log, mut line) = (StackLog::default(), Vec::new());
    for number in 1_u64.. {
        line.clear();
        let read = reader.by_ref().take(LINE).read_until(b'\n', &mut line);
        if read.map_err(|error| failed(format!(": {error}")))? == 0 {
            break;
        }
        // A stack that was killed may have left half a line at the end.
        if line.last() != Some(&b'\n') && (line.len() as u64) < LINE {
            break;
        }
        let sample: StackSample = serde_json::from_slice(&line).map_err(|error| {
            failed(format!(":{number}: {error}; expected a line of `grantway iperf --stack-log`"))
        })?;
        log.take(&sample);
    }
    Ok(log)
}
