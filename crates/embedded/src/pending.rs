//! Pending and mask bits of a set of event channels, in two levels as Xen has them: a selector bit
//! for each word of pending bits.
//!
//! Every process that may signal a port of the set writes here, so nothing read from here is
//! trusted: a bit for a port that is not ours is a spurious event.

use crate::sys::{Wake, Words};
use rustix::fd::AsFd;
use rustix::io::Result;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// Bits in a word.
const BITS: usize = 64;

/// Layout of the parts, in words of 64 bits: selectors, pending, mask.
#[derive(Debug, Clone, Copy)]
struct Layout {
    words: usize,
    selectors: usize,
}

impl Layout {
    fn of(ports: u32) -> Self {
        let words = (ports as usize).div_ceil(BITS);
        Self { words, selectors: words.div_ceil(BITS) }
    }

    fn pending(self, word: usize) -> usize {
        self.selectors + word
    }

    fn mask(self, word: usize) -> usize {
        self.selectors + self.words + word
    }
}

/// The bits, and the descriptor that wakes their owner.
#[derive(Debug)]
pub struct Pending {
    words: Words,
    wake: Wake,
    layout: Layout,
    ports: u32,
}

impl Pending {
    /// Returns the number of bytes that the bits of `ports` ports take.
    pub fn bytes(ports: u32) -> usize {
        let layout = Layout::of(ports);
        (layout.selectors + 2 * layout.words) * 8
    }

    /// Maps the bits in `memory`.
    pub fn new(memory: impl AsFd, wake: Wake, ports: u32) -> Result<Self> {
        Ok(Self {
            words: Words::of(memory, Self::bytes(ports))?,
            wake,
            layout: Layout::of(ports),
            ports,
        })
    }

    /// Returns the descriptor that wakes the owner.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Signals a port: sets its bit, and if that is news and not masked, the selector and the
    /// wake-up. Signals merge while the bit is set.
    #[inline]
    pub fn signal(&self, port: u32) -> Result<()> {
        if port >= self.ports {
            return Ok(());
        }
        let (word, bit) = (port as usize / BITS, 1u64 << (port as usize % BITS));
        let Some(pending) = self.words.word64(self.layout.pending(word)) else {
            return Ok(());
        };
        // Release: data that the signal is about (ring indices) is visible to the taker of the bit.
        // Pairs with the `fetch_and` in `take`.
        if pending.fetch_or(bit, AcqRel) & bit != 0 {
            return Ok(());
        }
        self.raise(word, bit)
    }

    fn raise(&self, word: usize, bit: u64) -> Result<()> {
        let masked = self
            .words
            .word64(self.layout.mask(word))
            .is_some_and(|mask| mask.load(Acquire) & bit != 0);
        if masked {
            return Ok(());
        }
        if let Some(selector) = self.words.word64(word / BITS) {
            // The bit first, the selector second; `take` looks in the other
            // order, so a bit it missed leaves its selector set.
            selector.fetch_or(1 << (word % BITS), AcqRel);
        }
        self.wake.ring()
    }

    /// Ends a signal whose sender may have died between the bit and the wake-up: every later signal
    /// would merge with it, and wake nobody.
    pub fn complete(&self, port: u32) -> Result<()> {
        let (word, bit) = (port as usize / BITS, 1u64 << (port as usize % BITS));
        match self.words.word64(self.layout.pending(word)) {
            Some(pending) if pending.load(Acquire) & bit != 0 => self.raise(word, bit),
            _ => Ok(()),
        }
    }

    /// Does the first step of a signal only, as a sender that is killed behind it.
    #[cfg(test)]
    pub fn half_a_signal(&self, port: u32) {
        let (word, bit) = (port as usize / BITS, 1u64 << (port as usize % BITS));
        self.words.word64(self.layout.pending(word)).unwrap().fetch_or(bit, AcqRel);
    }

    /// Masks a port that is now free, and forgets its pending signal.
    pub fn retire(&self, port: u32) {
        let (word, bit) = (port as usize / BITS, 1u64 << (port as usize % BITS));
        if let Some(mask) = self.words.word64(self.layout.mask(word)) {
            mask.fetch_or(bit, AcqRel);
        }
        if let Some(pending) = self.words.word64(self.layout.pending(word)) {
            pending.fetch_and(!bit, AcqRel);
        }
    }

    /// Makes a port ready for signals, with none pending. The mask goes first. Otherwise a late
    /// signal of the port's last binding might still see the mask, and leave its bit behind without
    /// the selector. Every later signal would merge with it unseen.
    pub fn prepare(&self, port: u32) {
        self.prepare_with(port, || ());
    }

    /// Does the steps of [`Pending::prepare`], and calls `between` between them.
    fn prepare_with(&self, port: u32, between: impl FnOnce()) {
        let (word, bit) = (port as usize / BITS, 1u64 << (port as usize % BITS));
        if let Some(mask) = self.words.word64(self.layout.mask(word)) {
            mask.fetch_and(!bit, AcqRel);
        }
        between();
        if let Some(pending) = self.words.word64(self.layout.pending(word)) {
            pending.fetch_and(!bit, AcqRel);
        }
    }

    /// Takes every pending bit that is not masked, and returns their number.
    #[inline]
    pub fn take(&self, mut each: impl FnMut(u32)) -> u64 {
        let mut taken = 0;
        for index in 0..self.layout.selectors {
            let Some(selector) = self.words.word64(index) else {
                break;
            };
            // A plain look comes first: an idle poll does not take the cache line over.
            if selector.load(Acquire) == 0 {
                continue;
            }
            let mut chosen = selector.swap(0, AcqRel);
            while chosen != 0 {
                let word = index * BITS + chosen.trailing_zeros() as usize;
                chosen &= chosen - 1;
                if word >= self.layout.words {
                    continue;
                }
                let (Some(pending), Some(mask)) = (
                    self.words.word64(self.layout.pending(word)),
                    self.words.word64(self.layout.mask(word)),
                ) else {
                    continue;
                };
                let open = !mask.load(Acquire);
                let mut bits = pending.fetch_and(!open, AcqRel) & open;
                while bits != 0 {
                    each((word * BITS) as u32 + bits.trailing_zeros());
                    bits &= bits - 1;
                    taken += 1;
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shared_memory;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Release;

    fn pending(ports: u32) -> Pending {
        let fd = shared_memory("test", Pending::bytes(ports)).unwrap();
        Pending::new(&fd, Wake::new().unwrap(), ports).unwrap()
    }

    fn taken(pending: &Pending) -> Vec<u32> {
        let mut ports = Vec::new();
        pending.take(|port| ports.push(port));
        ports
    }

    #[test]
    fn signals_merge_until_they_are_taken() {
        for ports in [4096, 131_072] {
            let pending = pending(ports);
            for port in [1, 63, 64, ports - 1, 64] {
                pending.signal(port).unwrap();
            }
            assert_eq!(pending.wake().drain().unwrap(), 4);
            assert_eq!(taken(&pending), [1, 63, 64, ports - 1]);
            assert_eq!(taken(&pending), []);
            pending.signal(64).unwrap();
            assert_eq!(taken(&pending), [64]);
        }
    }

    #[test]
    fn a_port_outside_the_table_is_swallowed() {
        let pending = pending(4096);
        pending.signal(4096).unwrap();
        pending.signal(u32::MAX).unwrap();
        assert_eq!(taken(&pending), []);
    }

    #[test]
    fn a_retired_port_wakes_nobody() {
        let pending = pending(4096);
        pending.retire(7);
        pending.signal(7).unwrap();
        assert_eq!(pending.wake().drain().unwrap(), 0);
        pending.signal(8).unwrap();
        assert_eq!(taken(&pending), [8]);
        pending.prepare(7);
        assert_eq!(taken(&pending), []);
        pending.signal(7).unwrap();
        assert_eq!(taken(&pending), [7]);
    }

    #[test]
    fn a_late_signal_of_the_last_binding_silences_no_port() {
        const ROUNDS: u32 = 20_000;
        let pending = pending(4096);
        let (begun, done) = (AtomicU32::new(0), AtomicU32::new(0));
        // Rounds after which a signal was not seen.
        let silent = std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while begun.load(Acquire) < round {
                        std::thread::yield_now();
                    }
                    pending.signal(7).unwrap();
                    done.store(round, Release);
                }
            });
            let silenced = |round: &u32| {
                pending.retire(7);
                begun.store(*round, Release);
                // With this delay the signal falls into each step of `prepare`.
                for _ in 0..*round % 512 {
                    std::hint::spin_loop();
                }
                pending.prepare(7);
                while done.load(Acquire) < *round {
                    std::thread::yield_now();
                }
                taken(&pending);
                pending.signal(7).unwrap();
                taken(&pending) != [7]
            };
            (1..=ROUNDS).filter(silenced).count()
        });
        assert_eq!(silent, 0, "of {ROUNDS} rounds");
    }

    #[test]
    fn a_late_signal_before_between_and_after_the_steps_of_prepare_silences_no_port() {
        let pending = pending(4096);
        for moment in ["before", "between", "after"] {
            let late = |now| {
                if now == moment {
                    pending.signal(7).unwrap();
                }
            };
            pending.retire(7);
            late("before");
            pending.prepare_with(7, || late("between"));
            late("after");
            taken(&pending);
            pending.signal(7).unwrap();
            assert_eq!(taken(&pending), [7], "a late signal {moment}");
        }
    }

    #[test]
    fn selectors_of_words_that_are_not_there_are_ignored() {
        let pending = pending(128);
        pending.words.word64(0).unwrap().store(u64::MAX, Release);
        assert_eq!(taken(&pending), []);
    }
}
