//! How often a worker whose queues are busy looks at what else woke, and at how long
//! one of them has been idle; and how often it lets others have the processor.

use std::time::{Duration, Instant};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// Rounds that it goes on for, at most, before it asks what time it is.
const ROUNDS: u32 = 8;
/// Packets to or from a port that count as one more round.
const PACKETS: u32 = 4;

/// When to look next, whatever frames flow. The clock is not asked each round: that
/// costs as much as some frames, and one packet alone waits for it, too.
pub(super) struct Pace {
    look_at: Instant,
    /// When the clock was asked last, how many rounds there were since (those that moved
    /// much count for several), and after how many it is asked again: more, for as long as
    /// rounds are short.
    asked_at: Instant,
    rounds: u32,
    ask_after: u32,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Self { look_at: now, asked_at: now, rounds: 0, ask_after: 1 }
    }

    /// A turn moved this many packets, to or from a port.
    #[inline]
    pub fn moved(&mut self, packets: usize) {
        self.rounds = self.rounds.saturating_add(packets as u32 / PACKETS);
    }

    /// Something was done that may have taken long: the clock is asked behind this round.
    #[inline]
    pub fn worked(&mut self) {
        self.rounds = self.rounds.max(ROUNDS);
    }

    /// A round took this long. The clock is asked behind it if that is longer than may pass
    /// between two looks.
    #[inline]
    pub fn took(&mut self, round: Duration) {
        if round >= LOOK_EVERY {
            self.worked();
        }
    }

    /// Whether it is time to look, behind another round.
    #[inline]
    pub fn is_time(&mut self, clock: impl FnOnce() -> Instant) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        self.rounds >= self.ask_after && self.ask(clock())
    }

    fn ask(&mut self, now: Instant) -> bool {
        let short = now.saturating_duration_since(self.asked_at) < LOOK_EVERY / 4;
        self.ask_after = if short { (self.ask_after * 2).min(ROUNDS) } else { 1 };
        (self.asked_at, self.rounds) = (now, 0);
        let is_time = now >= self.look_at;
        if is_time {
            self.look_at = now + LOOK_EVERY;
        }
        is_time
    }
}

/// How long a queue has found nothing to do, as far as the clock was asked: every eighth
/// turn, so that a packet that comes meanwhile does not wait for that.
#[derive(Debug, Default)]
pub(super) struct Idle {
    since: Option<Instant>,
    turns: u32,
}

impl Idle {
    /// Whether it is to look again, behind another turn that found nothing.
    pub fn spins(&mut self, budget: Duration, clock: impl FnOnce() -> Instant) -> bool {
        if budget.is_zero() {
            return false;
        }
        self.turns += 1;
        if self.since.is_some() && !self.turns.is_multiple_of(ROUNDS) {
            return true;
        }
        let now = clock();
        now.duration_since(*self.since.get_or_insert(now)) < budget
    }
}

/// How many rounds in a row moved no frame. What is looked for may be what somebody is to
/// do who waits for this processor, so every eighth of them gives it away.
#[derive(Debug, Default)]
pub(super) struct Still(u32);

impl Still {
    /// Whether to give it away, behind another round.
    #[inline]
    pub fn gives_way(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(ROUNDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest time between two looks, and how often the clock was asked, over so
    /// many rounds of as many nanoseconds.
    fn looks(rounds: u32, each: u64) -> (Duration, u32) {
        let start = Instant::now();
        let mut pace = Pace::new(start);
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
        let given = (1..=64).filter(|_| still.gives_way()).count();
        assert_eq!(given, 8);
        // One that moved something begins anew.
        still = Still::default();
        assert!((1..8).all(|_| !still.gives_way()) && still.gives_way());
    }

    #[test]
    fn short_rounds_ask_seldom_and_none_makes_a_look_late() {
        let (longest, asked) = looks(10_000, 200);
        assert!(longest <= LOOK_EVERY + Duration::from_nanos(200 * 8), "{longest:?}");
        assert!(asked <= 10_000 / 8 + 8, "{asked}");
        // What is long by itself is asked about each time.
        let (longest, asked) = looks(100, 100_000);
        assert!(longest <= Duration::from_micros(200) && asked >= 99, "{longest:?}, {asked}");
        // So is what moves much, however short the rounds before were.
        let mut pace = Pace::new(Instant::now());
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
        // A few microseconds: in between.
        let (longest, asked) = looks(1000, 4000);
        assert!(longest <= LOOK_EVERY + Duration::from_nanos(4000 * 2), "{longest:?}");
        assert!((500..1000).contains(&asked), "{asked}");
    }
}
