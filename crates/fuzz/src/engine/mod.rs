//! The engine: changes inputs at random, and keeps those that reach something
//! new.

mod features;
mod mutate;
mod reduce;
mod watch;

use crate::corpus::encode;
use crate::targets::Target;
use features::Features;
use grantway_testkit::Numbers;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use watch::Watch;

/// How long an input may take, in seconds.
const LONGEST: u32 = 60;

/// How often each place of the code was reached.
pub trait Coverage {
    /// Begins at zero everywhere.
    fn clear(&mut self);
    /// The counts by now, always of the same places in the same order.
    fn read(&mut self, counts: &mut Vec<u8>);
}

/// An input for which a target panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// What the panic said.
    pub message: String,
}

/// Runs one target over and over. An input that it does not come back from ends
/// the process, which says so.
#[derive(Debug)]
pub struct Engine<C> {
    target: Target,
    coverage: C,
    numbers: Numbers,
    guided: bool,
    corpus: Vec<Vec<u8>>,
    seen: Features,
    counts: Vec<u8>,
    runs: u64,
    watch: Watch,
}

impl<C: Coverage> Engine<C> {
    /// An engine that has tried nothing. Unless `guided`, it counts what is
    /// reached and makes nothing of it, for comparison.
    pub fn new(target: Target, coverage: C, seed: u64, guided: bool) -> Self {
        let late = move |input: &[u8]| {
            let (name, input) = (target.name, encode(input));
            // Not by a macro, which a test would keep to itself.
            let _ = writeln!(
                std::io::stderr(),
                "fuzz: {name}: no end within {LONGEST} s for the input {input}"
            );
            std::process::exit(1);
        };
        Self {
            target,
            coverage,
            // Seeds next to each other begin far apart.
            numbers: Numbers::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            guided,
            corpus: Vec::new(),
            seen: Features::default(),
            counts: Vec::new(),
            runs: 0,
            watch: Watch::start(LONGEST, || std::thread::sleep(Duration::from_secs(1)), late),
        }
    }

    /// Inputs tried so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Inputs that reached something new, in the order in which they did.
    pub fn corpus(&self) -> &[Vec<u8>] {
        &self.corpus
    }

    /// Places that were reached.
    pub fn places(&self) -> usize {
        self.seen.places()
    }

    /// Places that were reached, with how often as far as it makes a difference.
    pub fn features(&self) -> usize {
        self.seen.len()
    }

    /// Begins with an input, untried.
    pub fn know(&mut self, input: &[u8]) {
        self.corpus.push(input.to_vec());
    }

    /// Tries an input; says whether it reached something new.
    ///
    /// # Errors
    /// The target panicked.
    pub fn add(&mut self, input: &[u8]) -> Result<bool, Failure> {
        self.count(input)?;
        if !self.seen.lacks(&self.counts) {
            return Ok(false);
        }
        self.count_again(input)?;
        let new = self.seen.add(&self.counts);
        if new && self.guided {
            self.corpus.push(input.to_vec());
        }
        Ok(new)
    }

    /// The next input to try.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut pick = || match self.corpus.len() {
            // A beginning that nothing led to, now and then.
            n if n == 0 || self.numbers.once_in(16) => &[],
            // The newest as often as all others together: they are the way on.
            n if self.numbers.once_in(2) => {
                let newest = n.div_ceil(8);
                self.corpus[n - 1 - self.numbers.below(newest)].as_slice()
            }
            n => self.corpus[self.numbers.below(n)].as_slice(),
        };
        let (mut input, other) = (pick().to_vec(), pick());
        mutate::mutate(&mut input, other, self.target.unit, &mut self.numbers);
        input
    }

    /// Runs the target once more, and leaves what both runs reached: the rest was
    /// not the input's doing, but another thread's.
    fn count_again(&mut self, input: &[u8]) -> Result<(), Failure> {
        let first = self.counts.clone();
        self.count(input)?;
        for (count, first) in self.counts.iter_mut().zip(first) {
            *count = first.min(*count);
        }
        Ok(())
    }

    /// Runs the target, and counts what it reaches.
    fn count(&mut self, input: &[u8]) -> Result<(), Failure> {
        self.runs += 1;
        self.watch.tries(Some(input));
        self.coverage.clear();
        let run = catch_unwind(AssertUnwindSafe(|| (self.target.run)(input)));
        self.coverage.read(&mut self.counts);
        self.watch.tries(None);
        run.map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let message = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure { input: input.to_vec(), message: message.to_owned() }
        })
    }
}

#[cfg(test)]
mod tests;
