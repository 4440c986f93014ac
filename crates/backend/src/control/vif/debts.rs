//! The debts of a vif to the store: nodes and watches that could not be written, or a node that
//! could not be read, because the store had trouble of its own. Every look at the vif tries them
//! again. The machine never waits for them. Only the last of its states counts, as a frontend that
//! looks late sees no other either.

use super::pending::Debts;
use super::{Vif, WATCHED, token};
use crate::control::negotiate::{Offer, advertise};
use crate::control::surroundings::Surroundings;
use crate::error::is_of_nodes;
use crate::state::shared::PlugEvent;
use grantway_hypervisor::{Error as PlatformError, StoreErrno, transaction};
use grantway_netif::{XenbusState, keys};
use tracing::info;

impl Vif {
    /// Returns true if the store lacks anything of the vif.
    pub(super) fn owes(&self) -> bool {
        let Debts { state, offer, script, watches, folder_went, headroom: _ } = self.debts;
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
        let moved = self.settle_headroom(around);
        let cleared = if self.debts.script { self.clear_hotplug(around) } else { Ok(()) };
        let ended = if self.debts.watches { self.unwatch(around) } else { Ok(()) };
        told.and(moved).and(cleared).and(ended)
    }

    /// Writes a state, after the features that are offered.
    pub(super) fn tell(
        &mut self,
        state: XenbusState,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlatformError> {
        if matches!(state, XenbusState::Closing | XenbusState::Closed) {
            // A frontend that connects later gets a new offer.
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
                // A folder that the toolstack removed must not come back to life, and another vif's
                // folder must not be written.
                None => Ok(()),
                Some(found) if is_anothers(found, before) => Ok(()),
                Some(_) => store.write(&path, state.as_str().as_bytes()),
            }
        }))?;
        (self.stored, self.debts.state) = (Some(state), false);
        let id = self.id;
        self.link.say(|held| info!("{id}: {state}{held}"));
        Ok(())
    }

    /// Writes the features that are offered, if that is due.
    pub(super) fn tell_offer(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlatformError> {
        if self.debts.offer && !self.debts.folder_went {
            self.look_at_checksums(around)?;
            let offer = Offer {
                queues: self.queues,
                policy: around.engine.settings.policy.most,
                checksums: self.checksums,
            };
            done_where_gone(advertise(around.store, &self.path, offer))?;
        }
        self.debts.offer = false;
        Ok(())
    }

    /// Raises the event of a vif whose script had run and whose interface is gone, and then removes
    /// the script's node. A toolstack may wait for the event before it removes the folder.
    pub(super) fn clear_hotplug(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlatformError> {
        let path = format!("{}/{}", self.path, keys::HOTPLUG_STATUS);
        if !self.debts.folder_went && around.store.read_text(&path)?.is_some() {
            (around.engine.settings.on_plug)(self.id, PlugEvent::Remove);
            // The toolstack may be removing the folder at this moment.
            done_where_gone(around.store.remove(&path))?;
        }
        self.debts.script = false;
        Ok(())
    }

    /// Watches the vif's frontend. A watch that an earlier vif of the same name could not end does
    /// as well.
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

    /// Returns true if this is the state of another vif of the same name.
    pub(super) fn is_anothers(&self, found: XenbusState) -> bool {
        is_anothers(found, self.stored)
    }
}

/// Returns true if `found` is the state of another vif. Only a toolstack writes Initialising, when
/// it makes the folder. If we had read or written another state, our folder was removed.
fn is_anothers(found: XenbusState, stored: Option<XenbusState>) -> bool {
    found == XenbusState::Initialising && stored != Some(found)
}

/// Returns `Ok` also if the nodes are missing, or are not ours any more: nothing is left to do
/// then.
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
