//! The cost of a wake-up: the time from the signal until a worker that slept runs. A worker that
//! looks for longer than that before it sleeps pays more than for the sleep.

use std::time::Duration;

/// Part of the estimate that one measurement has, as a divisor. The part is small, since a
/// disturbed measurement shows only the disturbance.
const PART: u32 = 8;
/// Bounds of the estimate: at least the first one divided by `LEAST`, and at most `MOST` times as
/// much. So a worker never looks for long, whatever it measured.
const LEAST: u32 = 8;
const MOST: u32 = 4;

/// A bounded moving estimate.
#[derive(Debug, Clone, Copy)]
pub(super) struct WakeCost {
    first: Duration,
    mean: Duration,
}

impl WakeCost {
    /// Begins with an estimate.
    pub fn new(first: Duration) -> Self {
        Self { first, mean: first }
    }

    /// Takes in that a wake-up took this long.
    pub fn learn(&mut self, took: Duration) {
        let took = took.clamp(self.first / LEAST, self.first * MOST);
        self.mean = self.mean - self.mean / PART + took / PART;
    }

    /// Returns the estimated cost of the next wake-up.
    pub fn mean(&self) -> Duration {
        self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn after(count: u32, took: Duration) -> Duration {
        let mut cost = WakeCost::new(US * 48);
        (0..count).for_each(|_| cost.learn(took));
        cost.mean()
    }

    #[test]
    fn repeated_measurements_move_the_estimate() {
        for took in [US * 6, US * 20, US * 48, US * 100, US * 192] {
            let mean = after(100, took);
            assert!(mean.abs_diff(took) < US, "{mean:?} of {took:?}");
        }
    }

    #[test]
    fn the_estimate_is_bounded_and_one_disturbed_measurement_counts_little() {
        assert!(after(1000, Duration::ZERO) >= US * 6 - Duration::from_nanos(100));
        assert!(after(1000, Duration::from_secs(9)) <= US * 192);
        assert!(after(1, Duration::from_secs(9)) <= US * (48 + 192 / 8));
    }
}
