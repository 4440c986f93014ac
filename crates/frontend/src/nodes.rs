//! Nodes of a vif in the store: its two folders, and the watches on them.

use crate::VifError;
use crate::negotiate::{number, peek, shown};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use grantway_hypervisor::{DomId, Error, FrontendPlatform, FrontendStore, transaction};
use grantway_netif::XenbusState;
use grantway_netif::keys;

const BACKEND_TOKEN: &str = "backend";
const OWN_TOKEN: &str = "own";
const CARRIER_TOKEN: &str = "carrier";
const DOMAIN_TOKEN: &str = "domid";

/// The domain's own number, in its own folder.
const DOMAIN: &str = "domid";

/// A change in the store.
pub(crate) enum Change {
    /// The backend's state; `None` if it is missing.
    Peer(Option<XenbusState>),
    /// Our own state.
    Own(Option<XenbusState>),
    /// The device has another backend than the one that was found.
    Replaced,
    /// The backend's link: true if it is up.
    Carrier(bool),
    /// The domain was saved and restored: earlier values are void.
    Restored,
}

/// The nodes of one vif, over a connection of its own.
pub(crate) struct Nodes {
    pub store: Box<dyn FrontendStore>,
    devid: u32,
    /// The guest's folder.
    pub path: String,
    /// The backend's folder.
    pub backend_path: String,
    /// The backend's domain.
    pub backend: DomId,
    /// True if the backend is to be trusted, as the toolstack says.
    pub trusted: bool,
    /// The domain's number when the vif was found.
    domain: DomId,
    /// True once the watch of the domain's number has fired. Each watch fires when it is set.
    settled: bool,
    /// Our own state, as it was last read or written. The store has this state as long as the
    /// device is the one that was found.
    shown: Option<XenbusState>,
    /// True if a write found another device.
    replaced: bool,
}

impl Nodes {
    /// Finds vif `devid` and watches it.
    ///
    /// # Errors
    ///
    /// [`VifError::NoVif`], [`VifError::Key`], [`VifError::Platform`].
    pub fn open(platform: &dyn FrontendPlatform, devid: u32) -> Result<Self, VifError> {
        let mut store = platform.frontend_store()?;
        let path = format!("/local/domain/{}/device/vif/{devid}", platform.domain());
        let (backend_path, backend, trusted) =
            attached(store.as_mut(), &path, devid, |store, backend_path| {
                let backend = backend_domain(store, &path)?;
                Ok((backend_path.to_string(), backend, trusted(store, &path)?))
            })?;
        store.watch(&format!("{backend_path}/{}", keys::STATE), BACKEND_TOKEN)?;
        store.watch(&format!("{path}/{}", keys::STATE), OWN_TOKEN)?;
        store.watch(&format!("{backend_path}/{}", keys::CARRIER), CARRIER_TOKEN)?;
        // The domain's number is watched last: Linux sets watches again after a restore, beginning
        // with the last, and a watch that is set fires.
        store.watch(DOMAIN, DOMAIN_TOKEN)?;
        Ok(Self {
            store,
            devid,
            path,
            backend_path,
            backend,
            trusted,
            domain: platform.domain(),
            settled: false,
            shown: None,
            replaced: false,
        })
    }

    /// Returns the next change, read from the node itself.
    pub fn next_change(&mut self) -> Result<Option<Change>, Error> {
        if core::mem::take(&mut self.replaced) {
            return Ok(Some(Change::Replaced));
        }
        while let Some(event) = self.store.next_event()? {
            return Ok(Some(match event.token.as_str() {
                BACKEND_TOKEN => self.judged(Self::peer_state, Change::Peer)?,
                OWN_TOKEN => match self.judged(Self::current_state, Change::Own)? {
                    // What a new device shows may be what the earlier one showed.
                    Change::Own(Some(_)) if !self.same_backend()? => Change::Replaced,
                    change => change,
                },
                DOMAIN_TOKEN if core::mem::replace(&mut self.settled, true) => Change::Restored,
                CARRIER_TOKEN => {
                    let carrier = self.backend_node(keys::CARRIER)?;
                    Change::Carrier(carrier.is_none_or(|text| text.trim() != "0"))
                }
                _ => continue,
            }));
        }
        Ok(None)
    }

    /// Reads a state, and returns the change that it means. If the state is missing, or is that of
    /// a new device, the folder may belong to another domain by now.
    fn judged(
        &mut self,
        read: fn(&mut Self) -> Result<Option<XenbusState>, Error>,
        change: fn(Option<XenbusState>) -> Change,
    ) -> Result<Change, Error> {
        let state = read(self)?;
        let lasting = !matches!(state, None | Some(XenbusState::Initialising));
        Ok(if lasting || self.is_ours()? { change(state) } else { Change::Restored })
    }

    /// Returns true if the domain still has the number with which the vif was found, or if the
    /// store does not have the number.
    fn is_ours(&mut self) -> Result<bool, Error> {
        let number = peek(self.store.as_mut(), DOMAIN)?;
        let number: Option<u16> = number.and_then(|text| text.trim().parse().ok());
        Ok(number.is_none_or(|number| number == self.domain.0))
    }

    /// Returns true if the toolstack still names the backend that was found.
    fn same_backend(&mut self) -> Result<bool, Error> {
        let backend = peek(self.store.as_mut(), &format!("{}/{}", self.path, keys::BACKEND))?;
        Ok(backend.as_ref() == Some(&self.backend_path))
    }

    /// Returns our own state, from which everything begins.
    pub fn own_state(&mut self) -> Result<Option<XenbusState>, Error> {
        self.shown = self.current_state()?;
        Ok(self.shown)
    }

    fn current_state(&mut self) -> Result<Option<XenbusState>, Error> {
        state(self.store.as_mut(), &self.path)
    }

    pub fn peer_state(&mut self) -> Result<Option<XenbusState>, Error> {
        state(self.store.as_mut(), &self.backend_path)
    }

    /// Writes a state, if the device is still the one that was found. A folder that the toolstack
    /// removed must not come back, and the state of another device belongs to its own frontend.
    pub fn show(&mut self, state: XenbusState) -> Result<(), Error> {
        if self.shown == Some(state) {
            return Ok(());
        }
        self.write(state, |_, _| Ok(()))
    }

    /// Writes Connected and, in the same transaction, the nodes that `nodes` writes below a path.
    /// Nothing is written if the device is not the one that was found.
    pub fn publish(
        &mut self,
        nodes: impl FnMut(&mut dyn FrontendStore, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.write(XenbusState::Connected, nodes)
    }

    fn write(
        &mut self,
        new: XenbusState,
        mut nodes: impl FnMut(&mut dyn FrontendStore, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self { path, backend_path, shown, .. } = self;
        let (written, there) = transaction(self.store.as_mut(), |store| {
            let backend = store.read_text(&format!("{path}/{}", keys::BACKEND))?;
            let ours = backend.as_ref() == Some(backend_path) && state(store, path)? == *shown;
            if ours {
                nodes(store, path)?;
                store.write(&format!("{path}/{}", keys::STATE), new.as_str().as_bytes())?;
            }
            Ok((ours, backend.is_some()))
        })?;
        match written {
            true => self.shown = Some(new),
            // The watch of our own state tells of a folder that went.
            false => self.replaced |= there,
        }
        Ok(())
    }

    /// Returns a node of the backend's folder, if it may be read.
    pub fn backend_node(&mut self, key: &str) -> Result<Option<String>, Error> {
        peek(self.store.as_mut(), &format!("{}/{key}", self.backend_path))
    }

    /// Returns the Ethernet address that the toolstack gave the vif.
    pub fn mac(&mut self) -> Result<String, VifError> {
        let path = format!("{}/{}", self.path, keys::MAC);
        attached(self.store.as_mut(), &self.path, self.devid, |store, _| {
            store.read_text(&path)?.ok_or_else(|| VifError::Key {
                path: path.clone(),
                found: "nothing".to_string(),
                expected: "six bytes in hexadecimal",
            })
        })
    }

    /// Returns the MTU that the toolstack gave the vif, if any.
    pub fn mtu(&mut self) -> Result<Option<u32>, VifError> {
        let front = self.path.as_str();
        attached(self.store.as_mut(), front, self.devid, |store, back| {
            for base in [front, back] {
                let path = format!("{base}/{}", keys::MTU);
                if peek(store, &path)?.is_some() {
                    return number(store, &path, "an MTU in bytes").map(Some);
                }
            }
            Ok(None)
        })
    }
}

/// Reads in one transaction what the toolstack wrote about a vif. `read` gets the path of the
/// backend's folder. A vif that is detached meanwhile is reported as absent, not as one that lacks
/// a key.
fn attached<T>(
    store: &mut dyn FrontendStore,
    path: &str,
    devid: u32,
    mut read: impl FnMut(&mut dyn FrontendStore, &str) -> Result<T, VifError>,
) -> Result<T, VifError> {
    transaction(store, |store| {
        Ok(match store.read_text(&format!("{path}/{}", keys::BACKEND))? {
            Some(backend_path) => read(store, &backend_path),
            None => Err(VifError::NoVif { path: path.to_string(), devid }),
        })
    })?
}

/// Returns the domain of the vif's backend.
fn backend_domain(store: &mut dyn FrontendStore, path: &str) -> Result<DomId, VifError> {
    let path = format!("{path}/{}", keys::BACKEND_ID);
    let number = number(store, &path, "the backend's domain")?;
    Ok(DomId(u16::try_from(number).map_err(|_| VifError::Key {
        path,
        found: number.to_string(),
        expected: "a domain from 0 to 32751",
    })?))
}

/// Returns true if the toolstack wrote that the backend is trusted, or wrote nothing. A value other
/// than 0 and 1 is an error.
fn trusted(store: &mut dyn FrontendStore, path: &str) -> Result<bool, VifError> {
    let path = format!("{path}/{}", keys::TRUSTED);
    let found = peek(store, &path)?;
    match found.as_deref().map(str::trim) {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(text) => Err(VifError::Key {
            found: shown(text),
            path,
            expected: "0 or 1, for a backend that is trusted or not",
        }),
    }
}

/// Returns the state in a folder. A node without a valid state counts as unknown.
fn state(store: &mut dyn FrontendStore, path: &str) -> Result<Option<XenbusState>, Error> {
    let text = peek(store, &format!("{path}/{}", keys::STATE))?;
    Ok(text.map(|text| XenbusState::from_store(text.as_bytes()).unwrap_or_default()))
}
