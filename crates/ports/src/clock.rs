//! Time, which comes in as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time. Captures take it as the time since 1970 UTC; the
/// generator only looks at differences.
pub type Clock = Box<dyn FnMut() -> Duration + Send>;

/// The wall clock: time since 1970 UTC, 0 if the machine's clock is earlier.
#[must_use]
pub fn wall() -> Clock {
    Box::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.unwrap_or_default()
    })
}

/// A clock that never steps back: time since this call.
#[must_use]
pub fn monotonic() -> Clock {
    let start = Instant::now();
    Box::new(move || start.elapsed())
}
