//! Quantities as people write them: numbers, rates and times, in one grammar for all commands, ports
//! and files.
//!
//! A number is decimal digits, at most one point, and `k` (or `K`), `M`, `G` or `T` for powers of
//! 1000. A unit may follow. A number without a unit has the unit of its option.
//!
//! | Quantity | Units | Examples |
//! |---|---|---|
//! | packets per second | `pps`, `/s` | `20k`, `1.5Mpps` |
//! | bits or bytes per second | `bit/s`, `b/s`, `B/s` | `10Mbit/s`, `1.25MB/s` |
//! | time | `ns`, `us`, `ms`, `s`, `min`, `h` | `0.5`, `100ms`, `2min` |

use core::time::Duration;

/// Reads a whole number: `10`, `10k`, `1.5M`. Returns `None` if the text is not such a number, if
/// its value has a fraction, or if it does not fit.
///
/// ```
/// use grantway_ports::quantity::number;
///
/// assert_eq!(number("1.5k"), Some(1500));
/// assert_eq!(number("0.5"), None);
/// ```
#[must_use]
pub fn number(text: &str) -> Option<u64> {
    match scaled(text, 1)? {
        (number, "") => Some(number),
        _ => None,
    }
}

/// Reads packets per second: `20k`, `20kpps`, `20k/s`.
#[must_use]
pub fn packets_per_second(text: &str) -> Option<u64> {
    match scaled(text, 1)? {
        (number, "" | "pps" | "/s") => Some(number),
        _ => None,
    }
}

/// Reads bits per second: `10M`, `10Mbit/s`, `10Mb/s`, `1.25MB/s`.
#[must_use]
pub fn bits_per_second(text: &str) -> Option<u64> {
    match scaled(text, 1)? {
        (bits, "" | "bit/s" | "b/s") => Some(bits),
        (_, "B/s") => scaled(text, 8).map(|(bits, _)| bits),
        _ => None,
    }
}

/// Reads bytes per second: `1250000`, `1.25MB/s`, `10Mbit/s`, `10Mb/s`. Rounds down to whole bytes.
#[must_use]
pub fn bytes_per_second(text: &str) -> Option<u64> {
    match scaled(text, 1)? {
        (bytes, "" | "B/s") => Some(bytes),
        (bits, "bit/s" | "b/s") => Some(bits / 8),
        _ => None,
    }
}

/// Unit of a time without a written unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

/// Reads a time: `0.5`, `100ms`, `2min`. A part of a nanosecond is left out.
///
/// ```
/// use core::time::Duration;
/// use grantway_ports::quantity::{TimeUnit, duration};
///
/// assert_eq!(duration("1.5s", TimeUnit::Milliseconds), Some(Duration::from_millis(1500)));
/// assert_eq!(duration("100", TimeUnit::Milliseconds), Some(Duration::from_millis(100)));
/// ```
#[must_use]
pub fn duration(text: &str, unit: TimeUnit) -> Option<Duration> {
    let (digits, rest) = split(text);
    let nanoseconds = match (rest, unit) {
        ("ns", _) => 1,
        ("us", _) => 1_000,
        ("ms", _) | ("", TimeUnit::Milliseconds) => 1_000_000,
        ("s", _) | ("", TimeUnit::Seconds) => 1_000_000_000,
        ("min", _) => 60 * 1_000_000_000,
        ("h", _) => 3600 * 1_000_000_000,
        _ => return None,
    };
    decimal(digits, nanoseconds).map(|(nanoseconds, _)| Duration::from_nanos(nanoseconds))
}

/// Returns the number at the beginning of a text times `factor`, and the text behind its prefix.
/// `None` if there is no number, if the number without `factor` has a part below one, or if it does
/// not fit.
fn scaled(text: &str, factor: u64) -> Option<(u64, &str)> {
    let (digits, rest) = split(text);
    let prefix = match rest.as_bytes().first() {
        Some(b'k' | b'K') => 1_000,
        Some(b'M') => 1_000_000,
        Some(b'G') => 1_000_000_000,
        Some(b'T') => 1_000_000_000_000,
        _ => 1,
    };
    let rest = if prefix > 1 { &rest[1..] } else { rest };
    let (number, is_whole) = decimal(digits, prefix)?;
    is_whole.then_some((number.checked_mul(factor)?, rest))
}

/// Returns digits and points at the beginning of a text, and the rest.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// Returns a decimal number times `scale`, and whether nothing below one was left out.
fn decimal(text: &str, scale: u64) -> Option<(u64, bool)> {
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let mut sum = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    // The value of a unit of the next digit, and what is left below one of it.
    let (mut place, mut is_whole) = (scale, true);
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        is_whole &= digit == 0 || place.is_multiple_of(10);
        place /= 10;
        sum = sum.checked_add(digit * place)?;
    }
    Some((sum, is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quantity_has_its_units_and_a_bare_number_has_the_options_unit() {
        for (text, packets) in [("20k", 20_000), ("20K/s", 20_000), ("1.5Mpps", 1_500_000)] {
            assert_eq!(packets_per_second(text), Some(packets), "{text}");
        }
        for (text, bits) in [
            ("10M", 10_000_000),
            ("10Mbit/s", 10_000_000),
            ("10Mb/s", 10_000_000),
            ("1.25MB/s", 10_000_000),
            ("0.001kb/s", 1),
        ] {
            assert_eq!(bits_per_second(text), Some(bits), "{text}");
        }
        for (text, bytes) in [
            ("12500000", 12_500_000),
            ("100Mbit/s", 12_500_000),
            ("12.5MB/s", 12_500_000),
            ("7b/s", 0),
        ] {
            assert_eq!(bytes_per_second(text), Some(bytes), "{text}");
        }
        for (text, milliseconds) in [
            ("2", 2000),
            ("2s", 2000),
            ("0.5", 500),
            ("100ms", 100),
            ("1.5min", 90_000),
            ("1h", 3_600_000),
        ] {
            let found = duration(text, TimeUnit::Seconds);
            assert_eq!(found, Some(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(duration("2", TimeUnit::Milliseconds), Some(Duration::from_millis(2)));
        assert_eq!(duration("1.5ns", TimeUnit::Seconds), Some(Duration::from_nanos(1)));
    }

    #[test]
    fn other_texts_and_too_large_numbers_are_refused() {
        let odd = [
            "", "k", ".", "1.", ".5", "1.2.3", "-1", "+1", "1 k", "1kk", "1m", "\u{b2}", "1k\u{e9}",
        ];
        for text in odd {
            assert_eq!(number(text), None, "{text}");
            assert_eq!(packets_per_second(text), None, "{text}");
            assert_eq!(bits_per_second(text), None, "{text}");
            assert_eq!(bytes_per_second(text), None, "{text}");
        }
        for text in ["", "s", "1k", "1ks", "1.s", "-1s", "1S", "1 s", "nan", "inf", "1e3", "1m"] {
            assert_eq!(duration(text, TimeUnit::Seconds), None, "{text}");
        }
        assert_eq!((number("0.5"), number("1.0001k"), number("1.000k")), (None, None, Some(1000)));
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        for text in ["18446744073709551616", "18446744073710T", "3000000TB/s"] {
            assert_eq!(number(text).or(bits_per_second(text)), None, "{text}");
        }
        assert_eq!(duration("6000000h", TimeUnit::Seconds), None);
    }
}
