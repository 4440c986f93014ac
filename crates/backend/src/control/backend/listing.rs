//! Which vifs there are, as the store shows them, and which of them an event of it is about.

use super::Backend;
use crate::error::is_of_nodes;
use crate::ids::VifId;
use grantway_hypervisor::{DomId, Error as PlatformError, StoreErrno};
use tracing::warn;

/// The word of the watch on all vifs.
pub(super) const VIFS_TOKEN: &str = "vifs";

/// What an event of the store is about.
pub(super) enum Subject {
    Vif(VifId),
    /// Any vif of this guest.
    Guest(DomId),
    /// Any of all.
    Any,
}

impl Backend {
    /// Whether the toolstack has such a vif below us. It writes one in one
    /// transaction, with this key in it; what we may not read is no more ours
    /// than what is not there. A store that has trouble of its own says neither: nothing
    /// comes of that but another look.
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

    /// What an event is about.
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

    /// The vifs of one guest, as we or the store have them.
    pub(super) fn vifs_of(&mut self, domain: DomId) -> Result<Vec<VifId>, PlatformError> {
        let all = VifId { domain, devid: 0 }..=VifId { domain, devid: u32::MAX };
        let mut found: Vec<VifId> = self.vifs.range(all).map(|(&id, _)| id).collect();
        found.extend(self.refused.of(domain));
        found.extend(self.attached_to(domain)?);
        Ok(found)
    }

    /// Every vif that the store shows below us.
    pub(super) fn attached(&mut self) -> Result<Vec<VifId>, PlatformError> {
        let mut found = Vec::new();
        for domain in self.names(&self.base.clone())? {
            let Ok(number) = domain.parse() else { continue };
            found.extend(self.attached_to(DomId(number))?);
        }
        Ok(found)
    }

    /// Those of one guest.
    fn attached_to(&mut self, domain: DomId) -> Result<Vec<VifId>, PlatformError> {
        let devids = self.names(&format!("{}/{domain}", self.base))?;
        let devids = devids.iter().filter_map(|devid| devid.parse().ok());
        Ok(devids.map(|devid| VifId { domain, devid }).collect())
    }

    /// What is in a folder. Where the store cannot say, nothing, and all is looked at again
    /// in a moment: no vif is taken for gone by what is not listed.
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
