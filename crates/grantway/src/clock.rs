//! What tells a backend the time; a drill has its workers panic by it.

use grantway_backend::Clock;
use std::time::Instant;

/// What tells a backend the time.
#[cfg(not(debug_assertions))]
pub fn clock() -> Clock {
    Instant::now
}

/// What tells a backend the time. In builds with debug assertions SIGUSR1 has a worker panic
/// at its next look at it, so that a drill needs no bug.
#[cfg(debug_assertions)]
pub fn clock() -> Clock {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, LazyLock};
    static PLANTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
    if let Err(e) = signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&PLANTED))
    {
        tracing::warn!("SIGUSR1 plants no panic: {e}");
    }
    || {
        let is_worker = || std::thread::current().name() == Some("worker");
        assert!(!(PLANTED.load(Ordering::Relaxed) && is_worker()), "planted by SIGUSR1");
        Instant::now()
    }
}
