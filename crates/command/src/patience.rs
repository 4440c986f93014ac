//! The time that this process waits for other processes of the machine. Some machines are as slow
//! as an emulator, so the environment may set a longer time, in seconds.

use std::sync::OnceLock;
use std::time::Duration;

/// Returns the time to wait for an answer: `limit`, or `GRANTWAY_PATIENCE` if that is longer.
pub fn answer(limit: Duration) -> Duration {
    static SET: OnceLock<Duration> = OnceLock::new();
    limit.max(*SET.get_or_init(|| seconds("GRANTWAY_PATIENCE")))
}

/// Returns the time to wait for the other end to close in order when this end is told to end:
/// `limit`, or `GRANTWAY_FAREWELL` if that is longer.
pub fn farewell(limit: Duration) -> Duration {
    static SET: OnceLock<Duration> = OnceLock::new();
    limit.max(*SET.get_or_init(|| seconds("GRANTWAY_FAREWELL")))
}

fn seconds(setting: &str) -> Duration {
    let seconds = std::env::var(setting).ok().and_then(|text| text.parse().ok());
    seconds.map_or(Duration::ZERO, Duration::from_secs)
}
