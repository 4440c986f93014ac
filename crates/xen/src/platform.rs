//! The domain that this process runs in.

use crate::apart::ByPeer;
use crate::arena::Arenas;
use crate::copy::{self, Scratch};
use crate::device::{Device, parameter};
use crate::events::EventSet;
use crate::grant;
use crate::map;
use crate::open::{Layout, OpenError};
use crate::store::StoreAt;
use crate::sys::{Evtchn, Gntalloc, Gntdev};
use grantway_hypervisor::{
    Access, Apart, Arena, CopyOp, CounterSnapshot, Counters, DomId, Error, EventChannels, GrantRef,
    Granted, Granter, Mapper, Platform, Released, Revoke, Store,
};
use grantway_ring::SharedRun;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The domain that this process runs in, by way of `/dev/xen`.
///
/// Devices are opened when they are first needed, so a frontend needs no
/// gntdev and a backend no gntalloc. What a process holds goes back when it
/// ends, in whatever way: the kernel closes its devices.
#[derive(Debug)]
pub struct Xen {
    domain: DomId,
    layout: Layout,
    /// What it may not be able to read later, when a thread opens no files any more.
    read: Read,
    store: StoreAt,
    gntdev: Device<Gntdev>,
    peers: ByPeer,
    gntalloc: Device<Gntalloc>,
    evtchn: Device<Evtchn>,
    counters: Arc<Counters>,
    scratch: Mutex<Vec<Scratch>>,
    arenas: Arc<Arenas>,
}

/// What is read of the kernel's files when the domain is opened.
#[derive(Debug)]
struct Read {
    /// Grants that gntdev maps at a time.
    gntdev: u64,
    /// Pages that gntalloc gives.
    gntalloc: u64,
    /// The kind of this domain, such as PV.
    kind: Option<String>,
}

impl Read {
    fn of(layout: &Layout) -> Self {
        let limit = |module, usual| parameter(&layout.limit(module)).unwrap_or(usual);
        Self {
            gntdev: limit("xen_gntdev", map::GNTDEV_GRANTS),
            gntalloc: limit("xen_gntalloc", grant::GNTALLOC_PAGES),
            kind: layout.kind(),
        }
    }
}

impl Xen {
    /// Finds out which domain this is, by way of its store, and opens nothing
    /// that it keeps.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: this is not Xen, or there is no store; each names its
    /// remedy.
    pub fn open() -> Result<Arc<Self>, OpenError> {
        Self::open_in(Layout::system())
    }

    /// This domain as it is after a restore: under another number, perhaps. Counters
    /// go on.
    ///
    /// # Errors
    ///
    /// As [`Xen::open`].
    pub fn restored(&self) -> Result<Arc<Self>, OpenError> {
        Self::counted(self.layout.clone(), Arc::clone(&self.counters))
    }

    fn open_in(layout: Layout) -> Result<Arc<Self>, OpenError> {
        Self::counted(layout, Arc::default())
    }

    fn counted(layout: Layout, counters: Arc<Counters>) -> Result<Arc<Self>, OpenError> {
        layout.judge()?;
        let store = layout.store();
        let domain = layout.domain(&store)?;
        let load = |module| match module {
            "gntdev" => "load it: modprobe xen-gntdev",
            "gntalloc" => "load it: modprobe xen-gntalloc",
            _ => "load it: modprobe xen-evtchn",
        };
        Ok(Arc::new(Self {
            domain,
            store,
            gntdev: Device::new(layout.device("gntdev"), load("gntdev"), Gntdev::open),
            peers: ByPeer::default(),
            gntalloc: Device::new(layout.device("gntalloc"), load("gntalloc"), Gntalloc::open),
            evtchn: Device::new(layout.device("evtchn"), load("evtchn"), Evtchn::open),
            read: Read::of(&layout),
            layout,
            counters,
            scratch: Mutex::new(Vec::new()),
            arenas: Arc::default(),
        }))
    }

    /// Opens gntdev, which a backend cannot do without, now and not with the
    /// first guest.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] names the device and what brings it.
    pub fn require_gntdev(&self) -> Result<(), Error> {
        self.gntdev.get().map(drop)
    }

    /// Opens gntalloc, which a frontend cannot do without.
    ///
    /// # Errors
    ///
    /// As [`Xen::require_gntdev`].
    pub fn require_gntalloc(&self) -> Result<(), Error> {
        self.gntalloc.get().map(drop)
    }

    /// Scratch of batches that are not under way; a panic of a holder left
    /// nothing half done that matters.
    fn scratch(&self) -> MutexGuard<'_, Vec<Scratch>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Granter for Xen {
    /// Grants by gntalloc, whose pages are all one fixed pool of the domain.
    /// Every process of the domain takes from it.
    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        grant::grant(&self.gntalloc, self.read.gntalloc, &self.counters, peer, pages, access)
    }

    /// Always [`Revoke::Unknown`]: gntalloc revokes when the page is unmapped
    /// here, and does not tell what came of it.
    fn revoke(&self, _: GrantRef) -> Revoke {
        Revoke::Unknown
    }

    /// Gives the run back to gntalloc when its last handle is dropped. The
    /// driver frees each page once the peer has let go of it.
    fn release(&self, granted: Granted) -> Released {
        grant::release(granted)
    }

    /// Gives the run back all the same: the kernel keeps the numbers of references
    /// over a restore, and gntalloc's are still its own.
    fn abandon(&self, granted: Granted) {
        drop(granted);
    }
}

impl Mapper for Xen {
    /// Maps by gntdev. Grants of the domain's own only where it is PV: in
    /// another kind Xen moves the page to where it is mapped, away from its
    /// owner, and the kernel crashes sooner or later. Copies know no such
    /// trouble.
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        if peer == self.domain {
            let kind = self.read.kind.as_deref().unwrap_or("unknown");
            if kind != "PV" {
                return Err(Error::Protocol {
                    what: "mapping what this domain granted to itself",
                    found: format!("a domain of type {kind}, which does not survive that"),
                    expected: "type PV, or two domains",
                });
            }
        }
        let gntdev = || self.peers.get(peer, &self.gntdev);
        map::map(gntdev, self.read.gntdev, &self.counters, peer, grefs, access)
    }

    /// A gntdev of the peer's own: one descriptor.
    fn apart(&self, peer: DomId) -> Option<Apart> {
        let device = self.peers.open(peer, &self.gntdev).ok()?;
        Some(Box::new(device))
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        let scratch = self.scratch().pop();
        let mut scratch = scratch.unwrap_or_default();
        let grants = self.arenas.of(arena);
        let done = scratch.copy(&self.gntdev, grants.as_deref(), arena, ops);
        self.scratch().push(scratch);
        copy::count(&self.counters, ops);
        done
    }

    fn arena(&self, bytes: usize) -> Option<Arena> {
        let arena = self.arenas.make(self.gntalloc.get().ok()?, self.domain, bytes)?;
        Some(Box::new(arena))
    }
}

impl Platform for Xen {
    fn domain(&self) -> DomId {
        self.domain
    }

    fn host(&self) -> &'static str {
        "xen"
    }

    fn events(&self) -> Result<Box<dyn EventChannels>, Error> {
        Ok(Box::new(EventSet::new(self.domain, self.evtchn.fresh()?, &self.counters)))
    }

    fn store(&self) -> Result<Box<dyn Store>, Error> {
        self.store.connect()
    }

    fn counters(&self) -> CounterSnapshot {
        self.counters.snapshot()
    }
}

#[cfg(test)]
mod tests;
