//! Facts about the vifs in the store that belong to this domain's backend.

use crate::doctor::bound::within;
use crate::doctor::finding::shown;
use crate::doctor::roots::StoreAt;
use grantway_hypervisor::{Error, StoreErrno, StoreOps};
use grantway_netif::{XenbusState, keys};
use grantway_xenstore::Client;
use std::time::Duration;

/// Most queues of a guest that count. A larger number in the store is not believed.
const QUEUES_MAX: u64 = 256;

/// Nodes of a vif, of both ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VifNodes {
    /// The guest's domain.
    pub domain: u16,
    /// Number of the vif in that domain.
    pub devid: u32,
    /// Absolute path of the backend's folder.
    pub path: String,
    /// The backend's state.
    pub backend: Option<XenbusState>,
    /// The frontend's state, or `None` if its folder is gone or cannot be read.
    pub frontend: Option<XenbusState>,
    /// True if the toolstack wants the vif to exist.
    pub online: bool,
    /// State that the hotplug script wrote: `connected`, or `error`.
    pub hotplug_status: Option<String>,
    /// Reason why the hotplug script failed.
    pub hotplug_error: Option<String>,
    /// Reason why the backend gave up.
    pub error: Option<String>,
    /// Largest IP packet in bytes.
    pub mtu: Option<u64>,
    /// Name of the interface, if the toolstack asks for one.
    pub vifname: Option<String>,
    /// Bridge for the interface.
    pub bridge: Option<String>,
    /// Hotplug script of the vif.
    pub script: Option<String>,
    /// Number of queues that the guest wrote, 1 to 256.
    pub queues: u64,
    /// True if the backend offers staging.
    pub offers_staging: bool,
    /// True if the frontend has a control ring.
    pub control_ring: bool,
    /// True if the frontend wrote that it uses its pages again and again.
    pub persistent: bool,
}

impl VifNodes {
    /// Returns the vif's name, which its interface also has if no other name was asked for.
    pub fn default_name(&self) -> String {
        format!("vif{}.{}", self.domain, self.devid)
    }

    /// Returns a vif without facts except its place.
    #[cfg(test)]
    pub fn of(domain: u16, devid: u32) -> Self {
        let path = format!("/local/domain/0/backend/vif/{domain}/{devid}");
        Self { domain, devid, path, online: true, queues: 1, ..Self::default() }
    }
}

/// A vif that this domain has itself, as this domain sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnVif {
    /// Number of the vif.
    pub devid: u32,
    /// The frontend's state.
    pub frontend: Option<XenbusState>,
    /// The backend's state.
    pub backend: Option<XenbusState>,
    /// True if the backend offers a control ring.
    pub control_ring: bool,
    /// True if the backend wrote that it offers no staging.
    pub refuses_staging: bool,
}

/// Result of reading the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreFact {
    /// Neither the socket nor the device exists.
    Missing,
    /// The store does not answer in time.
    Silent,
    /// The store cannot be used, for this reason.
    Refused(String),
    /// The store was read.
    Read {
        /// True if xenstored's own socket was used, which is in domain 0.
        socket: bool,
        /// True if this domain has the folders of a driver domain.
        serves: bool,
        /// The vifs of this domain's backend.
        vifs: Vec<VifNodes>,
        /// The vifs that this domain has itself.
        own: Vec<OwnVif>,
    },
}

impl StoreFact {
    /// Reads the first store that answers, and waits up to `patience` for each.
    pub fn gather(stores: &[StoreAt], patience: Duration) -> Self {
        let mut found = Self::Missing;
        for store in stores {
            let place = store.clone();
            found = within(patience, move || ask(&place)).unwrap_or(Self::Silent);
            if found.is_read() {
                break;
            }
        }
        found
    }

    /// Returns true if the store was read.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// Returns the vifs that this domain has itself.
    pub fn own_vifs(&self) -> &[OwnVif] {
        match self {
            Self::Read { own, .. } => own,
            _ => &[],
        }
    }

    /// Returns the vifs of this domain's backend.
    pub fn vifs(&self) -> &[VifNodes] {
        match self {
            Self::Read { vifs, .. } => vifs,
            _ => &[],
        }
    }
}

fn ask(place: &StoreAt) -> StoreFact {
    let read = match place {
        StoreAt::Socket(path) => Client::connect(path).and_then(|mut store| look(&mut store, true)),
        StoreAt::Device(path) => match std::fs::File::options().read(true).write(true).open(path) {
            Ok(file) => look(&mut Client::over(file), false),
            Err(e) => return StoreFact::Refused(format!("{}: {e}", path.display())),
        },
    };
    read.unwrap_or_else(|e| {
        // The error's own remedy is for commands that need the store; the finding has another.
        StoreFact::Refused(shown(&match e {
            Error::Os { call, reason, .. } => format!("{call}: {reason}"),
            other => other.to_string(),
        }))
    })
}

/// Reads the facts. Paths are relative to this domain's own folder.
fn look(store: &mut dyn StoreOps, socket: bool) -> Result<StoreFact, Error> {
    let mut vifs = Vec::new();
    // The number makes paths absolute. A client of the socket is domain 0.
    let own = match socket {
        true => "0".to_owned(),
        false => text(store, "domid")?.unwrap_or_else(|| "N".into()),
    };
    for domain in numbers::<u16>(store, "backend/vif")? {
        for devid in numbers::<u32>(store, &format!("backend/vif/{domain}"))? {
            vifs.extend(vif(store, &own, domain, devid)?);
        }
    }
    vifs.sort_by_key(|vif| (vif.domain, vif.devid));
    let mut own = Vec::new();
    for devid in numbers::<u32>(store, "device/vif")? {
        own.push(own_vif(store, devid)?);
    }
    own.sort_by_key(|vif| vif.devid);
    Ok(StoreFact::Read { socket, serves: serves(store)?, vifs, own })
}

/// Reads one vif. Returns `None` for a vif that was removed meanwhile.
fn vif(
    store: &mut dyn StoreOps,
    own: &str,
    domain: u16,
    devid: u32,
) -> Result<Option<VifNodes>, Error> {
    let back = format!("/local/domain/{own}/backend/vif/{domain}/{devid}");
    let near = format!("backend/vif/{domain}/{devid}");
    let front = format!("/local/domain/{domain}/device/vif/{devid}");
    // A folder without nodes is one that was removed.
    if names(store, &near)?.is_empty() {
        return Ok(None);
    }
    // The backend's folder is our own, so a relative path reads it.
    let mut of = |key: &str| text(store, &format!("{near}/{key}"));
    let mut nodes = VifNodes {
        domain,
        devid,
        path: back,
        backend: of(keys::STATE)?.map(|text| state(&text)),
        frontend: None,
        online: of(keys::ONLINE)?.is_none_or(|text| text != "0"),
        hotplug_status: of(keys::HOTPLUG_STATUS)?,
        hotplug_error: of(keys::HOTPLUG_ERROR)?,
        error: of("error")?,
        mtu: of(keys::MTU)?.and_then(|text| text.parse().ok()),
        vifname: of(keys::VIFNAME)?,
        bridge: of(keys::BRIDGE)?,
        script: of(keys::SCRIPT)?,
        queues: 1,
        offers_staging: of(keys::FEATURE_STAGING)?.is_some_and(|text| text == "1"),
        control_ring: false,
        persistent: false,
    };
    let mut of = |key: &str| text(store, &format!("{front}/{key}"));
    nodes.control_ring = of(keys::CTRL_RING_REF)?.is_some();
    nodes.persistent = of(keys::FEATURE_PERSISTENT)?.is_some_and(|text| text == "1");
    nodes.frontend = of(keys::STATE)?.map(|text| state(&text));
    // If the toolstack was told no MTU, the script tells the guest that of its bridge.
    nodes.mtu = nodes.mtu.or(of(keys::MTU)?.and_then(|text| text.parse().ok()));
    let queues = of(keys::MULTI_QUEUE_NUM_QUEUES)?.and_then(|text| text.parse().ok());
    nodes.queues = queues.unwrap_or(1).clamp(1, QUEUES_MAX);
    Ok(Some(nodes))
}

fn own_vif(store: &mut dyn StoreOps, devid: u32) -> Result<OwnVif, Error> {
    let front = format!("device/vif/{devid}");
    let back = text(store, &format!("{front}/{}", keys::BACKEND))?.unwrap_or_default();
    let mut of = |folder: &str, key: &str| text(store, &format!("{folder}/{key}"));
    let is_set = |text: Option<String>| text.is_some_and(|text| text == "1");
    Ok(OwnVif {
        devid,
        frontend: of(&front, keys::STATE)?.map(|text| state(&text)),
        backend: of(&back, keys::STATE)?.map(|text| state(&text)),
        control_ring: is_set(of(&back, keys::FEATURE_CTRL_RING)?),
        refuses_staging: of(&back, keys::FEATURE_STAGING)?.is_some_and(|text| text == "0"),
    })
}

/// Returns a node's value in a form fit for a terminal, or `None` if this domain cannot read it.
fn text(store: &mut dyn StoreOps, path: &str) -> Result<Option<String>, Error> {
    match store.read_text(path) {
        Ok(value) => Ok(value.map(|v| shown(v.trim_end_matches('\0'))).filter(|v| !v.is_empty())),
        // A driver domain may read only those nodes of others that concern it.
        Err(Error::Store { errno: StoreErrno::Eacces, .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

fn state(text: &str) -> XenbusState {
    XenbusState::from_store(text.as_bytes()).unwrap_or_default()
}

/// Returns true if this domain has the folders that a toolstack makes for a driver domain, or for a
/// backend in it.
fn serves(store: &mut dyn StoreOps) -> Result<bool, Error> {
    for name in ["backend", "libxl"] {
        match store.list(name) {
            Ok(_) => return Ok(true),
            Err(Error::Store { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

fn names(store: &mut dyn StoreOps, path: &str) -> Result<Vec<String>, Error> {
    match store.list(path) {
        Err(Error::Store { errno: StoreErrno::Enoent | StoreErrno::Eacces, .. }) => Ok(Vec::new()),
        other => other,
    }
}

fn numbers<T: std::str::FromStr>(store: &mut dyn StoreOps, path: &str) -> Result<Vec<T>, Error> {
    Ok(names(store, path)?.iter().filter_map(|name| name.parse().ok()).collect())
}

#[cfg(test)]
#[path = "vifs_tests.rs"]
mod tests;
