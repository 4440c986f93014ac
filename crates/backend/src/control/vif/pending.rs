//! What a vif has still to do.

use std::time::Instant;

/// A connection that is to be made, or taken over from a killed process.
pub(super) struct Attempt {
    pub(super) resume: bool,
    /// When it is given up; none as long as nothing but the store had trouble.
    pub(super) until: Option<Instant>,
}

impl Attempt {
    pub fn new(resume: bool) -> Self {
        Self { resume, until: None }
    }
}

/// What the store lacks of a vif, and is written when it can be again.
#[derive(Debug, Default)]
pub(super) struct Debts {
    /// Its state could not be written: the frontend may have missed one.
    pub(super) state: bool,
    /// What is offered, to be written before InitWait.
    pub(super) offer: bool,
    /// The script's word is to be taken away, so that a later vif of the same name waits for
    /// its own.
    pub(super) script: bool,
    /// The watches are to be ended.
    pub(super) watches: bool,
    /// Its folder was removed: whatever is there now is another vif's.
    pub(super) folder_went: bool,
}

impl Debts {
    /// The vif is gone.
    pub fn of_the_gone(&mut self, hotplug: bool) {
        self.offer = false;
        self.script = hotplug;
        self.watches = true;
    }
}
