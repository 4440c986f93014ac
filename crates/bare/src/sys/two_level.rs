//! Event channels of two levels: a bit per port in the page of shared information, and a bit per
//! word of these. There are 4,096 ports.

use super::shared::SharedInfo;
use core::sync::atomic::Ordering::SeqCst;

/// Offsets in `shared_info` on x86-64: a bit for each word of pending ports, of processor 0, and
/// the words of pending and of masked ports.
const SELECTOR: usize = 8;
const PENDING: usize = 0x800;
const MASKED: usize = 0xa00;
/// Words of each array.
const WORDS: u32 = 64;
/// Ports that there may be: a bit each.
pub const PORTS: u32 = 64 * WORDS;

/// The ports of this guest.
#[derive(Debug, Clone)]
pub struct TwoLevel(SharedInfo);

impl TwoLevel {
    /// Takes the ports over, and masks them all.
    pub fn new(shared: SharedInfo) -> Self {
        let ports = Self(shared);
        for word in 0..WORDS {
            ports.0.word(word_of(MASKED, word)).store(u64::MAX, SeqCst);
        }
        ports
    }

    /// Masks a port, and forgets what is pending there.
    pub fn retire(&self, port: u32) {
        if port < PORTS {
            self.0.word(word_of(MASKED, port / 64)).fetch_or(1 << (port % 64), SeqCst);
            self.take(port);
        }
    }

    /// Has a port make upcalls. Returns true if it was signalled before.
    pub fn unmask(&self, port: u32) -> bool {
        if port < PORTS {
            self.0.word(word_of(MASKED, port / 64)).fetch_and(!(1 << (port % 64)), SeqCst);
        }
        self.take(port)
    }

    /// Returns true if the port was signalled, and forgets it.
    pub fn take(&self, port: u32) -> bool {
        if port >= PORTS {
            return false;
        }
        let bit = 1 << (port % 64);
        let word = self.0.word(word_of(PENDING, port / 64));
        // Reading is cheaper than a locked operation.
        word.load(SeqCst) & bit != 0 && word.fetch_and(!bit, SeqCst) & bit != 0
    }

    /// Returns true if an unmasked port was signalled.
    pub fn is_ready(&self) -> bool {
        self.0.word(SELECTOR).load(SeqCst) != 0
    }

    /// Takes all unmasked ports that were signalled, and forgets it.
    pub fn drain(&self, fired: &mut impl FnMut(u32)) {
        if !self.is_ready() {
            return;
        }
        // Before the words: Xen sets a bit in a word first.
        for word in bits(self.0.word(SELECTOR).swap(0, SeqCst)) {
            let pending = self.0.word(word_of(PENDING, word));
            let ready = pending.load(SeqCst) & !self.0.word(word_of(MASKED, word)).load(SeqCst);
            for bit in bits(pending.fetch_and(!ready, SeqCst) & ready) {
                fired(word * 64 + bit);
            }
        }
    }
}

fn word_of(array: usize, word: u32) -> usize {
    array + word as usize * 8
}

/// Returns the numbers of the bits that are set, from the lowest.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use grantway_ring::SharedRun;

    fn ports() -> TwoLevel {
        TwoLevel::new(SharedInfo::over(SharedRun::private(1).page(0).unwrap()))
    }

    /// Signals a port as Xen does.
    fn signal(ports: &TwoLevel, port: u32) {
        let word = |array| ports.0.word(word_of(array, port / 64));
        let bit = 1 << (port % 64);
        let before = word(PENDING).fetch_or(bit, SeqCst);
        if before & bit == 0 && word(MASKED).load(SeqCst) & bit == 0 {
            ports.0.word(SELECTOR).fetch_or(1 << (port / 64), SeqCst);
        }
    }

    fn drained(ports: &TwoLevel) -> Vec<u32> {
        let mut all = Vec::new();
        ports.drain(&mut |port| all.push(port));
        all
    }

    const SOME: [u32; 5] = [0, 63, 64, 2000, PORTS - 1];

    #[test]
    fn a_signal_is_taken_once_and_no_other_with_it() {
        let ports = ports();
        for port in SOME {
            signal(&ports, port);
        }
        assert!(!ports.is_ready(), "all are masked");
        assert!(!ports.take(1) && !ports.take(65));
        // Ports that there are not do not end up at others.
        assert!(!ports.take(PORTS) && !ports.take(u32::MAX));
        for port in SOME {
            assert!(ports.take(port), "{port}");
            assert!(!ports.take(port), "{port}");
        }
    }

    #[test]
    fn unmasked_ports_are_drained_once_and_masked_ones_stay_pending() {
        let ports = ports();
        for port in SOME {
            assert!(!ports.unmask(port));
            signal(&ports, port);
            signal(&ports, port + 1 - port % 2 * 2);
        }
        assert!(ports.is_ready());
        assert_eq!(drained(&ports), SOME);
        assert!(!ports.is_ready() && drained(&ports).is_empty());
        // What came while it was masked is told when it is not any more.
        assert!(ports.unmask(1) && !ports.unmask(2));
        signal(&ports, 1);
        assert_eq!(drained(&ports), [1]);
    }

    #[test]
    fn a_retired_port_makes_no_upcall_and_its_signal_is_forgotten() {
        let ports = ports();
        ports.unmask(70);
        signal(&ports, 70);
        ports.retire(70);
        signal(&ports, 70);
        assert!(drained(&ports).is_empty());
        assert!(ports.take(70), "only what came afterwards");
        ports.retire(PORTS);
        assert!(!ports.unmask(u32::MAX));
    }
}
