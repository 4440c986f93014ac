//! Parts of a loop that moves frames: its pace of looks at other wake-ups, the time for which it
//! spins, and the rounds after which it yields the processor.

use super::mode::WaitMode;
use std::time::{Duration, Instant};

/// Most rounds before the clock is read.
const ROUNDS: u32 = 8;
/// Packets to or from a port that count as one more round.
const PACKETS: u32 = 4;

/// Time of the next look, whatever frames flow. The clock is not read in each round: that costs as
/// much as some frames, and delays a single packet.
#[derive(Debug)]
pub struct Pace {
    every: Duration,
    look_at: Instant,
    /// Time at which the clock was last read.
    asked_at: Instant,
    /// Rounds since then. A round that moved many packets counts more than once.
    rounds: u32,
    /// Rounds after which the clock is read again. The number grows while rounds are short.
    ask_after: u32,
}

impl Pace {
    /// Makes a pace with a look in each period `every`. The first look is due at once.
    #[must_use]
    pub fn new(now: Instant, every: Duration) -> Self {
        Self { every, look_at: now, asked_at: now, rounds: 0, ask_after: 1 }
    }

    /// Counts the packets that a turn moved to or from a port.
    #[inline]
    pub fn moved(&mut self, packets: usize) {
        self.rounds = self.rounds.saturating_add(packets as u32 / PACKETS);
    }

    /// Notes work that may have taken long. The clock is read after this round.
    #[inline]
    pub fn worked(&mut self) {
        self.rounds = self.rounds.max(ROUNDS);
    }

    /// Takes in the time of a round. If it is at least the time between two looks, the clock is
    /// read after the round.
    #[inline]
    pub fn took(&mut self, round: Duration) {
        if round >= self.every {
            self.worked();
        }
    }

    /// Returns true if a look is due, after another round.
    #[inline]
    pub fn is_time(&mut self, clock: impl FnOnce() -> Instant) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        self.rounds >= self.ask_after && self.ask(clock())
    }

    fn ask(&mut self, now: Instant) -> bool {
        let short = now.saturating_duration_since(self.asked_at) < self.every / 4;
        self.ask_after = if short { (self.ask_after * 2).min(ROUNDS) } else { 1 };
        (self.asked_at, self.rounds) = (now, 0);
        let is_time = now >= self.look_at;
        if is_time {
            self.look_at = now + self.every;
        }
        is_time
    }
}

/// Time for which a queue had nothing to do. The clock is read only in each eighth turn, so that it
/// does not delay a packet.
#[derive(Debug, Default)]
pub struct Idle {
    since: Option<Instant>,
    turns: u32,
}

impl Idle {
    /// Returns true if the queue must look again, after another turn without work.
    pub fn spins(&mut self, budget: Duration, clock: impl FnOnce() -> Instant) -> bool {
        if budget.is_zero() {
            return false;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.since.is_some() && !self.turns.is_multiple_of(ROUNDS) {
            return true;
        }
        let now = clock();
        now.duration_since(*self.since.get_or_insert(now)) < budget
    }

    /// Returns true if a thread that waits in this mode must look again, after another turn without
    /// work.
    pub fn looks_again(&mut self, mode: WaitMode, clock: impl FnOnce() -> Instant) -> bool {
        mode.budget().is_none_or(|budget| self.spins(budget, clock))
    }
}

/// Number of rounds in a row without a frame. The thread may wait for the work of another thread,
/// which may wait for this processor. So some of these rounds yield the processor.
#[derive(Debug, Default)]
pub struct Still(u32);

impl Still {
    /// Returns true if the thread must yield the processor, after another such round. It is true
    /// once in `rounds` rounds, a power of two.
    #[inline]
    pub fn gives_way(&mut self, rounds: u32) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK_EVERY: Duration = Duration::from_micros(20);

    /// Returns the longest time between two looks, and the number of times that the clock was
    /// asked, over `rounds` rounds of `each` nanoseconds.
    fn looks(rounds: u32, each: u64) -> (Duration, u32) {
        let start = Instant::now();
        let mut pace = Pace::new(start, LOOK_EVERY);
        let (mut asked, mut last, mut longest) = (0, start, Duration::ZERO);
        for round in 0..rounds {
            let now = start + Duration::from_nanos(each * u64::from(round));
            let is_time = pace.is_time(|| {
                asked += 1;
                now
            });
            if is_time {
                (last, longest) = (now, longest.max(now - last));
            }
        }
        (longest, asked)
    }

    #[test]
    fn every_eighth_still_round_gives_the_processor_away() {
        let mut still = Still::default();
        let given = (1..=64).filter(|_| still.gives_way(8)).count();
        assert_eq!(given, 8);
        // A round that moved something begins anew.
        still = Still::default();
        assert!((1..8).all(|_| !still.gives_way(8)) && still.gives_way(8));
    }

    #[test]
    fn short_rounds_rarely_read_the_clock_and_no_look_is_late() {
        let (longest, asked) = looks(10_000, 200);
        assert!(longest <= LOOK_EVERY + Duration::from_nanos(200 * 8), "{longest:?}");
        assert!(asked <= 10_000 / 8 + 8, "{asked}");
        // A round that is long by itself makes the clock be asked each time.
        let (longest, asked) = looks(100, 100_000);
        assert!(longest <= Duration::from_micros(200) && asked >= 99, "{longest:?}, {asked}");
        // So does a round that moves much, however short the rounds before were.
        let mut pace = Pace::new(Instant::now(), LOOK_EVERY);
        let mut asks = |note: fn(&mut Pace)| {
            note(&mut pace);
            let (now, mut asked) = (pace.asked_at, false);
            pace.is_time(|| {
                asked = true;
                now
            });
            asked
        };
        assert!((0..100).filter(|_| asks(|_| ())).count() < 20);
        while !asks(|_| ()) {}
        let notes: [fn(&mut Pace); 8] = [
            Pace::worked,
            |pace| pace.took(LOOK_EVERY),
            |pace| pace.moved(64),
            |pace| pace.moved(32),
            |pace| pace.moved(8),
            |pace| pace.moved(3),
            |pace| pace.took(LOOK_EVERY - Duration::from_nanos(1)),
            |_| (),
        ];
        let rounds = notes.map(|note| (1..).find(|_| asks(note)));
        assert_eq!(rounds, [1, 1, 1, 1, 3, 8, 8, 8].map(Some));
        // Rounds of a few microseconds lie in between.
        let (longest, asked) = looks(1000, 4000);
        assert!(longest <= LOOK_EVERY + Duration::from_nanos(4000 * 2), "{longest:?}");
        assert!((500..1000).contains(&asked), "{asked}");
    }
}
