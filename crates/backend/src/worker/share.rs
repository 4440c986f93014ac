//! How the queues of one worker share its time.
//!
//! A turn is bounded in packets, but a packet may be 64 bytes in one slot or
//! 64 KiB in eighteen, and may go to one guest or to all of a bridge. So it is
//! time that is shared: each queue has an account of what its turns took, and
//! waits while another that moves packets too had less. One that only looks, or
//! is only woken, makes nobody wait.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How far a queue may be ahead of another before it waits: a few turns, so that
/// queues of a kind go round together and the worker looks at its descriptors
/// once for all of them.
const AHEAD_MAX: Duration = Duration::from_micros(100);

/// What a queue had of its worker.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Account {
    /// The time that its turns took.
    had: Duration,
    /// Whether its last turn moved something.
    moves: bool,
}

impl Account {
    /// A turn took so long.
    pub fn charge(&mut self, time: Duration) {
        self.had += time;
    }
}

/// The accounts of a worker's queues, seen together.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// What had least of those that move packets, where any does.
    least: Option<Duration>,
    /// The most that this ever was.
    floor: Duration,
}

impl Shares {
    /// A round begins; these are the accounts of the queues that are active.
    pub fn begin(&mut self, accounts: impl Iterator<Item = Account>) {
        self.least = accounts.filter(|account| account.moves).map(|account| account.had).min();
        self.floor = self.floor.max(self.least.unwrap_or_default());
    }

    /// Whether a queue is to wait for another. One at least is not.
    pub fn is_ahead(&self, account: Account) -> bool {
        self.least.is_some_and(|least| account.had > least + AHEAD_MAX)
    }

    /// A turn moved something, or did not.
    pub fn took_turn(&self, account: &mut Account, moved: bool) {
        if moved && !account.moves {
            // What it did not use while it had nothing to do is lost.
            account.had = account.had.max(self.floor);
        }
        account.moves = moved;
    }
}

/// What the calling thread has used of its processor. What other threads and processes
/// use is no queue's doing.
#[must_use]
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is ever negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn turn(shares: &Shares, account: &mut Account, time: Duration, moved: bool) {
        shares.took_turn(account, moved);
        account.charge(time);
    }

    #[test]
    fn time_is_shared_and_not_turns() {
        let second = Duration::from_secs(1);
        for costs in [&[30, 30][..], &[30, 400], &[1, 5000], &[10, 20, 300, 1000]] {
            let (mut shares, mut now) = (Shares::default(), Duration::ZERO);
            let mut accounts = vec![Account::default(); costs.len()];
            while now < second {
                shares.begin(accounts.iter().copied());
                for (account, cost) in accounts.iter_mut().zip(costs) {
                    if !shares.is_ahead(*account) {
                        turn(&shares, account, US * *cost, true);
                        now += US * *cost;
                    }
                }
            }
            let (fair, slack) = (second / costs.len() as u32, Duration::from_millis(11));
            for Account { had, .. } in accounts {
                assert!(had + slack > fair && had < fair + slack, "{had:?} of {costs:?}");
            }
        }
    }

    #[test]
    fn one_that_moves_nothing_makes_nobody_wait() {
        let mut shares = Shares::default();
        let (mut busy, mut idle) = (Account::default(), Account::default());
        for _ in 0..1000 {
            shares.begin([busy, idle].into_iter());
            assert!(!shares.is_ahead(busy));
            turn(&shares, &mut busy, US * 30, true);
            turn(&shares, &mut idle, US, false);
        }
    }

    #[test]
    fn each_round_serves_somebody() {
        let mut shares = Shares::default();
        let mut accounts = [Account::default(); 3];
        // Who is there, whom there is something to do for, and how much.
        let mut number = 12_345_u32;
        let mut draw = |most: u32| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (number >> 16) % most
        };
        for _ in 0..100_000 {
            let active: Vec<usize> = (0..3).filter(|_| draw(3) > 0).collect();
            shares.begin(active.iter().map(|&n| accounts[n]));
            let mut served = active.is_empty();
            for n in active {
                if !shares.is_ahead(accounts[n]) {
                    turn(&shares, &mut accounts[n], US * draw(500), draw(2) > 0);
                    served = true;
                }
            }
            assert!(served);
        }
    }

    #[test]
    fn who_slept_has_saved_nothing_and_lost_nothing() {
        let mut shares = Shares::default();
        let (mut busy, mut sleeper) = (Account::default(), Account::default());
        turn(&shares, &mut busy, US * 5000, true);
        shares.begin([busy].into_iter());
        assert!(!shares.is_ahead(busy), "alone it never waits");
        turn(&shares, &mut sleeper, US * 10, true);
        shares.begin([busy, sleeper].into_iter());
        assert!(!shares.is_ahead(busy) && !shares.is_ahead(sleeper));
        // A nap does not forgive what was had too much.
        turn(&shares, &mut busy, US * 500, true);
        turn(&shares, &mut busy, US, false);
        shares.begin([busy, sleeper].into_iter());
        assert!(shares.is_ahead(busy));
    }

    #[test]
    fn only_what_is_used_is_counted() {
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(20));
        assert!(processor_time() - before < Duration::from_millis(10));
        while processor_time() - before < US {}
    }
}
