//! Operations of a toolstack in the store, from domain 0.

use super::eventually;
use grantway_backend::VifId;
use grantway_embedded::Domain;
use grantway_hypervisor::{
    DomId, Error, Permission, Platform, Rights, Store, StoreErrno, transaction,
};
use grantway_netif::XenbusState;
use std::sync::Arc;

pub struct Toolstack {
    pub store: Box<dyn Store>,
    pub backend: DomId,
}

pub fn frontend_path(vif: VifId) -> String {
    format!("/local/domain/{}/device/vif/{}", vif.domain, vif.devid)
}

pub fn backend_path(backend: DomId, vif: VifId) -> String {
    format!("/local/domain/{backend}/backend/vif/{}/{}", vif.domain, vif.devid)
}

impl Toolstack {
    pub fn new(tools: &Arc<Domain>, backend: DomId) -> Self {
        Self { store: tools.store().unwrap(), backend }
    }

    pub fn front(&self, vif: VifId) -> String {
        frontend_path(vif)
    }

    pub fn back(&self, vif: VifId) -> String {
        backend_path(self.backend, vif)
    }

    /// Makes both folders in one transaction, as libxl does.
    pub fn attach(&mut self, vif: VifId, more: &[(&str, &str)]) {
        self.attach_and(vif, more, |_| Ok(()));
    }

    /// And something else in the same transaction.
    pub fn attach_and(
        &mut self,
        vif: VifId,
        more: &[(&str, &str)],
        mut also: impl FnMut(&mut dyn Store) -> Result<(), Error>,
    ) {
        let (front, back) = (self.front(vif), self.back(vif));
        let guest = [owned_by(vif.domain), readable_by(self.backend)];
        let server = [owned_by(self.backend), readable_by(vif.domain)];
        let mut of_back = vec![
            ("frontend", front.clone()),
            ("frontend-id", vif.domain.to_string()),
            ("online", "1".into()),
            ("state", "1".into()),
            ("handle", vif.devid.to_string()),
            ("mac", "00:16:3e:00:00:01".into()),
        ];
        of_back.extend(more.iter().map(|&(key, value)| (key, value.to_owned())));
        let of_front = vec![
            ("backend", back.clone()),
            ("backend-id", self.backend.to_string()),
            ("state", "1".into()),
            ("handle", vif.devid.to_string()),
            ("mac", "00:16:3e:00:00:01".into()),
        ];
        transaction(self.store.as_mut(), |tx| {
            for (path, permissions, nodes) in
                [(&back, &server, &of_back), (&front, &guest, &of_front)]
            {
                gone_is_fine(tx.remove(path))?;
                tx.write(path, b"")?;
                tx.set_permissions(path, permissions)?;
                for (key, value) in nodes {
                    tx.write(&format!("{path}/{key}"), value.as_bytes())?;
                }
            }
            also(tx)
        })
        .unwrap();
    }

    /// Asks the backend to close the vif, if the vif's folder is still there.
    pub fn ask_to_close(&mut self, vif: VifId) {
        let back = self.back(vif);
        transaction(self.store.as_mut(), |tx| {
            if tx.read_text(&format!("{back}/state"))?.is_none() {
                return Ok(());
            }
            tx.write(&format!("{back}/online"), b"0")?;
            tx.write(&format!("{back}/state"), b"5")
        })
        .unwrap();
    }

    /// Waits until the backend says Closed, for as long as libxl would not.
    pub fn await_closed(&mut self, vif: VifId) {
        eventually("the backend's Closed", || {
            matches!(self.backend_state(vif), None | Some(XenbusState::Closed)).then_some(())
        });
    }

    pub fn remove(&mut self, path: &str) {
        gone_is_fine(self.store.remove(path)).unwrap();
    }

    pub fn remove_backend(&mut self, vif: VifId) {
        self.remove(&self.back(vif));
    }

    pub fn remove_frontend(&mut self, vif: VifId) {
        self.remove(&self.front(vif));
    }

    /// Removes both folders in one transaction.
    pub fn remove_both(&mut self, vif: VifId) {
        let (front, back) = (self.front(vif), self.back(vif));
        transaction(self.store.as_mut(), |tx| {
            gone_is_fine(tx.remove(&front))?;
            gone_is_fine(tx.remove(&back))
        })
        .unwrap();
    }

    pub fn read(&mut self, path: &str) -> Option<String> {
        self.store.read_text(path).unwrap()
    }

    pub fn backend_key(&mut self, vif: VifId, key: &str) -> Option<String> {
        let path = format!("{}/{key}", self.back(vif));
        self.read(&path)
    }

    pub fn backend_state(&mut self, vif: VifId) -> Option<XenbusState> {
        let text = self.backend_key(vif, "state")?;
        Some(XenbusState::from_store(text.as_bytes()).unwrap_or_default())
    }
}

fn gone_is_fine(done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(Error::Store { errno: StoreErrno::Enoent, .. }) => Ok(()),
        other => other,
    }
}

pub fn owned_by(domain: DomId) -> Permission {
    Permission { domain, rights: Rights::None }
}

pub fn readable_by(domain: DomId) -> Permission {
    Permission { domain, rights: Rights::Read }
}
