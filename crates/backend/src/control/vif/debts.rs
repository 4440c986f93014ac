//! What the store is to have of a vif, and does not have yet: it had trouble of its own. Every
//! look at the vif tries again. The machine is never kept waiting for it: of its states only
//! the last one counts, as a frontend that looks late sees no other either.

use super::pending::Debts;
use super::{Vif, WATCHED, token};
use crate::control::negotiate::advertise;
use crate::control::surroundings::Surroundings;
use crate::error::is_of_nodes;
use grantway_hypervisor::{Error as PlatformError, StoreErrno, transaction};
use grantway_netif::{XenbusState, keys};
use tracing::info;

impl Vif {
    /// Whether the store lacks anything.
    pub(super) fn owes(&self) -> bool {
        let Debts { state, offer, script, watches, folder_went } = self.debts;
        let of_folder = state || offer || script || self.machine.shown() != self.stored;
        watches || (of_folder && !folder_went)
    }

    /// Tries to write all that the store lacks.
    pub(super) fn settle_debts(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlatformError> {
        let told = match self.machine.shown() {
            Some(state) => self.tell(state, around),
            None => Ok(()),
        };
        let cleared = if self.debts.script { self.clear_hotplug(around) } else { Ok(()) };
        let ended = if self.debts.watches { self.unwatch(around) } else { Ok(()) };
        told.and(cleared).and(ended)
    }

    /// Writes a state, after what is offered.
    pub(super) fn tell(
        &mut self,
        state: XenbusState,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlatformError> {
        if matches!(state, XenbusState::Closing | XenbusState::Closed) {
            // Whoever connects later is offered anew.
            self.debts.offer = false;
        }
        if self.debts.folder_went || (self.stored == Some(state) && !self.debts.state) {
            return self.tell_offer(around);
        }
        self.debts.state = true;
        self.tell_offer(around)?;
        let path = format!("{}/{}", self.path, keys::STATE);
        let before = self.stored;
        done_where_gone(transaction(around.store, |store| {
            let found = store.read_text(&path)?;
            match found.map(|text| XenbusState::from_store(text.as_bytes()).unwrap_or_default()) {
                // A folder that the toolstack removed must not come back to life, nor is
                // another vif's to be written.
                None => Ok(()),
                Some(found) if is_anothers(found, before) => Ok(()),
                Some(_) => store.write(&path, state.as_str().as_bytes()),
            }
        }))?;
        (self.stored, self.debts.state) = (Some(state), false);
        if let Some(held) = self.voice.speak(self.shared.now()) {
            info!("{}: {state}{held}", self.id);
        }
        Ok(())
    }

    /// Writes what is offered, where that is due.
    pub(super) fn tell_offer(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlatformError> {
        if self.debts.offer && !self.debts.folder_went {
            let most = around.policy.most;
            done_where_gone(advertise(around.store, &self.path, self.queues, most))?;
        }
        self.debts.offer = false;
        Ok(())
    }

    fn clear_hotplug(&mut self, around: &mut Surroundings<'_>) -> Result<(), PlatformError> {
        let path = format!("{}/{}", self.path, keys::HOTPLUG_STATUS);
        if !self.debts.folder_went && around.store.read_text(&path)?.is_some() {
            // The toolstack may be removing the folder at this moment.
            done_where_gone(around.store.remove(&path))?;
        }
        self.debts.script = false;
        Ok(())
    }

    /// Watches its frontend. One that a vif of the same name could not end does as well.
    pub(super) fn watch(&mut self, around: &mut Surroundings<'_>) -> Result<(), PlatformError> {
        for key in WATCHED {
            let watched = around.store.watch(&format!("{}/{key}", self.frontend), &token(self.id));
            is_fine(watched, StoreErrno::Eexist)?;
        }
        Ok(())
    }

    pub(super) fn unwatch(&mut self, around: &mut Surroundings<'_>) -> Result<(), PlatformError> {
        for key in WATCHED {
            let path = format!("{}/{key}", self.frontend);
            is_fine(around.store.unwatch(&path, &token(self.id)), StoreErrno::Enoent)?;
        }
        self.debts.watches = false;
        Ok(())
    }

    /// Whether this is the state of another vif of the same name.
    pub(super) fn is_anothers(&self, found: XenbusState) -> bool {
        is_anothers(found, self.stored)
    }
}

/// Nobody but a toolstack writes Initialising, when it makes the folder: where we had read or
/// written something else, ours was removed.
fn is_anothers(found: XenbusState, stored: Option<XenbusState>) -> bool {
    found == XenbusState::Initialising && stored != Some(found)
}

/// Where nodes are not there, or not ours any more, nothing is left to be done.
fn done_where_gone(done: Result<(), PlatformError>) -> Result<(), PlatformError> {
    match done {
        Err(PlatformError::Store { errno, .. }) if is_of_nodes(errno) => Ok(()),
        other => other,
    }
}

fn is_fine(done: Result<(), PlatformError>, fine: StoreErrno) -> Result<(), PlatformError> {
    match done {
        Err(PlatformError::Store { errno, .. }) if errno == fine => Ok(()),
        other => other,
    }
}
