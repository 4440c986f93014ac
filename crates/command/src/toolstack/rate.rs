//! The rate of a vif, as xl writes it and as the store holds it.
//!
//! xl writes `RATE/s` or `RATE/s@INTERVAL`: `10Mb/s`, `1MB/s@20ms`. `b` are bits and `B` bytes. K,
//! M and G are powers of 1000. The interval is 50 ms if it is left out. The store holds the credit
//! of one interval in bytes, a comma, and the interval in microseconds.

use std::fmt;
use std::str::FromStr;

/// The interval of a rate that names none, in microseconds.
pub const DEFAULT_INTERVAL: u32 = 50_000;

/// Guest transmit credit, renewed once per interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Bytes per interval; at least one.
    pub bytes: u64,
    /// The interval in microseconds; at least one.
    pub interval: u32,
}

/// The reason why a text is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// A text of another form.
    #[error(
        "rate={found:?}: expected NUMBER, an optional K, M or G, b (bits) or B (bytes), and /s, \
         such as 10Mb/s"
    )]
    Form {
        /// The text.
        found: String,
    },
    /// A part behind the `@` of another form.
    #[error("rate={found:?}: expected NUMBER and us, ms or s after the @, such as 10Mb/s@20ms")]
    Interval {
        /// The text.
        found: String,
    },
    /// A number that is out of bounds, as for xl.
    #[error("rate={found:?}: found {what} of {number}, expected 1 to {limit}")]
    Range {
        /// The text.
        found: String,
        /// Words for the number, as `a number` or `an interval in microseconds`.
        what: &'static str,
        /// The number.
        number: String,
        /// Its upper bound.
        limit: u64,
    },
    /// A rate of less than a byte per interval, which would never let a packet pass.
    #[error(
        "rate={found:?}: less than one byte in {interval} us, expected at least one; raise the rate or the interval"
    )]
    Nothing {
        /// The text.
        found: String,
        /// The interval in microseconds.
        interval: u32,
    },
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (rate, interval) = match text.split_once('@') {
            Some((rate, interval)) => (rate, Some(interval)),
            None => (text, None),
        };
        let per_second = per_second(text, rate)?;
        let interval = interval.map_or(Ok(DEFAULT_INTERVAL), |i| microseconds(text, i))?;
        // Both factors are below 2^64, so the product fits.
        let bytes = u128::from(per_second) * u128::from(interval) / 1_000_000;
        let limit = u64::MAX;
        let bytes = u64::try_from(bytes).map_err(|_| RateError::Range {
            found: text.to_owned(),
            what: "a credit",
            number: bytes.to_string(),
            limit,
        })?;
        if bytes == 0 {
            return Err(RateError::Nothing { found: text.to_owned(), interval });
        }
        Ok(Self { bytes, interval })
    }
}

/// Returns the bytes per second.
fn per_second(text: &str, rate: &str) -> Result<u64, RateError> {
    let form = || RateError::Form { found: text.to_owned() };
    let (digits, unit) = split(rate);
    let (scale, unit) = match unit.as_bytes().first() {
        Some(b'K') => (1_000, &unit[1..]),
        Some(b'M') => (1_000_000, &unit[1..]),
        Some(b'G') => (1_000_000_000, &unit[1..]),
        _ => (1, unit),
    };
    let bits = match unit {
        "b/s" => true,
        "B/s" => false,
        _ => return Err(form()),
    };
    if digits.is_empty() {
        return Err(form());
    }
    // xl takes a number of 32 bits, so the product below has at most 62 bits.
    let scaled = number(text, "a number", digits)? * scale;
    Ok(if bits { scaled / 8 } else { scaled })
}

/// Returns an interval in microseconds. A number without a unit is in seconds, as xl reads it. (Its
/// manual says microseconds.)
fn microseconds(text: &str, interval: &str) -> Result<u32, RateError> {
    let form = || RateError::Interval { found: text.to_owned() };
    let (digits, unit) = split(interval);
    let scale = match unit {
        "" | "s" => 1_000_000,
        "m" | "ms" => 1_000,
        "u" | "us" => 1,
        _ => return Err(form()),
    };
    if digits.is_empty() {
        return Err(form());
    }
    const WHAT: &str = "an interval in microseconds";
    let scaled = number(text, WHAT, digits)? * scale;
    u32::try_from(scaled).map_err(|_| RateError::Range {
        found: text.to_owned(),
        what: WHAT,
        number: scaled.to_string(),
        limit: u32::MAX.into(),
    })
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn number(text: &str, what: &'static str, digits: &str) -> Result<u64, RateError> {
    match digits.parse::<u32>() {
        Ok(number) if number > 0 => Ok(number.into()),
        _ => Err(RateError::Range {
            found: text.to_owned(),
            what,
            number: digits.to_owned(),
            limit: u32::MAX.into(),
        }),
    }
}

/// Writes the rate as the store holds it.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.bytes, self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(text: &str) -> String {
        text.parse::<Rate>().unwrap().to_string()
    }

    #[test]
    fn as_xl_computes_it() {
        // The examples of xl-network-configuration(5), and xl's own tests.
        assert_eq!(stored("1MB/s@20ms"), "20000,20000");
        assert_eq!(stored("10Mb/s"), "62500,50000");
        assert_eq!(stored("250KB/s"), "12500,50000");
        assert_eq!(stored("1GB/s@1us"), "1000,1");
        assert_eq!(stored("3000000KB/s"), "150000000,50000");
        assert_eq!(stored("1000b/s@1s"), "125,1000000");
        assert_eq!(stored("1000B/s@2"), "2000,2000000");
    }

    #[test]
    fn what_is_no_rate() {
        let form = |t: &str| matches!(t.parse::<Rate>(), Err(RateError::Form { .. }));
        for text in ["", "10", "10Mb", "Mb/s", "10mb/s", "10kB/s", "-1B/s", "10MB/s ", "0x5B/s"] {
            assert!(form(text), "{text}");
        }
        let interval = |t: &str| matches!(t.parse::<Rate>(), Err(RateError::Interval { .. }));
        for text in ["1MB/s@", "1MB/s@ms", "1MB/s@1ns", "1MB/s@1ms@1ms"] {
            assert!(interval(text), "{text}");
        }
        let range = |t: &str| matches!(t.parse::<Rate>(), Err(RateError::Range { .. }));
        for text in ["0B/s", "4294967296B/s", "1MB/s@0ms", "1MB/s@4295s", "99999999999999999999B/s"]
        {
            assert!(range(text), "{text}");
        }
        assert!(matches!("7b/s".parse::<Rate>(), Err(RateError::Nothing { interval: 50_000, .. })));
        assert!(matches!("4294967295GB/s@4294s".parse::<Rate>(), Err(RateError::Range { .. })));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9]{0,24}[GMKk]?[Bbé]?/?s?@?[0-9]{0,24}[mun]?s?") {
            let _ = text.parse::<Rate>();
        }

        #[test]
        fn credit_over_interval_is_the_rate(mega in 1u32..100_000, ms in 1u32..4_000) {
            let rate: Rate = format!("{mega}MB/s@{ms}ms").parse().unwrap();
            prop_assert_eq!(rate.bytes * 1_000, u64::from(mega) * u64::from(ms) * 1_000_000);
            prop_assert_eq!(rate.interval, ms * 1_000);
        }
    }
}
