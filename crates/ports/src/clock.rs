//! Time, which comes in as an argument.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A source of time. Captures take it as the time since 1970 UTC; the
/// generator only looks at differences.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The wall clock: time since 1970 UTC, 0 if the machine's clock is earlier.
#[must_use]
pub fn wall() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.unwrap_or_default()
    })
}

/// A clock that never steps back: time since this call.
#[must_use]
pub fn monotonic() -> Clock {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}
