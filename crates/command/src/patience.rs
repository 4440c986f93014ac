//! How long this process waits for others of the same machine, which may be as slow as an
//! emulator's: the environment may say that it is to wait longer, in seconds.

use std::sync::OnceLock;
use std::time::Duration;

/// For an answer: this long, or `GRANTWAY_PATIENCE` if that is longer.
pub fn answer(limit: Duration) -> Duration {
    static SET: OnceLock<Duration> = OnceLock::new();
    limit.max(*SET.get_or_init(|| seconds("GRANTWAY_PATIENCE")))
}

/// For the other end to close in order where this one is told to end: this long, or
/// `GRANTWAY_FAREWELL` if that is longer.
pub fn farewell(limit: Duration) -> Duration {
    static SET: OnceLock<Duration> = OnceLock::new();
    limit.max(*SET.get_or_init(|| seconds("GRANTWAY_FAREWELL")))
}

fn seconds(setting: &str) -> Duration {
    let seconds = std::env::var(setting).ok().and_then(|text| text.parse().ok());
    seconds.map_or(Duration::ZERO, Duration::from_secs)
}
