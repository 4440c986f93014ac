//! Time, which comes in as an argument.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

/// A source of time. Captures take it as the time since 1970 UTC; others
/// only look at differences, and where one process writes a time and another
/// reads it, both have the same clock ([`monotonic`]).
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The wall clock: time since 1970 UTC, 0 if the machine's clock is earlier.
#[must_use]
pub fn wall() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.unwrap_or_default()
    })
}

/// A clock that never steps back: time since the machine started, the same in
/// each of its processes.
#[must_use]
pub fn monotonic() -> Clock {
    Arc::new(uptime)
}

/// What [`monotonic`] tells.
#[must_use]
pub fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative, and there are less than 1e9 nanoseconds.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
