//! The length of a worker's rounds. All other work of the worker waits for the end of a round:
//! readable descriptors, commands of the control thread, and timers. So a round ends when it took
//! long enough, and the queues that had no turn get theirs in the next round.

use std::time::Duration;

/// Longest time that a round may take, whatever guests send.
pub const ROUND_MAX: Duration = Duration::from_millis(5);

/// Time after which no queue begins its turn in a round. A turn has a bound of its own
/// ([`work`](crate::turn::work)), and so have the uplink's burst and the look at what woke.
const ENOUGH: Duration = Duration::from_millis(1);

/// A worker's rounds. Times are numbers of nanoseconds, which are cheap to compare in every round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Processor time that the worker had used when this round began.
    since: u64,
    longest: u64,
    /// The first of the active queues that had no turn in the last round, if that ended early.
    next: usize,
}

impl Rounds {
    /// Begins a round after work that belongs to no round.
    #[inline]
    pub fn begin(&mut self, used: Duration) {
        self.since = nanos(used);
    }

    /// Ends a round and begins the next one.
    #[inline]
    pub fn end(&mut self, used: Duration) {
        let used = nanos(used);
        self.longest = self.longest.max(used.saturating_sub(self.since));
        self.since = used;
    }

    /// Returns the time of the longest round so far.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// Returns the index of the active queue that has the first turn, of `active` queues.
    #[inline]
    pub fn first(&mut self, active: usize) -> usize {
        match std::mem::take(&mut self.next) {
            next if next < active => next,
            _ => 0,
        }
    }

    /// Returns true if a round whose turns took this long is to end.
    #[inline]
    pub fn is_enough(&self, took: Duration) -> bool {
        took >= ENOUGH
    }

    /// Notes that a round ends early, so that the next one begins with this queue.
    pub fn goes_on_with(&mut self, next: usize) {
        self.next = next;
    }
}

/// Returns a time in nanoseconds, which fit for centuries.
fn nanos(time: Duration) -> u64 {
    time.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_longest_round_is_kept_and_what_is_between_rounds_is_not_counted() {
        let mut rounds = Rounds::default();
        rounds.begin(100 * MS);
        for used in [101, 105, 106] {
            rounds.end(used * MS);
        }
        rounds.begin(200 * MS);
        rounds.end(202 * MS);
        assert_eq!(rounds.longest(), 4 * MS);
    }

    #[test]
    fn a_round_that_ended_early_goes_on_where_it_ended() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.first(3), 0);
        assert!(!rounds.is_enough(ENOUGH - Duration::from_nanos(1)));
        assert!(rounds.is_enough(ENOUGH));
        rounds.goes_on_with(2);
        assert_eq!((rounds.first(3), rounds.first(3)), (2, 0));
        // Other queues may have gone meanwhile.
        rounds.goes_on_with(2);
        assert_eq!((rounds.first(2), rounds.first(2)), (0, 0));
        rounds.goes_on_with(2);
        assert_eq!(rounds.first(0), 0);
    }
}
