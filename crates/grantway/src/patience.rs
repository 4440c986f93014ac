//! How long this process waits for others of the same machine.

use std::sync::OnceLock;
use std::time::Duration;

/// Seconds that each such wait may take at least: for machines that are as slow as an
/// emulator's, or that much else runs on.
const SETTING: &str = "GRANTWAY_PATIENCE";

/// This long, or as long as the environment's `GRANTWAY_PATIENCE` says if that is longer.
pub fn at_least(limit: Duration) -> Duration {
    static SET: OnceLock<Duration> = OnceLock::new();
    let set = SET.get_or_init(|| {
        let seconds = std::env::var(SETTING).ok().and_then(|text| text.parse().ok());
        seconds.map_or(Duration::ZERO, Duration::from_secs)
    });
    limit.max(*set)
}
