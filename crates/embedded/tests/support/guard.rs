//! Waiting with a limit, which is only a guard against hanging.
#![allow(dead_code, reason = "each test file uses a part")]

use std::time::{Duration, Instant};

/// How long a test waits for what must happen. No verdict depends on it: it is far
/// longer than any machine takes, and ends a test that would hang.
pub const GUARD: Duration = Duration::from_secs(120);

/// Looks until there is something.
///
/// # Panics
/// Nothing was there within [`GUARD`]; `what` names it.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < GUARD, "not within {GUARD:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
