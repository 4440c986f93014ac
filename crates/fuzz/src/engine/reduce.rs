//! Fewer and shorter inputs that reach the same.

use super::{Coverage, Engine, Failure, Features};

impl<C: Coverage> Engine<C> {
    /// Inputs that reach all that `inputs` do: the shortest first, each made
    /// shorter as far as it keeps what it was taken for.
    ///
    /// # Errors
    /// The target panicked.
    pub fn reduce(&mut self, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut inputs = inputs.to_vec();
        // Short for a few rounds: what was made shorter may serve for others.
        for _ in 0..3 {
            inputs.sort_by(|a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
            let (mut reached, mut kept) = (Features::default(), Vec::new());
            for input in &inputs {
                self.count(input)?;
                self.count_again(input)?;
                let new = reached.missing(&self.counts);
                if new.len() == 0 {
                    continue;
                }
                let shorter =
                    shorten(input, |input| self.count(input).map(|()| new.within(&self.counts)))?;
                self.count(&shorter)?;
                self.count_again(&shorter)?;
                reached.add(&self.counts);
                kept.push(shorter);
            }
            inputs = kept;
        }
        Ok(inputs)
    }

    /// The failure of a shorter input, as far as one is found.
    pub fn shorten(&mut self, failure: Failure) -> Failure {
        let mut last = failure;
        let input = last.input.clone();
        let fails = |input: &[u8]| -> Result<bool, Failure> {
            let result = self.count(input);
            let fails = result.is_err();
            if let Err(failure) = result {
                last = failure;
            }
            Ok(fails)
        };
        match shorten(&input, fails) {
            Ok(_) => last,
            Err(failure) => failure,
        }
    }
}

/// Takes parts out of `input` for as long as `keeps` says that it may be done.
fn shorten(
    input: &[u8],
    mut keeps: impl FnMut(&[u8]) -> Result<bool, Failure>,
) -> Result<Vec<u8>, Failure> {
    let mut input = input.to_vec();
    let mut part = input.len() / 2;
    while part > 0 {
        let mut at = 0;
        while at < input.len() {
            let mut without = input.clone();
            without.drain(at..(at + part).min(input.len()));
            if keeps(&without)? {
                input = without;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    Ok(input)
}
