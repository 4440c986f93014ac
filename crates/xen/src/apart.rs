//! A separate gntdev for each peer whose pages are kept apart.
//!
//! Linux keeps all pages that were mapped by one open gntdev in one list. Each map and unmap walks
//! this list under one lock. With one gntdev for all, a guest that has many lists mapped, or maps
//! them again and again, would make all others wait. Copies need neither list nor lock.

use crate::device::Device;
use crate::sys::Gntdev;
use grantway_hypervisor::{DomId, Error};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The open devices, by peer. Each stays open while a caller, or a mapping, keeps it.
#[derive(Debug)]
pub struct ByPeer<T = Gntdev>(Mutex<HashMap<DomId, Weak<T>>>);

impl<T> Default for ByPeer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ByPeer<T> {
    /// Returns the peer's device, and opens it if it is not open. Several vifs of a guest share
    /// one.
    ///
    /// # Errors
    ///
    /// The device cannot be opened; the peer then uses the shared one.
    pub fn open(&self, peer: DomId, device: &Device<T>) -> Result<Arc<T>, Error> {
        let mut all = self.lock();
        if let Some(open) = all.get(&peer).and_then(Weak::upgrade) {
            return Ok(open);
        }
        all.retain(|_, device| device.strong_count() > 0);
        let fresh = Arc::new(device.fresh()?);
        all.insert(peer, Arc::downgrade(&fresh));
        Ok(fresh)
    }

    /// Returns the peer's device if it is open, or else the shared one.
    ///
    /// # Errors
    ///
    /// The shared device cannot be opened.
    pub fn get(&self, peer: DomId, device: &Device<T>) -> Result<Arc<T>, Error> {
        match self.lock().get(&peer).and_then(Weak::upgrade) {
            Some(open) => Ok(open),
            None => device.get().map(Arc::clone),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DomId, Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_a_device_of_its_own_for_as_long_as_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gntdev");
        let device = Device::new(path.clone(), "modprobe xen-gntdev", Gntdev::open);
        let peers = ByPeer::default();
        let [one, other] = [7, 9].map(DomId);
        assert!(peers.open(one, &device).is_err());
        std::fs::write(&path, "").unwrap();
        let all = Arc::clone(device.get().unwrap());
        assert!(Arc::ptr_eq(&peers.get(one, &device).unwrap(), &all), "nobody asked");
        let first = peers.open(one, &device).unwrap();
        let second = peers.open(one, &device).unwrap();
        let others = peers.open(other, &device).unwrap();
        assert!(Arc::ptr_eq(&first, &second), "two vifs of one guest");
        assert!(!Arc::ptr_eq(&first, &others) && !Arc::ptr_eq(&first, &all));
        // If no device can be opened any more, the open ones stay.
        std::fs::remove_file(&path).unwrap();
        let mapped = peers.get(one, &device).unwrap();
        assert!(Arc::ptr_eq(&mapped, &first));
        drop((first, second));
        assert!(Arc::ptr_eq(&peers.get(one, &device).unwrap(), &mapped), "something is mapped");
        drop(mapped);
        assert!(Arc::ptr_eq(&peers.get(one, &device).unwrap(), &all), "closed");
        assert!(peers.open(one, &device).is_err());
        assert_eq!(peers.lock().len(), 1, "what is closed is forgotten");
    }
}
