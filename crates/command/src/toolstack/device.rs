//! A vif in the store: the nodes that a toolstack writes when it attaches one, and the way to take
//! one away.
//!
//! Each vif has three folders, as libxl has them. The guest owns the frontend's folder, and the
//! backend reads it. The backend's domain owns the backend's folder, and the guest reads it. A
//! record below `/libxl` can be written by neither. Only the record says which vifs there are and
//! where their folders lie. A toolstack that believed the guest's own `backend` node would remove
//! what a guest names (XSA-178).

use super::config::VifConfig;
use super::mac::Mac;
use grantway_hypervisor::{
    DomId, Error, Permission, Rights, Store, StoreErrno, StoreOps, transaction,
};
use grantway_netif::{XenbusState, keys};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fmt;
use std::time::{Duration, Instant};

/// Bytes of the largest IP packet unless the vif has another MTU.
pub const DEFAULT_MTU: u16 = 1500;

/// Name of a vif: a guest's domain and a number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VifId {
    /// The guest's domain.
    pub domain: DomId,
    /// The vif's number in it.
    pub devid: u16,
}

impl VifId {
    /// Returns the path of the guest's folder.
    #[must_use]
    pub fn frontend_path(self) -> String {
        format!("{}/device/vif/{}", home(self.domain), self.devid)
    }

    /// Returns the path of the folder of the backend, which runs in `backend`.
    #[must_use]
    pub fn backend_path(self, backend: DomId) -> String {
        format!("{}/backend/vif/{}/{}", home(backend), self.domain, self.devid)
    }

    /// Returns the path of the toolstack's own record.
    #[must_use]
    pub fn record_path(self) -> String {
        format!("{}/{}", records_of(self.domain), self.devid)
    }
}

/// Writes the name that the vif's network device has if no other was given.
impl fmt::Display for VifId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vif{}.{}", self.domain, self.devid)
    }
}

/// The reason why a vif cannot be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No such domain.
    #[error("domain {domain} does not exist: {remedy}")]
    NoDomain {
        /// The domain.
        domain: DomId,
        /// The way to get the domain.
        remedy: &'static str,
    },
    /// The number is in use.
    #[error("{vif} is already attached; detach it first, or choose another devid (free: {free})")]
    Taken {
        /// The vif.
        vif: VifId,
        /// Lowest number that is free.
        free: u16,
    },
    /// All numbers are in use.
    #[error("domain {domain} has 65536 vifs, the maximum; detach one first")]
    Full {
        /// The domain.
        domain: DomId,
    },
    /// No such vif.
    #[error("{vif} is not attached; `grantway list` shows the attached vifs")]
    NoVif {
        /// The vif.
        vif: VifId,
    },
    /// The record is not one that this toolstack writes.
    #[error("{path}: found {found:?}, expected the path of the backend's directory of {vif}")]
    Record {
        /// The node.
        path: String,
        /// Its value.
        found: String,
        /// The vif.
        vif: VifId,
    },
    /// The backend does not close.
    #[error(
        "{vif}: the backend is in state {found} after {} ms, expected Closed; start the backend if \
         it is not running, or use --force",
        waited.as_millis()
    )]
    StillOpen {
        /// The vif.
        vif: VifId,
        /// The backend's state.
        found: String,
        /// Time that was spent waiting for it.
        waited: Duration,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] Error),
}

/// A vif that was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// The vif.
    pub vif: VifId,
    /// Its address.
    pub mac: Mac,
}

/// Writes a new vif for `domain` into the store, in one transaction.
///
/// `spare` has the last bytes of the address if `config` names none.
///
/// # Errors
///
/// [`DeviceError`]. Nothing was written then.
pub fn attach(
    store: &mut dyn Store,
    domain: DomId,
    config: &VifConfig,
    spare: [u8; 3],
) -> Result<Attached, DeviceError> {
    let mac = config.mac.unwrap_or_else(|| Mac::of_xen(spare));
    let backend = config.backend.unwrap_or(DomId::ZERO);
    transaction(store, |tx| {
        for domain in [domain, backend] {
            // Domain 0 is there even before it has written anything.
            if domain != DomId::ZERO && tx.read_text(&home(domain))?.is_none() {
                let remedy = "`grantway attach --domain` or xl creates it";
                return Ok(Err(DeviceError::NoDomain { domain, remedy }));
            }
        }
        let taken = numbers(tx, &records_of(domain))?;
        let Some(free) = (0..=u16::MAX).find(|n| !taken.contains(n)) else {
            return Ok(Err(DeviceError::Full { domain }));
        };
        let vif = VifId { domain, devid: config.devid.unwrap_or(free) };
        if taken.contains(&vif.devid) {
            return Ok(Err(DeviceError::Taken { vif, free }));
        }
        write(tx, vif, backend, mac, config)?;
        Ok(Ok(Attached { vif, mac }))
    })?
}

fn write(
    tx: &mut dyn Store,
    vif: VifId,
    backend: DomId,
    mac: Mac,
    config: &VifConfig,
) -> Result<(), Error> {
    let (front, back) = (vif.frontend_path(), vif.backend_path(backend));
    let guest = [owned_by(vif.domain), readable_by(backend)];
    let server = [owned_by(backend), readable_by(vif.domain)];
    let toolstack = [owned_by(DomId::ZERO)];
    let mac = mac.to_string();
    let devid = vif.devid.to_string();
    let state = XenbusState::Initialising.as_str();

    // The backend's folder describes the vif, with what its operator gave.
    let mut described = vec![
        (keys::FRONTEND, front.clone()),
        (keys::FRONTEND_ID, vif.domain.to_string()),
        (keys::ONLINE, "1".into()),
        (keys::STATE, state.into()),
        (keys::HANDLE, devid.clone()),
        (keys::MAC, mac.clone()),
        ("type", "vif".into()),
    ];
    let optional = [
        (keys::SCRIPT, config.script.clone()),
        (keys::BRIDGE, config.bridge.clone()),
        (keys::MTU, config.mtu.map(|mtu| mtu.to_string())),
        (keys::RATE, config.rate.map(|rate| rate.to_string())),
        (keys::VIFNAME, config.vifname.clone()),
        (keys::CHECKSUM, config.checksum.map(|checksum| checksum.as_str().to_owned())),
    ];
    described.extend(optional.into_iter().filter_map(|(key, value)| Some((key, value?))));
    folder(tx, &back, &server, &described)?;

    // The guest's folder shows the guest where its backend is.
    let shown = [
        (keys::BACKEND, back.clone()),
        (keys::BACKEND_ID, backend.to_string()),
        (keys::STATE, state.into()),
        (keys::HANDLE, devid),
        (keys::MAC, mac),
        (keys::TRUSTED, u8::from(config.trusted.unwrap_or(true)).to_string()),
    ];
    folder(tx, &front, &guest, &shown)?;
    // The guest may read its MTU, but not change it.
    let mtu = format!("{front}/{}", keys::MTU);
    tx.write(&mtu, config.mtu.unwrap_or(DEFAULT_MTU).to_string().as_bytes())?;
    tx.set_permissions(&mtu, &server)?;

    let record = [(keys::BACKEND, back), (keys::FRONTEND, front)];
    folder(tx, &vif.record_path(), &toolstack, &record)
}

/// Makes a folder anew. A node that is made below it gets its permissions.
fn folder(
    tx: &mut dyn Store,
    path: &str,
    permissions: &[Permission],
    nodes: &[(&str, String)],
) -> Result<(), Error> {
    remove_if_there(tx, path)?;
    tx.write(path, b"")?;
    tx.set_permissions(path, permissions)?;
    for (key, value) in nodes {
        tx.write(&format!("{path}/{key}"), value.as_bytes())?;
    }
    Ok(())
}

/// Asks the backend to let go of a vif, waits until it has, and removes the
/// vif. A vif that no backend has taken up is removed at once.
///
/// # Errors
///
/// [`DeviceError`]. After [`DeviceError::StillOpen`] the vif is still there,
/// and its backend still asked.
pub fn detach(store: &mut dyn Store, vif: VifId, patience: Duration) -> Result<(), DeviceError> {
    let back = backend_of(store, vif)?;
    let state = format!("{back}/{}", keys::STATE);
    let token = "detach";
    store.watch(&state, token)?;
    let closed = ask(store, &back).map_err(DeviceError::from);
    let closed = closed.and_then(|idle| match idle {
        true => Ok(()),
        false => await_closed(store, vif, &state, patience),
    });
    store.unwatch(&state, token)?;
    closed?;
    remove_all(store, vif, &back)
}

/// Removes a vif, even if its backend does not let go of it.
///
/// # Errors
///
/// [`DeviceError::NoDomain`], [`DeviceError::NoVif`], [`DeviceError::Record`], or an error of the
/// store.
pub fn remove(store: &mut dyn Store, vif: VifId) -> Result<(), DeviceError> {
    let back = backend_of(store, vif)?;
    remove_all(store, vif, &back)
}

/// Asks a backend to close. Returns true if no backend holds the vif.
fn ask(store: &mut dyn Store, back: &str) -> Result<bool, Error> {
    transaction(store, |tx| {
        let path = format!("{back}/{}", keys::STATE);
        let idle = match state(tx, &path)? {
            // `attach` wrote Initialising, so no backend has taken the vif up. A backend that does
            // so just now sees its folder go.
            None | Some(XenbusState::Initialising | XenbusState::Closed) => true,
            Some(_) => false,
        };
        if !idle {
            tx.write(&format!("{back}/{}", keys::ONLINE), b"0")?;
            tx.write(&path, XenbusState::Closing.as_str().as_bytes())?;
        }
        Ok(idle)
    })
}

fn await_closed(
    store: &mut dyn Store,
    vif: VifId,
    path: &str,
    patience: Duration,
) -> Result<(), DeviceError> {
    let start = Instant::now();
    loop {
        // Drained before the look, so that a change after the look makes the descriptor readable.
        while store.next_event()?.is_some() {}
        let found = match state(store, path)? {
            None | Some(XenbusState::Closed) => return Ok(()),
            Some(found) => found,
        };
        let waited = start.elapsed();
        let Some(left) = patience.checked_sub(waited).filter(|left| !left.is_zero()) else {
            return Err(DeviceError::StillOpen { vif, found: found.to_string(), waited });
        };
        // An event that came along with the answer makes no descriptor readable.
        if store.next_event()?.is_none() {
            wait(store, left)?;
        }
    }
}

fn wait(store: &dyn Store, left: Duration) -> Result<(), Error> {
    let timeout = Timespec::try_from(left).ok();
    let mut fds = [PollFd::new(&store, PollFlags::IN)];
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(Error::Os {
            call: "poll".into(),
            reason: e.to_string(),
            remedy: "free some memory and try again",
        }),
    }
}

fn remove_all(store: &mut dyn Store, vif: VifId, back: &str) -> Result<(), DeviceError> {
    Ok(transaction(store, |tx| {
        for path in [vif.frontend_path(), back.to_owned(), vif.record_path()] {
            remove_if_there(tx, &path)?;
            sweep(tx, &path)?;
        }
        Ok(())
    })?)
}

/// Removes the folders above `path` that became empty, as libxl does. Keeps a domain's own folder.
fn sweep(tx: &mut dyn Store, path: &str) -> Result<(), Error> {
    const TOPS: [&str; 3] = ["device", "backend", "libxl"];
    let mut path = path;
    while let Some((parent, _)) = path.rsplit_once('/') {
        let name = parent.rsplit('/').next().unwrap_or(parent);
        if name.is_empty() || !children(tx, parent)?.is_empty() {
            break;
        }
        remove_if_there(tx, parent)?;
        // Below /libxl the folders above `device` are swept, too.
        if TOPS.contains(&name) && !parent.starts_with("/libxl/") {
            break;
        }
        path = parent;
    }
    Ok(())
}

/// Returns the backend's folder of a vif, by the toolstack's record.
fn backend_of(store: &mut dyn Store, vif: VifId) -> Result<String, DeviceError> {
    let path = format!("{}/{}", vif.record_path(), keys::BACKEND);
    let Some(found) = store.read_text(&path)? else {
        return Err(match store.read_text(&home(vif.domain))? {
            Some(_) => DeviceError::NoVif { vif },
            None => DeviceError::NoDomain {
                domain: vif.domain,
                remedy: "`grantway list` shows the domains with a vif",
            },
        });
    };
    match backend_domain(&found, vif) {
        Some(_) => Ok(found),
        None => Err(DeviceError::Record { path, found, vif }),
    }
}

/// Returns the domain in the path of a backend's folder. Returns `None` if the path is not of this
/// vif's backend.
fn backend_domain(path: &str, vif: VifId) -> Option<DomId> {
    let rest = path.strip_prefix("/local/domain/")?;
    let domain = DomId(rest.split('/').next()?.parse().ok()?);
    (vif.backend_path(domain) == path).then_some(domain)
}

/// One attached vif, as the store shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VifRow {
    /// The vif.
    pub vif: VifId,
    /// The domain of its backend.
    pub backend: DomId,
    /// Its address.
    pub mac: Option<String>,
    /// Given name of the backend's network device.
    pub vifname: Option<String>,
    /// The bridge that the device joins.
    pub bridge: Option<String>,
    /// Largest IP packet in bytes.
    pub mtu: Option<String>,
    /// The limit on what the guest transmits, as the store has it.
    pub rate: Option<String>,
    /// The backend's state.
    pub backend_state: Option<XenbusState>,
    /// The frontend's state.
    pub frontend_state: Option<XenbusState>,
}

/// Returns every vif that was attached, by domain and number.
///
/// # Errors
///
/// An error of the store.
pub fn list(store: &mut dyn Store) -> Result<Vec<VifRow>, Error> {
    let mut rows = Vec::new();
    for domain in numbers(store, "/libxl")?.into_iter().map(DomId) {
        for devid in numbers(store, &records_of(domain))? {
            rows.extend(row(store, VifId { domain, devid })?);
        }
    }
    rows.sort_by_key(|row| row.vif);
    Ok(rows)
}

/// Returns the row of a vif. Returns `None` if the vif went meanwhile, or its record is no
/// backend's folder.
fn row(store: &mut dyn Store, vif: VifId) -> Result<Option<VifRow>, Error> {
    let record = format!("{}/{}", vif.record_path(), keys::BACKEND);
    let back = store.read_text(&record)?;
    let Some((backend, back)) = back.and_then(|b| Some((backend_domain(&b, vif)?, b))) else {
        return Ok(None);
    };
    let front = vif.frontend_path();
    let mut of_backend = |key: &str| store.read_text(&format!("{back}/{key}"));
    Ok(Some(VifRow {
        vif,
        backend,
        mac: of_backend(keys::MAC)?,
        vifname: of_backend(keys::VIFNAME)?,
        bridge: of_backend(keys::BRIDGE)?,
        mtu: of_backend(keys::MTU)?,
        rate: of_backend(keys::RATE)?,
        backend_state: state(store, &format!("{back}/{}", keys::STATE))?,
        frontend_state: state(store, &format!("{front}/{}", keys::STATE))?,
    }))
}

/// Returns the state in a node. A node that holds no state counts as Unknown.
fn state(store: &mut (impl StoreOps + ?Sized), path: &str) -> Result<Option<XenbusState>, Error> {
    let text = store.read_text(path)?;
    Ok(text.map(|t| XenbusState::from_store(t.as_bytes()).unwrap_or_default()))
}

fn children(store: &mut dyn Store, path: &str) -> Result<Vec<String>, Error> {
    match store.list(path) {
        Err(Error::Store { errno: StoreErrno::Enoent, .. }) => Ok(Vec::new()),
        other => other,
    }
}

/// Returns the children whose names are numbers.
fn numbers(store: &mut dyn Store, path: &str) -> Result<Vec<u16>, Error> {
    Ok(children(store, path)?.iter().filter_map(|name| name.parse().ok()).collect())
}

fn remove_if_there(store: &mut dyn Store, path: &str) -> Result<(), Error> {
    match store.remove(path) {
        Err(Error::Store { errno: StoreErrno::Enoent, .. }) => Ok(()),
        other => other,
    }
}

fn home(domain: DomId) -> String {
    grantway_xenstore::path::home(domain)
}

fn records_of(domain: DomId) -> String {
    format!("/libxl/{domain}/device/vif")
}

fn owned_by(domain: DomId) -> Permission {
    Permission { domain, rights: Rights::None }
}

fn readable_by(domain: DomId) -> Permission {
    Permission { domain, rights: Rights::Read }
}

#[cfg(test)]
mod tests;
