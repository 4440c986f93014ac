//! How a vif is found when it is taken up: by the store, and by what a killed process left.

use crate::VifError;
use crate::control::negotiate::FrontendKeys;
use crate::control::succession::{Half, Left};
use crate::control::surroundings::Surroundings;
use crate::ids::{MAX_QUEUES, VifId};
use grantway_hypervisor::{Error as PlatformError, Store, StoreErrno};
use grantway_netif::{XenbusState, keys};

/// A vif as it is found.
pub(super) struct Found {
    /// The frontend's folder.
    pub frontend: String,
    pub own: Option<XenbusState>,
    pub peer: Option<XenbusState>,
    pub online: bool,
    /// What a killed process left.
    pub left: Option<Left>,
    /// What the frontend published, if a killed process left anything.
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
        let left = around.journals.left_off(id)?;
        let published = match left {
            Some(_) => published(around.store, &frontend)?,
            None => None,
        };
        Ok(Self { frontend, own, peer, online, left, published })
    }

    /// Whether the killed process had not come to say Connected.
    pub fn half(&self) -> Half {
        Half(self.own == Some(XenbusState::InitWait))
    }

    /// Whether the killed process left the connection that the frontend shows.
    pub fn is_taken_over(&self) -> bool {
        let both = self.left.as_ref().zip(self.published.as_ref());
        both.is_some_and(|(left, keys)| left.is_of(keys, self.half()))
    }
}

/// What a guest published, where a process left something of it; none where its nodes are bad.
fn published(store: &mut dyn Store, frontend: &str) -> Result<Option<FrontendKeys>, VifError> {
    match FrontendKeys::read(store, frontend, MAX_QUEUES) {
        Ok(keys) => Ok(Some(keys)),
        Err(e @ VifError::Platform(PlatformError::Gone { .. })) => Err(e),
        Err(e) if e.passing(false).is_some() => Err(e),
        Err(_) => Ok(None),
    }
}

/// The state below a folder. One that may not be read counts as missing: a
/// guest may hide its own, and in a driver domain the right to look goes with
/// the folder.
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
