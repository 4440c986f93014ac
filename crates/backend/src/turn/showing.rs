//! When the answers to frames that come one at a time are shown to the guest.
//!
//! The index of a ring lies in one cache line, which a guest that polls reads all the time. So each
//! time that answers are shown, that line and the lines of the answers go over to the guest's
//! processor, and the backend waits until they are its own again. If a guest is given frames in
//! turn after turn, the answers of several turns are therefore shown together.
//!
//! All answers are shown after two turns in a row that answer nothing, before packets of the guest
//! are handled, and before anything but the queue's own next turn comes (`Queue::pause`). A guest
//! that begins to wait for a signal gets it then.

/// Turns with answers, with at most one in between that has none, that make a row.
const ROW: u8 = 64;
/// Most answers that wait. A turn after which there are as many shows them.
const MOST: u32 = 8;

/// State of one ring to the guest.
#[derive(Default)]
pub(crate) struct Showing {
    /// Turns of the present row, up to [`ROW`].
    row: u8,
    /// True if the last turn answered nothing.
    still: bool,
}

impl Showing {
    /// Notes what a turn answered. `unshown` is the number of answers that the guest does not see
    /// yet. Returns true if they are to be shown.
    #[inline]
    pub(crate) fn is_due(&mut self, answered: bool, unshown: u32) -> bool {
        let was_still = std::mem::replace(&mut self.still, !answered);
        match answered {
            true if self.row < ROW => {
                self.row += 1;
                true
            }
            true => unshown >= MOST,
            false if was_still => {
                self.row = 0;
                true
            }
            false => false,
        }
    }

    /// Ends the row, since the guest asks for signals.
    #[inline]
    pub(crate) fn is_asked(&mut self) {
        self.row = 0;
    }
}
