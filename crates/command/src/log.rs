//! The log: to standard error, one line per event.

use crate::error::CommandError;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts the log. `RUST_LOG` wins over the number of `-v`.
///
/// # Errors
///
/// `RUST_LOG` is no filter.
pub fn start(verbose: u8) -> Result<(), CommandError> {
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
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(verbose > 1)
        .init();
    Ok(())
}
