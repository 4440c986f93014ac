//! Limit on the lines of one vif in the log: a guest causes as many states and failures as it
//! likes.

use std::fmt;
use std::time::{Duration, Instant};

/// Lines that a vif may write at once.
const BURST: u32 = 20;
/// Time in which a vif earns one more line.
const EVERY: Duration = Duration::from_secs(5);

/// The voice of one vif: the lines that it may still write.
#[derive(Debug)]
pub(crate) struct Voice {
    left: u32,
    /// Time up to which lines were earned.
    since: Instant,
    /// Lines that were held back since the last one that was written.
    held: u64,
}

/// Number of lines that were held back since the last one. It is shown only if it is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held(u64);

impl Voice {
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, since: now, held: 0 }
    }

    /// Returns a value if a line may be written now: the number of lines that were held back before
    /// it.
    pub fn speak(&mut self, now: Instant) -> Option<Held> {
        let passed = now.saturating_duration_since(self.since);
        // At most `BURST`, which fits.
        let more = (passed.as_secs() / EVERY.as_secs()).min(u64::from(BURST)) as u32;
        if more > 0 {
            self.left = (self.left + more).min(BURST);
            self.since = now;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(Held(std::mem::take(&mut self.held)))
            }
            None => {
                self.held += 1;
                None
            }
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            held => write!(f, " ({held} lines of this vif held back)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_lines_is_logged_then_one_at_a_time_and_all_are_counted() {
        let start = Instant::now();
        let mut voice = Voice::new(start);
        let said = (0..100).filter(|_| voice.speak(start).is_some()).count();
        assert_eq!(said, BURST as usize);
        assert_eq!(voice.speak(start + EVERY), Some(Held(80)));
        assert_eq!(voice.speak(start + EVERY), None);
        let later = start + EVERY * 1000;
        assert_eq!(voice.speak(later), Some(Held(1)));
        let said = (0..100).filter(|_| voice.speak(later).is_some()).count();
        assert_eq!(said, BURST as usize - 1);
    }
}
