//! Work that a vif has still to do.

use std::time::Instant;

/// A connection that is to be made, or taken over from a killed process.
pub(super) struct Attempt {
    pub(super) resume: bool,
    /// Time at which the attempt is given up; `None` as long as only the store had trouble.
    pub(super) until: Option<Instant>,
}

impl Attempt {
    pub fn new(resume: bool) -> Self {
        Self { resume, until: None }
    }
}

/// Debts to the store: what it lacks of a vif, which is written when the store has no trouble any
/// more.
#[derive(Debug, Default)]
pub(super) struct Debts {
    /// True if the state could not be written: the frontend may have missed one.
    pub(super) state: bool,
    /// True if the offer is to be written before InitWait.
    pub(super) offer: bool,
    /// True if the hotplug script's node is to be removed, so that a later vif of the same name
    /// waits for its own script.
    pub(super) script: bool,
    /// True if the headroom is to be taken from the frontend's key.
    pub(super) headroom: bool,
    /// True if the watches are to be ended.
    pub(super) watches: bool,
    /// True if the vif's folder was removed: a folder that is there now is another vif's.
    pub(super) folder_went: bool,
}

impl Debts {
    /// Notes the debts of a vif that is gone.
    pub fn of_the_gone(&mut self, hotplug: bool) {
        self.offer = false;
        self.headroom = false;
        self.script = hotplug;
        self.watches = true;
    }
}
