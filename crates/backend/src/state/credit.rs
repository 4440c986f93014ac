//! Limit of what a guest may send: a number of bytes per period.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that can always be saved up. The number exceeds the largest packet, which could not leave
/// otherwise. Linux's netback has the same number.
const BURST_MIN: u64 = 131_072;

/// A limit of what a guest may send: a number of bytes per period, of all queues together. Bytes are
/// those of frames with their Ethernet headers, and a large frame counts once. The bytes of one
/// period can be saved up, or 128 KiB if that is more, so that the largest packet can leave. A
/// toolstack writes a limit as `BYTES,MICROSECONDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    bytes: u64,
    period: Duration,
}

impl Rate {
    /// Makes a limit. Returns `None` for a period of no time, which limits nothing.
    #[must_use]
    pub fn new(bytes: NonZeroU64, period: Duration) -> Option<Self> {
        (!period.is_zero()).then_some(Self { bytes: bytes.get(), period })
    }

    /// Reads the text of a toolstack. Returns `Ok(None)` if it sets no limit.
    ///
    /// # Errors
    ///
    /// A text that names the expected form.
    pub fn parse(text: &str) -> Result<Option<Self>, &'static str> {
        const EXPECTED: &str = "BYTES,MICROSECONDS as whole numbers, such as 1250000,50000";
        let (bytes, micros) = text.trim().split_once(',').ok_or(EXPECTED)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| EXPECTED);
        let (bytes, micros) = (number(bytes)?, number(micros)?);
        match (bytes, micros) {
            // Linux reads these as no limit.
            (_, 0) | (u64::MAX, _) => Ok(None),
            (0, _) => Err("more than 0 bytes, or nobody could send anything"),
            (bytes, micros) => Ok(Some(Self { bytes, period: Duration::from_micros(micros) })),
        }
    }

    /// Returns the time of `periods` periods, limited to some centuries.
    fn time(&self, periods: u128) -> Duration {
        let nanos = self.period.as_nanos().saturating_mul(periods);
        Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
    }
}

/// The rest of a limit, shared by the queues of a vif.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    /// True if there is a limit. Most vifs have none, and need no lock for it.
    limited: AtomicBool,
    account: Mutex<Option<Account>>,
}

#[derive(Debug)]
struct Account {
    rate: Rate,
    left: u64,
    /// Time at which the current period began.
    since: Instant,
}

impl Credit {
    /// Sets a limit from `now` on, with the bytes of a full period, or no limit. A limit that does
    /// not change keeps its rest. Returns true if the limit changes. Then the vif's queues must get
    /// a turn, since they may wait for a time of the previous limit.
    #[must_use]
    pub fn set(&self, rate: Option<Rate>, now: Instant) -> bool {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = account.as_ref().map(|account| account.rate) != rate;
        if changes {
            *account = rate.map(|rate| Account { rate, left: rate.bytes, since: now });
        }
        self.limited.store(rate.is_some(), Relaxed);
        changes
    }

    /// Returns true if there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.limited.load(Relaxed)
    }

    /// Gives back bytes that were taken for packets that do not leave yet.
    pub fn give_back(&self, bytes: u64) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = account.as_mut() {
            let most = account.rate.bytes.max(BURST_MIN);
            account.left = account.left.saturating_add(bytes).min(most);
        }
    }

    /// Takes `bytes` from the rest.
    ///
    /// # Errors
    ///
    /// The rest is too small. The value is the time from which it is large enough, if no other
    /// queue takes of it.
    pub fn take(&self, bytes: u64, now: Instant) -> Result<(), Instant> {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.as_mut().map_or(Ok(()), |account| account.take(bytes, now))
    }
}

impl Account {
    fn take(&mut self, bytes: u64, now: Instant) -> Result<(), Instant> {
        let most = self.rate.bytes.max(BURST_MIN);
        let passed = now.saturating_duration_since(self.since);
        let periods = passed.as_nanos() / self.rate.period.as_nanos();
        if periods > 0 {
            let earned = (u128::from(self.rate.bytes) * periods).min(u128::from(most)) as u64;
            self.left = self.left.saturating_add(earned).min(most);
            // Periods follow each other without a gap, however late we look, so the mean is right.
            self.since += self.rate.time(periods);
        }
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let missing = u128::from(bytes - self.left);
                Err(self.since + self.rate.time(missing.div_ceil(self.rate.bytes.into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        Rate::parse(text).unwrap().unwrap()
    }

    fn credit(text: &str, now: Instant) -> Credit {
        let credit = Credit::default();
        assert!(credit.set(Some(rate(text)), now));
        assert!(credit.is_limited());
        credit
    }

    #[test]
    fn the_node_is_read_as_linux_reads_it() {
        let period = Duration::from_millis(50);
        assert_eq!(rate(" 1250000,50000\n"), Rate { bytes: 1_250_000, period });
        assert_eq!(Rate::parse("18446744073709551615,50000"), Ok(None));
        assert_eq!(Rate::parse("1000,0"), Ok(None));
        for bad in ["", "5", "a,b", "1,2,3", "-1,5", "0,1000"] {
            assert!(Rate::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// Sends frames of `size` bytes as fast as they go, looking every `step`. Returns the bytes
    /// sent.
    fn sent(text: &str, size: u64, step: Duration, over: Duration) -> u64 {
        let begin = Instant::now();
        let credit = credit(text, begin);
        let (mut now, mut sent) = (begin, 0);
        while now < begin + over {
            while credit.take(size, now).is_ok() {
                sent += size;
            }
            now += step;
        }
        sent
    }

    #[test]
    fn the_mean_rate_is_right_however_late_it_is_read() {
        for (text, mbits) in [("62500,50000", 10), ("625000,50000", 100), ("6250000,50000", 1000)] {
            for step in [1, 7, 49, 51] {
                let seconds = 10;
                let step = Duration::from_millis(step);
                let bits = 8 * sent(text, 1514, step, Duration::from_secs(seconds));
                let wanted = mbits * 1_000_000 * seconds;
                let off = bits.abs_diff(wanted) as f64 / wanted as f64;
                assert!(off < 0.02, "{text} every {step:?}: {bits} bits, wanted {wanted}");
            }
        }
    }

    #[test]
    fn a_packet_larger_than_a_period_is_sent_in_the_end() {
        let begin = Instant::now();
        let credit = credit("1000,1000", begin);
        let more = begin + Duration::from_millis(65);
        assert_eq!(credit.take(65_535, begin), Err(more));
        assert_eq!(credit.take(65_535, more - Duration::from_nanos(1)), Err(more));
        assert_eq!(credit.take(65_535, more), Ok(()));
    }

    #[test]
    fn a_packet_is_looked_at_once_however_short_the_period() {
        for (text, expected) in [("1,1", 1), ("10,10", 1), ("1000,1000", 1), ("50000,50000", 0)] {
            let begin = Instant::now();
            let credit = credit(text, begin);
            let (mut now, mut looks) = (begin, 0);
            while let Err(later) = credit.take(40_001, now) {
                (now, looks) = (later, looks + 1);
            }
            assert_eq!(looks, expected, "{text}");
        }
        // A time that no clock reaches is no fault.
        let begin = Instant::now();
        let credit = credit("1,18446744073709551615", begin);
        assert!(credit.take(40_001, begin).unwrap_err() > begin);
    }

    #[test]
    fn an_idle_guest_saves_up_one_burst_and_no_more() {
        let begin = Instant::now();
        let credit = credit("1000,1000", begin);
        let later = begin + Duration::from_secs(3600);
        assert_eq!(credit.take(131_072, later), Ok(()));
        assert!(credit.take(1, later).is_err());
        let large = self::credit("1000000,1000", begin);
        assert_eq!(large.take(1_000_000, later), Ok(()));
        assert!(large.take(1, later).is_err());
    }

    #[test]
    fn bytes_that_were_given_back_may_be_taken_again() {
        let begin = Instant::now();
        let credit = credit("1000,1000", begin);
        assert_eq!(credit.take(1000, begin), Ok(()));
        credit.give_back(400);
        assert!(credit.take(401, begin).is_err());
        assert_eq!(credit.take(400, begin), Ok(()));
        // No more is given back than may be saved up.
        credit.give_back(u64::MAX / 2);
        assert!(credit.take(BURST_MIN + 1, begin).is_err());
        // Without a limit there is nothing to give back to.
        assert!(credit.set(None, begin));
        credit.give_back(1);
    }

    #[test]
    fn a_limit_comes_and_goes() {
        let begin = Instant::now();
        let credit = credit("1000,1000", begin);
        assert_eq!(credit.take(1000, begin), Ok(()));
        assert!(!credit.set(Some(rate("1000,1000")), begin), "the same limit");
        assert!(credit.take(1, begin).is_err());
        assert!(credit.set(Some(rate("1001,1000")), begin), "another limit");
        assert_eq!(credit.take(1001, begin), Ok(()));
        assert!(credit.set(None, begin) && !credit.set(None, begin));
        assert!(!credit.is_limited());
        assert_eq!(credit.take(u64::MAX, begin), Ok(()));
    }
}
