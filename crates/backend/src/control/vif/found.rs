//! A vif as it is found when it is taken up: by the store, and by the journal of a killed process.

use crate::VifError;
use crate::control::published::FrontendKeys;
use crate::control::succession::{Half, Left};
use crate::control::surroundings::Surroundings;
use crate::ids::{MAX_QUEUES, VifId};
use grantway_hypervisor::{Error as PlatformError, Store, StoreErrno};
use grantway_netif::{XenbusState, keys};

/// A vif as it is found.
pub(super) struct Found {
    /// Folder of the frontend.
    pub frontend: String,
    pub own: Option<XenbusState>,
    pub peer: Option<XenbusState>,
    pub online: bool,
    /// Connection and interface that a killed process left.
    pub left: Option<Left>,
    /// Keys that the frontend published, if a killed process left anything.
    pub published: Option<FrontendKeys>,
}

impl Found {
    pub fn read(id: VifId, path: &str, around: &mut Surroundings<'_>) -> Result<Self, VifError> {
        let key = format!("{path}/{}", keys::FRONTEND);
        let frontend = around.store.read_text(&key)?.ok_or_else(|| VifError::Key {
            path: key,
            found: "nothing".into(),
            expected: "the path of the frontend",
        })?;
        let own = state(around.store, path)?;
        let peer = state(around.store, &frontend)?;
        let online = online(around.store, path)?;
        let left = around.engine.journals.left_off(id)?;
        let published = match left {
            Some(_) => published(around.store, &frontend)?,
            None => None,
        };
        Ok(Self { frontend, own, peer, online, left, published })
    }

    /// Returns true, as a [`Half`], if the killed process had not written Connected yet.
    pub fn half(&self) -> Half {
        Half(self.own == Some(XenbusState::InitWait))
    }

    /// Returns true if the killed process left the connection that the frontend shows.
    pub fn is_taken_over(&self) -> bool {
        let both = self.left.as_ref().zip(self.published.as_ref());
        both.is_some_and(|(left, keys)| left.is_of(keys, self.half()))
    }
}

/// Returns the keys that a guest published; `None` if they are bad. They are read only for a vif of
/// which a killed process left something.
fn published(store: &mut dyn Store, frontend: &str) -> Result<Option<FrontendKeys>, VifError> {
    match FrontendKeys::read(store, frontend, MAX_QUEUES) {
        Ok(keys) => Ok(Some(keys)),
        Err(e @ VifError::Platform(PlatformError::Gone { .. })) => Err(e),
        Err(e) if e.passing(false).is_some() => Err(e),
        Err(_) => Ok(None),
    }
}

/// Returns the state below a folder. A state that may not be read counts as missing: a guest may
/// hide its own, and in a driver domain the right to look goes with the folder.
pub(super) fn state(
    store: &mut dyn Store,
    path: &str,
) -> Result<Option<XenbusState>, PlatformError> {
    let text = match store.read_text(&format!("{path}/{}", keys::STATE)) {
        Err(PlatformError::Store { errno: StoreErrno::Eacces, .. }) => None,
        other => other?,
    };
    Ok(text.map(|text| XenbusState::from_store(text.as_bytes()).unwrap_or_default()))
}

pub(super) fn online(store: &mut dyn Store, path: &str) -> Result<bool, PlatformError> {
    let text = store.read_text(&format!("{path}/{}", keys::ONLINE))?;
    Ok(text.is_some_and(|text| text.trim() == "1"))
}
