//! The vifs that the store lists below our domain, and the vifs that an event of the store is
//! about.

use super::Backend;
use crate::error::is_of_nodes;
use crate::ids::VifId;
use grantway_hypervisor::{DomId, Error as PlatformError, StoreErrno};
use tracing::warn;

/// Token of the watch on all vifs.
pub(super) const VIFS_TOKEN: &str = "vifs";

/// Subject of an event of the store.
pub(super) enum Subject {
    Vif(VifId),
    /// All vifs of this guest.
    Guest(DomId),
    /// All vifs.
    Any,
}

impl Backend {
    /// Returns true if the toolstack has attached this vif to us. The toolstack writes a vif in one
    /// transaction, with the key `frontend-id` in it. A key that we may not read is no more ours
    /// than a missing one. Returns `None` if the store has trouble of its own; the vif is looked at
    /// again later.
    pub(super) fn is_attached(&mut self, id: VifId) -> Result<Option<bool>, PlatformError> {
        match self.store.read_text(&format!("{}/frontend-id", self.path(id))) {
            Err(PlatformError::Store { errno, .. }) if is_of_nodes(errno) => Ok(Some(false)),
            Err(error @ PlatformError::Store { .. }) => {
                self.look_later(id, &error.into());
                Ok(None)
            }
            other => Ok(Some(other?.is_some())),
        }
    }

    /// Returns the subject of an event.
    pub(super) fn subject(&self, path: &str, token: &str) -> Subject {
        let rest = match token {
            VIFS_TOKEN => path.strip_prefix(&self.base).and_then(|rest| rest.strip_prefix('/')),
            _ => token.strip_prefix("frontend/"),
        };
        let mut parts = rest.unwrap_or_default().split('/');
        let Some(domain) = parts.next().and_then(|part| part.parse().ok()).map(DomId) else {
            return Subject::Any;
        };
        match parts.next().map(str::parse) {
            None => Subject::Guest(domain),
            Some(Ok(devid)) => Subject::Vif(VifId { domain, devid }),
            Some(Err(_)) => Subject::Any,
        }
    }

    /// Returns the vifs of one guest that we or the store know. A vif may be in the list twice.
    pub(super) fn vifs_of(&mut self, domain: DomId) -> Result<Vec<VifId>, PlatformError> {
        let all = VifId { domain, devid: 0 }..=VifId { domain, devid: u32::MAX };
        let mut found: Vec<VifId> = self.vifs.range(all).map(|(&id, _)| id).collect();
        found.extend(self.refused.of(domain));
        found.extend(self.attached_to(domain)?);
        Ok(found)
    }

    /// Returns every vif that the store lists below us.
    pub(super) fn attached(&mut self) -> Result<Vec<VifId>, PlatformError> {
        let mut found = Vec::new();
        for domain in self.names(&self.base.clone())? {
            let Ok(number) = domain.parse() else { continue };
            found.extend(self.attached_to(DomId(number))?);
        }
        Ok(found)
    }

    /// Returns the vifs of one guest that the store lists below us.
    fn attached_to(&mut self, domain: DomId) -> Result<Vec<VifId>, PlatformError> {
        let devids = self.names(&format!("{}/{domain}", self.base))?;
        let devids = devids.iter().filter_map(|devid| devid.parse().ok());
        Ok(devids.map(|devid| VifId { domain, devid }).collect())
    }

    /// Returns the names in a folder. If the store cannot give them, returns no names, and all vifs
    /// are looked at again later. No vif counts as gone because it is not listed.
    fn names(&mut self, path: &str) -> Result<Vec<String>, PlatformError> {
        match self.store.list(path) {
            Err(PlatformError::Store {
                errno: StoreErrno::Enoent | StoreErrno::Eacces, ..
            }) => Ok(Vec::new()),
            Err(error @ PlatformError::Store { .. }) => {
                if self.refused.list_later() {
                    warn!("{error}; it is asked again");
                }
                Ok(Vec::new())
            }
            other => other,
        }
    }
}
