//! Waiting with a limit, which is only a guard against hanging.
#![allow(dead_code, reason = "each test file uses a part")]

use std::time::{Duration, Instant};

/// Longest time that a test waits for something that must happen. No verdict depends on it: it is
/// far longer than any machine takes, and ends a test that would hang.
pub const GUARD: Duration = Duration::from_secs(120);

/// Looks until there is a result, and returns it.
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
