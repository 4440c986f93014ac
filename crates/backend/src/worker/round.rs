//! How long the rounds of a worker take. What else it has to do waits for the end of a round:
//! what woke, what the control thread tells it, times. So a round ends when it took long
//! enough, and the queues that had no turn have theirs in the next one.

use std::time::Duration;

/// What a round may take, whatever guests send.
pub const ROUND_MAX: Duration = Duration::from_millis(5);

/// After so long no queue begins its turn in a round. A turn has an end of its own
/// ([`work`](crate::turn::work)), and so have the uplink's and a look at what woke.
const ENOUGH: Duration = Duration::from_millis(1);

/// A worker's rounds. Times are in nanoseconds: they are compared in every round, and these are
/// numbers.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// What the worker had used when this one began.
    since: u64,
    longest: u64,
    /// The first of the active queues that had no turn in the last one, if it ended early.
    next: usize,
}

impl Rounds {
    /// One begins, behind something that belongs to none.
    #[inline]
    pub fn begin(&mut self, used: Duration) {
        self.since = nanos(used);
    }

    /// One ends, and the next begins.
    #[inline]
    pub fn end(&mut self, used: Duration) {
        let used = nanos(used);
        self.longest = self.longest.max(used.saturating_sub(self.since));
        self.since = used;
    }

    /// The longest so far.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// Which of so many active queues has the first turn.
    #[inline]
    pub fn first(&mut self, active: usize) -> usize {
        match std::mem::take(&mut self.next) {
            next if next < active => next,
            _ => 0,
        }
    }

    /// Whether a round is to end whose turns took this long.
    #[inline]
    pub fn is_enough(&self, took: Duration) -> bool {
        took >= ENOUGH
    }

    /// A round ends early: the next one begins with this queue.
    pub fn goes_on_with(&mut self, next: usize) {
        self.next = next;
    }
}

/// Enough for centuries.
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
        // Others may have gone meanwhile.
        rounds.goes_on_with(2);
        assert_eq!((rounds.first(2), rounds.first(2)), (0, 0));
        rounds.goes_on_with(2);
        assert_eq!(rounds.first(0), 0);
    }
}
