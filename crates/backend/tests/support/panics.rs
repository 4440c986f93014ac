//! Panics of threads that are not the test's own. None may happen, whatever a peer does.

use std::sync::{Mutex, Once, PoisonError};
use std::thread;

/// Threads of the parts under test, by their names.
const WATCHED: [&str; 5] = ["worker", "control", "grantway-host", "honest", "frontend"];

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Writes down every panic from now on.
pub fn watch() {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let current = thread::current();
            let name = current.name().unwrap_or("");
            if WATCHED.contains(&name) {
                let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
                seen.push(format!("{name}: {info}"));
            }
            usual(info);
        }));
    });
}

/// Fails if any part under test ever panicked.
#[track_caller]
pub fn none() {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(seen.is_empty(), "panics: {seen:#?}");
}

/// Ends a thread of a part under test as a kill does, between two of its
/// instructions. No hook hears of it.
pub fn die() -> ! {
    std::panic::resume_unwind(Box::new("killed by the test"))
}
