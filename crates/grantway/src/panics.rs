//! A panic ends the process at once, whichever thread it is of. A backend that lost a
//! worker is of no use to that worker's guests, and keeps its successor from them, which goes
//! on by the journals: they see a pause.

use grantway_backend::Clock;
use std::time::Instant;

/// From now on, after the usual words.
pub fn end_the_process() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        std::process::abort();
    }));
}

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
