//! The real frontend against a backend made by hand, both on one thread and
//! one embedded host: each step is the test's own.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod server;
pub mod silent;
pub mod world;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Longest time that a test waits for something that must happen. No verdict depends on it: it is
/// far longer than any machine takes, and ends a test that would hang.
pub const GUARD: Duration = Duration::from_secs(120);

/// Looks every 300 us until there is a result, and returns it.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < GUARD, "not within {GUARD:?}: {what}");
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Returns a frame of an unknown type, in which each byte depends on its place and `seed`.
pub fn frame(len: usize, seed: u8) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|n| (n as u8).wrapping_add(seed)).collect();
    if len >= 14 {
        frame[12..14].copy_from_slice(&0x88b6_u16.to_be_bytes());
    }
    frame
}

/// Tells the threads of a scope to end, also if the test beside them fails: a scope waits for them.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
