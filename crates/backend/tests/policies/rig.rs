//! A host, a guest with pages, and a backend's domain that reaches them.

use grantway_backend::policy::Piece;
use grantway_embedded::{Domain, Host, HostGuard, Role};
use grantway_hypervisor::{
    Access, CopyOp, CounterSnapshot, DomId, Error, FrontendPlatform, GrantRef, GrantStatus,
    Granted, Mapper, Platform,
};
use grantway_netif::ctrl::{GrefEntry, GrefFlags};
use grantway_ring::{SharedPage, SharedRun};
use std::sync::{Arc, Mutex};

pub const GUEST: DomId = DomId(9);
pub const OTHER: DomId = DomId(10);

pub struct Rig {
    pub backend: Arc<Domain>,
    pub guest: Arc<Domain>,
    // Last: the host outlives what it hosts.
    _host: HostGuard,
    folder: tempfile::TempDir,
}

impl Rig {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::spawn(folder.path()).unwrap();
        let backend = Domain::connect(folder.path(), DomId(0), Role::Service).unwrap();
        backend.create_domain(GUEST, "guest").unwrap();
        let guest = Domain::connect(folder.path(), GUEST, Role::Guest).unwrap();
        Self { backend, guest, _host: host, folder }
    }

    /// Starts one more guest.
    pub fn other(&self) -> Arc<Domain> {
        self.backend.create_domain(OTHER, "other").unwrap();
        Domain::connect(self.folder.path(), OTHER, Role::Guest).unwrap()
    }

    /// Pages of the guest, the n-th filled with n.
    pub fn pages(&self, count: usize, access: Access) -> Granted {
        filled(&self.guest, count, access)
    }

    pub fn counters(&self) -> CounterSnapshot {
        self.backend.counters()
    }
}

/// The backend's domain, where a guest overwrote entries of its grant table: what is
/// mapped stays, and is not mapped again.
pub struct Overwritten {
    pub domain: Arc<Domain>,
    pub entries: Mutex<Vec<GrantRef>>,
}

impl Overwritten {
    pub fn of(rig: &Rig) -> Arc<Self> {
        Arc::new(Self { domain: Arc::clone(&rig.backend), entries: Mutex::default() })
    }
}

impl Mapper for Overwritten {
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        let entries = self.entries.lock().unwrap();
        match grefs.iter().find(|gref| entries.contains(gref)) {
            Some(&gref) => {
                Err(Error::Grant { domain: peer, gref, status: GrantStatus::BAD_GNTREF })
            }
            None => self.domain.map(peer, grefs, access),
        }
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        self.domain.copy(arena, ops)
    }
}

pub fn filled(domain: &Domain, count: usize, access: Access) -> Granted {
    let granted = domain.grant(DomId(0), count, access).unwrap();
    for n in 0..count {
        granted.run.page(n).unwrap().write(0, &[n as u8; 4096]).unwrap();
    }
    granted
}

pub fn entry(gref: GrantRef, access: Access) -> GrefEntry {
    let flags = match access {
        Access::ReadOnly => GrefFlags::READONLY,
        Access::ReadWrite => GrefFlags::empty(),
    };
    GrefEntry { gref: gref.0, flags, status: 0xffff }
}

pub fn entries(granted: &Granted, access: Access) -> Vec<GrefEntry> {
    granted.grefs.iter().map(|&gref| entry(gref, access)).collect()
}

/// Returns pieces of `len` bytes, one from each page, one behind the other.
pub fn pieces(grefs: &[GrantRef], len: u16) -> Vec<Piece> {
    let piece = |(n, gref): (usize, &GrantRef)| Piece::new(gref.0, 0, len, n * usize::from(len));
    grefs.iter().enumerate().map(piece).collect()
}

pub fn statuses(pieces: &[Piece]) -> Vec<GrantStatus> {
    pieces.iter().map(|piece| piece.status).collect()
}

pub fn bytes(page: &SharedPage, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    page.read(offset, &mut bytes).unwrap();
    bytes
}
