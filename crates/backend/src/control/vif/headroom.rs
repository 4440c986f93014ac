//! The bytes that a guest wants free in front of each frame, for an XDP program.
//!
//! Stock netfront loads a program in these steps: it writes Reconfiguring, writes `xdp-headroom`,
//! waits for Reconfigured, runs the program on each frame from then on, always from byte 256 of the
//! first page on, and writes Connected. To take a program off it does the same with a headroom of 0.
//! So the backend may see Reconfiguring before the key, and does not know when the program comes or
//! goes. Until it sees Connected, it leaves these 256 bytes free in any case, and no less than before
//! the change: without a program netfront takes a frame from wherever the answer's offset says. No
//! more than the 256 bytes hold without exception: a guest whose program needs more has to write the
//! key before its state, and once it has read Connected of an earlier change; and a successor of a
//! killed backend does not know what there was before.
//!
//! Linux's netback puts an extra of type XDP behind the first slot, and leaves the offset at 0:
//! netfront takes the extra's number for the offset. Here the offset itself says it, so that a frame
//! uses up one posted page less. A frame over several pages has the headroom in the first.

use super::Vif;
use super::found::state;
use crate::VifError;
use crate::control::published;
use crate::control::surroundings::Surroundings;
use grantway_hypervisor::Error as PlatformError;
use grantway_netif::XenbusState;
use grantway_netif::slots::rx::XDP_HEADROOM;

impl Vif {
    /// Returns the headroom that the queues must leave, which now leave `now`. If a guest asks for
    /// an impossible headroom, it is logged, and the guest gets none.
    pub(super) fn headroom_due(
        &mut self,
        now: u16,
        around: &mut Surroundings<'_>,
    ) -> Result<u16, PlatformError> {
        let asked = match published::headroom(around.store, &self.frontend) {
            Ok(asked) => asked,
            Err(VifError::Platform(e)) => return Err(e),
            Err(error) => {
                self.report(&error, around);
                0
            }
        };
        // The state is read behind the key, which the guest writes behind its state. So a 0 of a
        // change that the machine has not seen yet is known for one: the program may still run.
        let seen = self.machine.is_reconfiguring();
        let changing = state(around.store, &self.frontend)? == Some(XenbusState::Reconfiguring);
        // As long as it may change, each look reads the key again.
        self.debts.headroom = changing || seen;
        Ok(if changing || seen { asked.max(now).max(XDP_HEADROOM) } else { asked })
    }

    /// Gives the queues the headroom that is due, if the machine asked for that. What the guest has
    /// had so far is taken away only after it can read Connected.
    pub(super) fn settle_headroom(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlatformError> {
        let reconfiguring = self.machine.is_reconfiguring();
        let shown = reconfiguring || self.stored == Some(XenbusState::Connected);
        if !self.debts.headroom || self.link.served().is_none() || !shown {
            return Ok(());
        }
        let now = self.link.headroom();
        let due = match self.headroom_due(now, around) {
            // The key is read again behind Connected.
            Err(_) if reconfiguring => now.max(XDP_HEADROOM),
            due => due?,
        };
        self.link.set_headroom(due, &around.engine.workers);
        Ok(())
    }
}
