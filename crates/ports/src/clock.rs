//! Sources of time, which are passed as arguments.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

/// A source of time. For captures it is the time since 1970 UTC. For other uses only differences
/// count. If one process writes a time and another reads it, both need the same clock
/// ([`monotonic`]).
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Returns the wall clock: the time since 1970 UTC, 0 if the machine's clock is earlier.
#[must_use]
pub fn wall() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.unwrap_or_default()
    })
}

/// Returns a clock that never goes back: the time since the machine started, the same for all
/// processes.
#[must_use]
pub fn monotonic() -> Clock {
    Arc::new(uptime)
}

/// Returns the present time of [`monotonic`].
#[must_use]
pub fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // Both parts are never negative, and the nanoseconds are below 1e9.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
