//! Slices of a comparison. The subjects are measured in turns, a slice each, and only slices of one
//! state of the machine are put together.

use super::probe::{self, Machine, State};
use super::stats::median;
use grantway_command::error::CommandError;
use std::time::Duration;

/// Longest slice, in seconds: the machine should not change within it.
const LONGEST: f64 = 0.5;
/// Length of a short slice in seconds, and the number of slices that is enough.
const SHORT: f64 = 0.1;
const ENOUGH: f64 = 20.0;

/// The division of a comparison into slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Number of slices of each subject.
    pub rounds: usize,
    /// Length of a slice.
    pub slice: Duration,
}

impl Timing {
    /// Divides `seconds` of each subject into `pairs` slices, or by default into short ones.
    ///
    /// # Errors
    ///
    /// The slices would be too long.
    pub fn short(seconds: f64, pairs: Option<u32>) -> Result<Self, CommandError> {
        let fitting = (seconds / SHORT).round().clamp(1.0, ENOUGH);
        Self::cut(seconds, pairs, fitting)
    }

    /// Divides the time as [`Timing::short`] does, but by default into as few slices as allowed.
    /// This is for slices that each start processes.
    ///
    /// # Errors
    ///
    /// The slices would be too long.
    pub fn long(seconds: f64, pairs: Option<u32>) -> Result<Self, CommandError> {
        Self::cut(seconds, pairs, 1.0)
    }

    fn cut(seconds: f64, pairs: Option<u32>, fitting: f64) -> Result<Self, CommandError> {
        let least = (seconds / LONGEST).ceil();
        let rounds = pairs.map_or(fitting.max(least), f64::from);
        if rounds < least {
            return Err(CommandError::Usage(format!(
                "--pairs {rounds} with --seconds {seconds}: slices of {:.1} s, expected at most \
                 {LONGEST} s; use --pairs {least} or more",
                seconds / rounds
            )));
        }
        Ok(Self { rounds: rounds as usize, slice: Duration::from_secs_f64(seconds / rounds) })
    }

    /// Returns the length of a probe of the machine between two slices.
    pub fn probe(&self) -> Duration {
        self.slice.clamp(Duration::from_millis(20), Duration::from_millis(100))
    }
}

/// Returns the order of the subjects in a round. It alternates between forwards and backwards, so
/// that a drift of the machine affects all subjects.
pub fn order(round: usize, subjects: usize) -> Vec<usize> {
    let forwards = 0..subjects;
    if round.is_multiple_of(2) { forwards.collect() } else { forwards.rev().collect() }
}

/// Measures the subjects in turns, with a probe of the machine before and after each slice. Calls
/// `progress` with the part that is done, from 0 to 1. Returns all slices.
///
/// # Errors
///
/// A slice could not be measured.
pub fn in_turns<T>(
    subjects: usize,
    timing: Timing,
    progress: &mut dyn FnMut(f64),
    mut slice: impl FnMut(usize) -> Result<T, CommandError>,
) -> Result<Series<T>, CommandError> {
    progress(0.0);
    let mut series = Series::new();
    let whole = (timing.rounds * subjects + 1) as f64;
    let mut before = probe::look(timing.probe());
    let turns = (0..timing.rounds)
        .flat_map(|round| order(round, subjects).into_iter().map(move |subject| (round, subject)));
    for (done, (round, subject)) in turns.enumerate() {
        progress((done + 1) as f64 / whole);
        let found = slice(subject)?;
        let after = probe::look(timing.probe());
        series.add(subject, round, between(before, after), found);
        before = after;
    }
    Ok(series)
}

/// Returns the machine during a slice, from the probes before and after it.
pub fn between(before: Machine, after: Machine) -> Machine {
    let state = if before.state == after.state { before.state } else { State::Changed };
    let mean = |(one, other): (u64, u64)| one.midpoint(other);
    Machine { state, round_trip_ns: before.round_trip_ns.zip(after.round_trip_ns).map(mean) }
}

#[derive(Debug)]
struct Slice<T> {
    subject: usize,
    round: usize,
    machine: Machine,
    found: T,
}

/// All slices of a comparison.
#[derive(Debug)]
pub struct Series<T> {
    slices: Vec<Slice<T>>,
}

impl<T> Series<T> {
    /// Makes a series without slices.
    pub fn new() -> Self {
        Self { slices: Vec::new() }
    }

    /// Returns the series with other results.
    pub fn map<U>(self, other: impl Fn(T) -> U) -> Series<U> {
        let slices = self.slices.into_iter().map(|slice| Slice {
            subject: slice.subject,
            round: slice.round,
            machine: slice.machine,
            found: other(slice.found),
        });
        Series { slices: slices.collect() }
    }

    /// Adds a slice.
    pub fn add(&mut self, subject: usize, round: usize, machine: Machine, found: T) {
        self.slices.push(Slice { subject, round, machine, found });
    }

    /// Returns the state that most slices were in. Returns [`State::Changed`] only if the state
    /// changed in every slice; then the figures are worth little.
    pub fn state(&self) -> State {
        let states = || self.slices.iter().map(|slice| slice.machine.state);
        let count = |state| states().filter(|&other| other == state).count();
        let stable = states().filter(|&state| state != State::Changed);
        stable.max_by_key(|&state| (count(state), state)).unwrap_or(State::Changed)
    }

    /// Iterates over the slices of a subject that are in that state: the round and the result of
    /// each.
    pub fn kept(&self, subject: usize) -> impl Iterator<Item = (usize, &T)> {
        self.kept_slices(subject).map(|slice| (slice.round, &slice.found))
    }

    fn kept_slices(&self, subject: usize) -> impl Iterator<Item = &Slice<T>> {
        let state = self.state();
        self.slices_of(subject).filter(move |slice| slice.machine.state == state)
    }

    fn slices_of(&self, subject: usize) -> impl Iterator<Item = &Slice<T>> {
        self.slices.iter().filter(move |slice| slice.subject == subject)
    }

    /// Returns the results of a subject that count, and the machine then. They are of the state
    /// that most slices were in. If none of its slices was in that state, they are all of them, with
    /// [`State::Changed`].
    pub fn counted(&self, subject: usize) -> (Machine, Vec<&T>) {
        let mut slices: Vec<_> = self.kept_slices(subject).collect();
        let mut state = self.state();
        if slices.is_empty() {
            (slices, state) = (self.slices_of(subject).collect(), State::Changed);
        }
        let trips: Vec<f64> =
            slices.iter().filter_map(|slice| Some(slice.machine.round_trip_ns? as f64)).collect();
        let round_trip_ns = median(&trips).map(|ns| ns.round() as u64);
        let found = slices.into_iter().map(|slice| &slice.found).collect();
        (Machine { state, round_trip_ns }, found)
    }

    /// Returns the ratios of a subject to another, one for each round of which both slices were
    /// kept.
    pub fn ratios(&self, subject: usize, reference: usize, rate: impl Fn(&T) -> f64) -> Vec<f64> {
        let rounds = self.rounds([subject, reference]);
        let ratios = rounds.iter().map(|[found, other]| rate(found) / rate(other));
        ratios.filter(|ratio| ratio.is_finite()).collect()
    }

    /// Returns the results of several subjects, one set for each round of which all slices were
    /// kept.
    pub fn rounds<const N: usize>(&self, subjects: [usize; N]) -> Vec<[&T; N]> {
        let &[first, ..] = &subjects[..] else { return Vec::new() };
        let together = |(round, _): (usize, &T)| {
            let of = |subject: usize| self.kept(subject).find(|&(other, _)| other == round);
            let all: Vec<&T> = subjects.iter().filter_map(|&s| of(s)).map(|(_, t)| t).collect();
            <[&T; N]>::try_from(all).ok()
        };
        self.kept(first).filter_map(together).collect()
    }
}

impl Series<f64> {
    /// Returns the median of a subject's results that count, the machine, and their number.
    pub fn typical(&self, subject: usize) -> (f64, Machine, usize) {
        let (machine, found) = self.counted(subject);
        let found: Vec<f64> = found.into_iter().copied().collect();
        (median(&found).unwrap_or(0.0), machine, found.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Changed, Far, Near};

    fn at(state: State) -> Machine {
        Machine { state, round_trip_ns: Some(100) }
    }

    #[test]
    fn slices_are_short_enough_and_as_many_as_asked_for() {
        let cut = |seconds, pairs| {
            let timing = Timing::short(seconds, pairs).unwrap();
            (timing.rounds, timing.slice.as_millis())
        };
        assert_eq!(cut(2.0, None), (20, 100));
        assert_eq!(cut(0.3, None), (3, 100));
        assert_eq!(cut(0.01, None), (1, 10));
        assert_eq!(cut(20.0, None), (40, 500));
        assert_eq!(cut(1.0, Some(4)), (4, 250));
        let refused = Timing::short(4.0, Some(2)).unwrap_err().to_string();
        assert!(refused.contains("slices of 2.0 s") && refused.contains("--pairs 8"), "{refused}");
        let long = Timing::long(1.2, None).unwrap();
        assert_eq!((long.rounds, long.slice.as_millis()), (3, 400));
        assert_eq!(Timing::long(0.01, None).unwrap().rounds, 1);
    }

    #[test]
    fn turns_alternate_abba() {
        let turns: Vec<usize> = (0..4).flat_map(|round| order(round, 2)).collect();
        assert_eq!(turns, [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(order(1, 4), [3, 2, 1, 0]);
    }

    #[test]
    fn a_slice_whose_state_changed_is_dropped_with_its_pair() {
        assert_eq!(
            (between(at(Near), at(Near)), between(at(Near), at(Far))),
            (at(Near), at(Changed))
        );
        let mut series = Series::new();
        let rounds = [(Near, Near), (Near, Changed), (Far, Far), (Near, Near)];
        for (round, (first, second)) in rounds.into_iter().enumerate() {
            series.add(0, round, at(first), 1.0 + round as f64);
            series.add(1, round, at(second), 10.0 * (1.0 + round as f64));
        }
        assert_eq!(series.state(), Near);
        let kept: Vec<_> = series.kept(1).map(|(round, &found)| (round, found)).collect();
        assert_eq!(kept, [(0, 10.0), (3, 40.0)]);
        assert_eq!(series.ratios(1, 0, |&rate| rate), [10.0, 10.0]);
    }

    #[test]
    fn slices_that_changed_are_used_only_where_there_are_no_others() {
        let mut series = Series::new();
        series.add(0, 0, at(Changed), 2.0);
        series.add(1, 0, at(Changed), 3.0);
        assert_eq!((series.state(), series.kept(0).count()), (Changed, 1));
        for round in 1..4 {
            series.add(0, round, at(Changed), 2.0);
        }
        series.add(0, 4, at(Far), 5.0);
        assert_eq!((series.state(), series.kept(0).count()), (Far, 1));
        assert_eq!(series.counted(0), (at(Far), vec![&5.0]));
        assert_eq!(series.counted(1), (at(Changed), vec![&3.0]));
        assert!(series.ratios(1, 0, |&rate| rate).is_empty());
    }

    #[test]
    fn a_rate_of_nothing_makes_no_ratio() {
        let mut series = Series::new();
        series.add(0, 0, at(Near), 0.0);
        series.add(1, 0, at(Near), 5.0);
        assert!(series.ratios(1, 0, |&rate| rate).is_empty());
    }
}
