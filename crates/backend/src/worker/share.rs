//! The sharing of a worker's time among its queues.
//!
//! A turn is bounded in packets. But a packet may have 64 bytes in one slot or 64 KiB in eighteen,
//! and may go to one guest or to all guests of a bridge. So time is shared. Each queue has an
//! account of the time of its turns, and waits while another queue that moves packets had less. A
//! queue that only looks, or is only woken, delays no other. A round has costs beside its turns: a
//! look at wake-ups, and the clock. These costs are charged to the queues that had a turn, since
//! short turns make many rounds.

use std::time::Duration;

/// Time that a queue may be ahead of another before it waits. It is a few turns, so that queues of
/// a kind go round together and the worker looks at its descriptors once for all of them.
const AHEAD_MAX: Duration = Duration::from_micros(100);

/// Most time that a queue is charged for what came between two rounds: a look at what woke, and the
/// clock.
const BETWEEN_MAX: Duration = Duration::from_micros(10);

/// The time that a queue had of its worker.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Account {
    /// The time that its turns took.
    had: Duration,
    /// True if the queue's last turn moved something.
    moves: bool,
    /// True if the queue had a turn in the last round, and was active since.
    had_turn: bool,
}

impl Account {
    /// Adds the time that a turn took.
    pub fn charge(&mut self, time: Duration) {
        self.had += time;
    }
}

/// The accounts of a worker's queues, seen together.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Least time that any active queue that moves packets had. None if no queue moves any.
    least: Option<Duration>,
    /// Highest value that `least` had before this round.
    floor: Duration,
    /// Turns of this round, or of the last one until the next begins.
    turns: u32,
    /// Time up to which all time is on an account, or on none for good. None after a round of one
    /// queue alone.
    until: Option<Duration>,
    /// Time that each queue owes for what came between the last round's turns and this one's.
    each: Duration,
}

impl Shares {
    /// Begins a round at this time. Each active queue's account has to be seen next.
    pub fn begin(&mut self, now: Duration) {
        self.floor = self.floor.max(self.least.take().unwrap_or_default());
        let between = self.until.take().map_or(Duration::ZERO, |until| now.saturating_sub(until));
        // Commands may have taken long, and no queue caused that.
        self.each = (between / self.turns.max(1)).min(BETWEEN_MAX);
        self.turns = 0;
    }

    /// Takes the account of an active queue into the round.
    pub fn see(&mut self, account: &mut Account) {
        if std::mem::take(&mut account.had_turn) {
            account.had += self.each;
        }
        if account.moves {
            self.least = Some(self.least.map_or(account.had, |least| least.min(account.had)));
        }
    }

    /// Notes that all turns of the round are over, and charged up to this time.
    pub fn end(&mut self, until: Duration) {
        self.until = Some(until);
    }

    /// Notes that a queue alone had a turn, which is on no account.
    #[inline]
    pub fn pause(&mut self) {
        (self.until, self.turns) = (None, 0);
    }

    /// Returns true if the time from now on is to be charged to queues that had turns.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.until.is_some()
    }

    /// Leaves out time that is on no queue's account.
    pub fn leave_out(&mut self, time: Duration) {
        self.until = self.until.map(|until| until + time);
    }

    /// Notes that a queue is not active any more. It owes nothing for what comes from now on.
    #[inline]
    pub fn rests(&mut self, account: &mut Account) {
        self.turns = self.turns.saturating_sub(std::mem::take(&mut account.had_turn).into());
    }

    /// Returns true if a queue is to wait for another. At least one queue does not wait.
    pub fn is_ahead(&self, account: Account) -> bool {
        self.least.is_some_and(|least| account.had > least + AHEAD_MAX)
    }

    /// Notes that a queue had a turn. `moved` is true if the turn moved something.
    pub fn took_turn(&mut self, account: &mut Account, moved: bool) {
        if moved && !account.moves {
            // The time that the queue did not use while it had nothing to do is lost.
            account.had = account.had.max(self.floor).max(self.least.unwrap_or_default());
        }
        account.moves = moved;
        account.had_turn = true;
        self.turns = self.turns.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Begins a round. Nothing comes beside its turns.
    fn begin<'a>(shares: &mut Shares, accounts: impl IntoIterator<Item = &'a mut Account>) {
        shares.begin(Duration::ZERO);
        accounts.into_iter().for_each(|account| shares.see(account));
    }

    fn turn(shares: &mut Shares, account: &mut Account, time: Duration, moved: bool) {
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
                begin(&mut shares, &mut accounts);
                for (account, cost) in accounts.iter_mut().zip(costs) {
                    if !shares.is_ahead(*account) {
                        turn(&mut shares, account, US * *cost, true);
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
    fn time_between_rounds_is_charged_to_the_queues_of_the_round() {
        let fair = Duration::from_millis(50);
        let (mut shares, mut now) = (Shares::default(), Duration::ZERO);
        // One queue has long turns, the other short ones, and a round costs something beside.
        let (costs, mut accounts) = ([200, 10], [Account::default(); 2]);
        let (mut had, mut turns) = ([Duration::ZERO; 2], [0; 2]);
        while now < 2 * fair {
            shares.begin(now);
            accounts.iter_mut().for_each(|account| shares.see(account));
            let served = [0, 1].map(|n| !shares.is_ahead(accounts[n]));
            for n in (0..2).filter(|&n| served[n]) {
                turn(&mut shares, &mut accounts[n], US * costs[n], true);
                now += US * costs[n];
                had[n] += US * costs[n];
                turns[n] += 1;
            }
            shares.end(now);
            now += 5 * US;
        }
        let [long, short] = had;
        assert!(long + Duration::from_millis(2) > fair, "{long:?}, and {short:?}");
        // All of the time is on one account or the other.
        let all: Duration = accounts.iter().map(|account| account.had).sum();
        assert!(now - all < 10 * US, "{all:?} of {now:?} after {turns:?} turns");
    }

    #[test]
    fn no_queue_is_charged_for_time_that_no_queue_used() {
        // Returns the charges of two queues for a time between two rounds in which each has a turn
        // of 1 us, if `then` happens in that time.
        let charged = |between: Duration, then: fn(&mut Shares, &mut [Account; 2])| {
            let (mut shares, mut accounts) = (Shares::default(), [Account::default(); 2]);
            shares.begin(Duration::ZERO);
            accounts.iter_mut().for_each(|account| shares.see(account));
            accounts.iter_mut().for_each(|account| turn(&mut shares, account, US, true));
            shares.end(2 * US);
            then(&mut shares, &mut accounts);
            shares.begin(2 * US + between);
            accounts.iter_mut().for_each(|account| shares.see(account));
            accounts.map(|account| account.had - US)
        };
        assert_eq!(charged(8 * US, |_, _| ()), [4 * US; 2]);
        // Commands may take long.
        assert_eq!(charged(Duration::from_secs(1), |_, _| ()), [BETWEEN_MAX; 2]);
        // A queue alone, the uplink, a time of rest.
        assert_eq!(charged(8 * US, |shares, _| shares.pause()), [Duration::ZERO; 2]);
        assert_eq!(charged(8 * US, |shares, _| shares.leave_out(2 * US)), [3 * US; 2]);
        let rested = charged(8 * US, |shares, accounts| shares.rests(&mut accounts[1]));
        assert_eq!(rested, [8 * US, Duration::ZERO]);
    }

    #[test]
    fn a_queue_without_packets_delays_no_other() {
        let mut shares = Shares::default();
        let (mut busy, mut idle) = (Account::default(), Account::default());
        for _ in 0..1000 {
            begin(&mut shares, [&mut busy, &mut idle]);
            assert!(!shares.is_ahead(busy));
            turn(&mut shares, &mut busy, US * 30, true);
            turn(&mut shares, &mut idle, US, false);
        }
    }

    #[test]
    fn each_round_serves_a_queue() {
        let mut shares = Shares::default();
        let mut accounts = [Account::default(); 3];
        // Random draws: the active queues, their time, and if they move anything.
        let mut number = 12_345_u32;
        let mut draw = |most: u32| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (number >> 16) % most
        };
        for _ in 0..100_000 {
            let active: Vec<usize> = (0..3).filter(|_| draw(3) > 0).collect();
            shares.begin(Duration::ZERO);
            active.iter().for_each(|&n| shares.see(&mut accounts[n]));
            let mut served = active.is_empty();
            for n in active {
                if !shares.is_ahead(accounts[n]) {
                    turn(&mut shares, &mut accounts[n], US * draw(500), draw(2) > 0);
                    served = true;
                }
            }
            assert!(served);
        }
    }

    #[test]
    fn a_queue_that_slept_has_saved_no_credit_and_lost_none() {
        let mut shares = Shares::default();
        let (mut busy, mut sleeper) = (Account::default(), Account::default());
        turn(&mut shares, &mut busy, US * 5000, true);
        begin(&mut shares, [&mut busy]);
        assert!(!shares.is_ahead(busy), "alone it never waits");
        turn(&mut shares, &mut sleeper, US * 10, true);
        begin(&mut shares, [&mut busy, &mut sleeper]);
        assert!(!shares.is_ahead(busy) && !shares.is_ahead(sleeper));
        // A short rest does not forgive the time that a queue had too much.
        turn(&mut shares, &mut busy, US * 500, true);
        turn(&mut shares, &mut busy, US, false);
        begin(&mut shares, [&mut busy, &mut sleeper]);
        assert!(shares.is_ahead(busy));
    }
}
