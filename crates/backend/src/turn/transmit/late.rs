//! Answers that wait for others.
//!
//! A guest needs the answers to its requests once it runs out of slots, and not before. An answer
//! is a write to the line of the slots that the guest fills at this moment, and to the line of the
//! indices, and the fence behind it waits until both lines are here. So the answers to a few
//! requests wait for more of them, or for the first look that finds nothing.

use arrayvec::ArrayVec;

/// Most answers that wait: a few of the 256 slots of a ring. A guest stops its queue when it has
/// less room than a packet takes, or asks for a signal before that.
const MOST: usize = 32;

/// The answers that wait, in the order of the ring.
#[derive(Debug, Default)]
pub(super) struct Late(ArrayVec<[u32; 3], MOST>);

impl Late {
    /// Takes answers in if they may wait. Returns false, and takes none, if they and those that
    /// wait already are to be given now.
    #[inline]
    pub fn take_in(&mut self, answers: &[[u32; 3]]) -> bool {
        self.0.len() + answers.len() < MOST && self.0.try_extend_from_slice(answers).is_ok()
    }

    /// Returns the answers that wait.
    #[inline]
    pub fn all(&self) -> &[[u32; 3]] {
        &self.0
    }

    /// Forgets the answers, which are given.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_answers_wait_and_many_do_not() {
        let mut late = Late::default();
        assert!((1..MOST).all(|_| late.take_in(&[[7; 3]])));
        assert!(!late.take_in(&[[7; 3]]));
        assert_eq!(late.all(), [[7; 3]; MOST - 1]);
        late.clear();
        assert!(!late.take_in(&[[0; 3]; MOST]) && late.take_in(&[[0; 3]; MOST - 1]));
    }
}
