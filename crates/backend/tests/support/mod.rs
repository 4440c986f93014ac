//! A whole machine in one test process: an embedded host, the real backend on
//! a thread, an honest vif that carries numbered frames all the while, and a
//! hostile guest made by hand.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod control;
pub mod ctrl;
pub mod faulty;
pub mod flood;
pub mod honest;
pub mod hostile;
pub mod inbox;
pub mod log;
pub mod panics;
pub mod port;
pub mod rings;
pub mod sums;
pub mod tcp;
pub mod toolstack;
pub mod world;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Guards against hanging, and decides nothing else: far longer than anything takes, on
/// any machine.
pub const PROMPT: Duration = Duration::from_secs(120);

/// A look every millisecond until it gives something.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PROMPT, "not within {PROMPT:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tells the threads of a scope to end, also where what they are beside fails: a
/// scope waits for them.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
