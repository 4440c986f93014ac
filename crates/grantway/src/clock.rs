//! The clock of a backend. A test can make a worker panic by it.

use grantway_backend::Clock;
use std::time::Instant;

/// Returns the clock of a backend.
#[cfg(not(debug_assertions))]
pub fn clock() -> Clock {
    Instant::now
}

/// Returns the clock of a backend. In builds with debug assertions, a worker panics when it next
/// reads the clock after SIGUSR1. So a test of a panic needs no bug.
#[cfg(debug_assertions)]
pub fn clock() -> Clock {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, LazyLock};
    static PLANTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
    if let Err(e) = signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&PLANTED))
    {
        tracing::warn!("cannot panic on SIGUSR1: {e}");
    }
    || {
        let is_worker = || std::thread::current().name() == Some("worker");
        assert!(!(PLANTED.load(Ordering::Relaxed) && is_worker()), "panic requested by SIGUSR1");
        Instant::now()
    }
}
