//! The log: to standard error, one line per event.
//!
//! If standard error is the journal of systemd, a line has the priority of its event in place of a
//! time, as `sd-daemon(3)` says: the journal keeps times of its own.

use crate::error::CommandError;
use clap::ValueEnum;
use std::fmt;
use std::io::IsTerminal;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer, format};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Format of the log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text per event. Under systemd a priority replaces the time.
    #[default]
    Text,
    /// One JSON object per event: timestamp, level, message and fields.
    Json,
}

/// Starts the log. `RUST_LOG` wins over the number of `-v`.
///
/// # Errors
///
/// `RUST_LOG` is no filter.
pub fn start(verbose: u8, form: LogFormat) -> Result<(), CommandError> {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let wanted = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let wanted = wanted.as_deref().unwrap_or(level);
    let filter = EnvFilter::try_new(wanted).map_err(|e| {
        CommandError::Usage(format!(
            "RUST_LOG={wanted:?}: {e}; expected a level such as debug, or target=level"
        ))
    })?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let target = verbose > 1;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(target);
    match form {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text if is_journal() => {
            log.event_format(Journal(format().without_time().with_target(target))).init();
        }
        LogFormat::Text => log.init(),
    }
    Ok(())
}

/// Returns what a line of an error begins with, so that the journal knows its priority.
#[must_use]
pub fn error_prefix() -> String {
    if is_journal() { priority(Level::ERROR).to_owned() } else { String::new() }
}

/// Returns true if standard error is the journal: `JOURNAL_STREAM` names its device and inode.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let found = rustix::fs::fstat(std::io::stderr());
    found.is_ok_and(|found| names(&named, found.st_dev, found.st_ino))
}

fn names(stream: &str, device: u64, inode: u64) -> bool {
    let numbers = stream.split_once(':').map(|(device, inode)| (device.parse(), inode.parse()));
    numbers == Some((Ok(device), Ok(inode)))
}

/// Returns the prefix of a line that has the priority of a level.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// Lines for the journal.
struct Journal(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_named_by_device_and_inode() {
        assert!(names("9:4711", 9, 4711));
        for other in ["", "9", "9:", "9:4712", "8:4711", "9:4711:1", "x:4711", "-9:4711"] {
            assert!(!names(other, 9, 4711), "{other}");
        }
    }
}
