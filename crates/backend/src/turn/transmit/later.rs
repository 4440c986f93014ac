//! The time of the next look at a guest that sends few packets at a time, one after another.
//!
//! Each look takes the cache line of the ring's indices from the guest, which writes it for each
//! packet, and waits for it again. If every look finds a packet or two, both ends do little else. So
//! the next look comes some turns later, and finds several packets.
//!
//! A guest that waits for an answer to its packet is never kept waiting: the look behind that packet
//! finds nothing, and then the next look comes at once. What waits is counted in turns, in which
//! frames go to the guest as always.

/// Packets of a look that are few.
const FEW: usize = 16;
/// Looks in a row that found few packets, and not none, behind which a look comes later.
const ROW: u32 = 64;
/// Turns that are left out then. One takes some 40 ns.
const TURNS: u32 = 32;

/// Looks in a row that found few packets, and the turns until the next look.
#[derive(Debug, Default)]
pub(super) struct Later {
    row: u32,
    left: u32,
}

impl Later {
    /// Notes that a look found this many packets of a slot each.
    #[inline]
    pub fn found(&mut self, packets: usize) {
        if packets > FEW {
            return self.found_other();
        }
        if self.row < ROW {
            self.row += 1;
        } else {
            self.left = TURNS;
        }
    }

    /// Notes that a look found nothing, or packets of another kind.
    #[inline]
    pub fn found_other(&mut self) {
        *self = Self::default();
    }

    /// Returns true if more turns are to be left out.
    pub fn is_waiting(&self) -> bool {
        self.left > 0
    }

    /// Returns true if this turn is to be left out.
    #[inline]
    pub fn leaves_out(&mut self) -> bool {
        let leaves_out = self.left > 0;
        self.left -= u32::from(leaves_out);
        leaves_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of turns that are left out behind a look.
    fn left_out(later: &mut Later) -> u32 {
        let turns = (0..).find(|_| !later.leaves_out());
        turns.unwrap_or(0)
    }

    #[test]
    fn a_guest_that_sends_without_pause_is_looked_at_later() {
        let mut later = Later::default();
        for _ in 0..ROW {
            later.found(1);
            assert_eq!(left_out(&mut later), 0);
        }
        for packets in [1, 6, FEW] {
            later.found(packets);
            assert_eq!(left_out(&mut later), TURNS);
        }
    }

    #[test]
    fn a_guest_that_waits_for_answers_or_sends_much_is_looked_at_at_once() {
        let notes: [fn(&mut Later); 2] = [Later::found_other, |later| later.found(FEW + 1)];
        for note in notes {
            let mut later = Later::default();
            for _ in 0..100 {
                (0..ROW).for_each(|_| later.found(1));
                note(&mut later);
                assert_eq!(left_out(&mut later), 0);
            }
            // Even if turns are left that were to be left out.
            (0..=ROW).for_each(|_| later.found(1));
            note(&mut later);
            later.found(1);
            assert_eq!(left_out(&mut later), 0);
        }
    }
}
