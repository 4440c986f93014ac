//! The vifs that the store has for this domain's backend.

use crate::doctor::bound::within;
use crate::doctor::finding::shown;
use crate::doctor::roots::StoreAt;
use grantway_hypervisor::{Error, StoreErrno, StoreOps};
use grantway_netif::{XenbusState, keys};
use grantway_xenstore::Client;
use std::time::Duration;

/// Most queues that a guest's word is believed for.
const QUEUES_MAX: u64 = 256;

/// A vif's nodes, both ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VifNodes {
    /// The guest's domain.
    pub domain: u16,
    /// The vif's number in it.
    pub devid: u32,
    /// The backend's folder.
    pub path: String,
    /// The backend's state.
    pub backend: Option<XenbusState>,
    /// The frontend's state; `None` when its folder is gone.
    pub frontend: Option<XenbusState>,
    /// Whether the toolstack wants it there.
    pub online: bool,
    /// What the hotplug script said: `connected`.
    pub hotplug_status: Option<String>,
    /// Why the hotplug script failed.
    pub hotplug_error: Option<String>,
    /// Why the backend gave up.
    pub error: Option<String>,
    /// Largest IP packet in bytes.
    pub mtu: Option<u64>,
    /// The interface's name, where one was asked for.
    pub vifname: Option<String>,
    /// The bridge that it is to be in.
    pub bridge: Option<String>,
    /// Its hotplug script.
    pub script: Option<String>,
    /// Queues that the guest says it has, 1 to 256.
    pub queues: u64,
    /// Whether the backend offers to keep pages mapped that the frontend lists.
    pub offers_staging: bool,
    /// Whether the frontend has a control ring.
    pub control_ring: bool,
    /// Whether the frontend says that it uses its pages again and again.
    pub persistent: bool,
}

impl VifNodes {
    /// Its name, and its interface's where no other was asked for.
    pub fn default_name(&self) -> String {
        format!("vif{}.{}", self.domain, self.devid)
    }

    /// A vif with nothing but its place.
    #[cfg(test)]
    pub fn of(domain: u16, devid: u32) -> Self {
        let path = format!("/local/domain/0/backend/vif/{domain}/{devid}");
        Self { domain, devid, path, online: true, queues: 1, ..Self::default() }
    }
}

/// A vif that this domain has itself, as it sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnVif {
    /// Its number.
    pub devid: u32,
    /// The frontend's state.
    pub frontend: Option<XenbusState>,
    /// The backend's.
    pub backend: Option<XenbusState>,
    /// Whether the backend offers a control ring.
    pub control_ring: bool,
    /// Whether the backend says that it stages nothing.
    pub refuses_staging: bool,
}

/// What the store says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreFact {
    /// There is neither socket nor device.
    Missing,
    /// It does not answer in time.
    Silent,
    /// It cannot be spoken to: why, and what to do.
    Refused(String),
    /// It was read.
    Read {
        /// By xenstored's own socket, which is domain 0's.
        socket: bool,
        /// This domain has folders that a driver domain has.
        serves: bool,
        /// The vifs of this domain's backend.
        vifs: Vec<VifNodes>,
        /// The vifs that this domain has itself.
        own: Vec<OwnVif>,
    },
}

impl StoreFact {
    /// Asks the first store that answers, each for so long.
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

    /// Whether it was read.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// The vifs that this domain has itself.
    pub fn own_vifs(&self) -> &[OwnVif] {
        match self {
            Self::Read { own, .. } => own,
            _ => &[],
        }
    }

    /// The vifs of this domain's backend.
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
        // Its own remedy is for commands that need the store; ours is shown.
        StoreFact::Refused(shown(&match e {
            Error::Os { call, reason, .. } => format!("{call}: {reason}"),
            other => other.to_string(),
        }))
    })
}

/// Reads what matters. Paths are relative to this domain's own folder.
fn look(store: &mut dyn StoreOps, socket: bool) -> Result<StoreFact, Error> {
    let mut vifs = Vec::new();
    // The number says where we are; a socket's client is domain 0.
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

/// `None` for a vif that went while we looked.
fn vif(
    store: &mut dyn StoreOps,
    own: &str,
    domain: u16,
    devid: u32,
) -> Result<Option<VifNodes>, Error> {
    let back = format!("/local/domain/{own}/backend/vif/{domain}/{devid}");
    let near = format!("backend/vif/{domain}/{devid}");
    let front = format!("/local/domain/{domain}/device/vif/{devid}");
    if names(store, &near)?.is_empty() {
        return Ok(None);
    }
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
    // Where the toolstack was told no MTU, the script tells the guest its bridge's.
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

/// A node's value, made harmless; `None` where there is none to be seen.
fn text(store: &mut dyn StoreOps, path: &str) -> Result<Option<String>, Error> {
    match store.read_text(path) {
        Ok(value) => Ok(value.map(|v| shown(v.trim_end_matches('\0'))).filter(|v| !v.is_empty())),
        // A driver domain sees of others only what is its own affair.
        Err(Error::Store { errno: StoreErrno::Eacces, .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

fn state(text: &str) -> XenbusState {
    XenbusState::from_store(text.as_bytes()).unwrap_or_default()
}

/// Whether our own folder has what a toolstack makes for a driver domain, or
/// for a backend of it.
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
