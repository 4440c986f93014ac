//! Medians, and intervals that tell how reliable they are.

use serde::{Deserialize, Serialize};

/// Number of resampled medians from which an interval is taken.
const RESAMPLES: usize = 2000;
/// Seed of the resampling, which is the same in every run.
const SEED: u64 = 0x6772_616e_7477_6179;

/// The median of paired ratios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// Lower end of the interval: 2.5 % of the medians of resampled pairs are below. Equal to the
    /// median if there is only one pair.
    pub low: f64,
    /// Upper end of the interval: 2.5 % of these medians are above.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl Ratio {
    /// Returns the median of these ratios with its interval; `None` if there are no ratios.
    pub fn of(ratios: &[f64]) -> Option<Self> {
        let middle = median(ratios)?;
        let (low, high) = interval(ratios, SEED).unwrap_or((middle, middle));
        Some(Self { median: middle, low, high, pairs: ratios.len() })
    }

    /// Returns the ratio as tables print it.
    pub fn text(&self) -> String {
        match self.pairs {
            1 => format!("{:.2}", self.median),
            _ => format!("{:.2} [{:.2}, {:.2}]", self.median, self.low, self.high),
        }
    }
}

/// Returns the middle value, or the mean of the two middle values; `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    match sorted.len() % 2 {
        0 => sorted.get(sorted.len() / 2 - 1).map(|lower| (lower + upper) / 2.0),
        _ => Some(upper),
    }
}

/// Returns the interval that contains 95 % of the medians of values drawn from these, with
/// repetition; `None` for fewer than two values.
fn interval(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let mut numbers = Numbers(seed);
    let mut drawn = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            drawn.fill_with(|| values[numbers.below(values.len())]);
            median(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |part: f64| medians.get((part * medians.len() as f64) as usize).copied();
    Some((at(0.025)?, at(0.975)?))
}

/// Random numbers, equal for equal seeds (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number from 0 to below `end`. `end` is far below 2^32, so the bias does not matter
    /// here.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn an_interval_repeats_holds_the_median_and_narrows() {
        let mut numbers = Numbers(1);
        let mut noisy = |n: usize| -> Vec<f64> {
            (0..n).map(|_| 2.0 + numbers.below(1000) as f64 / 1000.0).collect()
        };
        let (few, many) = (noisy(8), noisy(200));
        let [few, many] = [few, many].map(|values| {
            let ratio = Ratio::of(&values).unwrap();
            assert_eq!(Ratio::of(&values), Some(ratio), "by the same seed");
            assert!(ratio.low <= ratio.median && ratio.median <= ratio.high, "{ratio:?}");
            ratio.high - ratio.low
        });
        assert!(many < few && few < 1.0, "{many} {few}");
        let same = Ratio::of(&[1.5; 4]).unwrap();
        assert_eq!((same.low, same.median, same.high), (1.5, 1.5, 1.5));
    }

    #[test]
    fn two_seeds_agree_about_where_it_lies() {
        let values: Vec<f64> = (0..40).map(|n| 1.0 + f64::from(n % 7) / 10.0).collect();
        let (a, b) = (interval(&values, 1).unwrap(), interval(&values, 2).unwrap());
        assert!((a.0 - b.0).abs() <= 0.1 && (a.1 - b.1).abs() <= 0.1, "{a:?} {b:?}");
        assert!(a.0 > 1.0 && a.1 < 1.6, "{a:?}");
    }

    #[test]
    fn one_pair_has_no_interval() {
        assert_eq!(Ratio::of(&[]), None);
        let one = Ratio::of(&[2.0]).unwrap();
        assert_eq!((one.text(), one.low), ("2.00".into(), 2.0));
        assert_eq!(Ratio::of(&[2.0, 2.0]).unwrap().text(), "2.00 [2.00, 2.00]");
    }
}
