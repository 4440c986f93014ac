//! The domain that this process runs in.

use crate::apart::ByPeer;
use crate::arena::Arenas;
use crate::copy::{self, Scratch};
use crate::device::{Device, lacks, parameter};
use crate::events::EventSet;
use crate::grant;
use crate::map;
use crate::open::{Layout, OpenError};
use crate::store::StoreAt;
use crate::sys::{Copies, Evtchn, Gntalloc, Gntdev};
use grantway_hypervisor::{
    Access, Apart, Arena, BackendPlatform, CopyOp, CounterSnapshot, Counters, DomId, Error,
    EventChannels, FrontendEvents, FrontendPlatform, FrontendStore, GrantRef, Granted, Mapper,
    Platform, Released, Store,
};
use grantway_ring::SharedRun;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The domain that this process runs in, by `/dev/xen`.
///
/// Devices are opened when they are first needed, so a frontend needs no gntdev and a backend no
/// gntalloc. All that a process holds goes back when it ends, in whatever way: the kernel closes
/// its devices.
#[derive(Debug)]
pub struct Xen {
    domain: DomId,
    /// True if the number of the domain is certain. Otherwise nothing may be granted to it.
    proven: bool,
    layout: Layout,
    /// Values that are read early, since a thread may later be unable to open files.
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

/// Values of the kernel's files that are read when the domain is opened.
#[derive(Debug)]
struct Read {
    /// Limit of grants that gntdev maps at a time.
    gntdev: u64,
    /// Limit of pages that gntalloc gives.
    gntalloc: u64,
    /// Kind of this domain, such as PV.
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
    /// Opens the domain in which this process runs. Reads its number from the store, and leaves no
    /// device open.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if this is not Xen, or if the store cannot be used. Each message names
    /// the remedy.
    pub fn open() -> Result<Arc<Self>, OpenError> {
        Self::open_in(Layout::system())
    }

    /// Opens this domain again after a restore, which may have changed its number. The counters
    /// keep their values.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Xen::open`].
    pub fn restored(&self) -> Result<Arc<Self>, OpenError> {
        Self::counted(self.layout.clone(), Arc::clone(&self.counters))
    }

    /// Opens the domain in which this process runs, without a store: for a backend that is handed its
    /// rings, on a host whose toolstack keeps vifs elsewhere. `domain` is the number that the toolstack
    /// gave the domain, 0 for dom0. Only [`Platform::store`] and [`FrontendPlatform::frontend_store`]
    /// connect to a store.
    ///
    /// Nothing checks the number. So no memory is granted to the domain itself ([`Mapper::arena`]
    /// returns `None`), and gntdev looks up each page of a copy, as it does where gntalloc is not
    /// loaded. With a wrong number, [`Mapper::map`] would map pages that this domain itself granted,
    /// which only a PV domain survives.
    ///
    /// Call [`Xen::require_backend`] before the process gives up rights. A backend opens
    /// `/dev/xen/gntdev` once more for each guest, on the thread that attaches the vif.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::NotXen`] if this is not Xen.
    pub fn without_store(domain: DomId) -> Result<Arc<Self>, OpenError> {
        Self::numbered(Layout::system(), (domain, false), Arc::default())
    }

    fn open_in(layout: Layout) -> Result<Arc<Self>, OpenError> {
        Self::counted(layout, Arc::default())
    }

    fn counted(layout: Layout, counters: Arc<Counters>) -> Result<Arc<Self>, OpenError> {
        // A machine without Xen has no store either, and the first is the reason.
        layout.judge()?;
        let domain = layout.domain(&layout.store())?;
        Self::numbered(layout, (domain, true), counters)
    }

    /// Opens the domain with this number; `proven` if the store gave the number.
    fn numbered(
        layout: Layout,
        (domain, proven): (DomId, bool),
        counters: Arc<Counters>,
    ) -> Result<Arc<Self>, OpenError> {
        layout.judge()?;
        let store = layout.store();
        let load = |module| match module {
            "gntdev" => "load it: modprobe xen-gntdev",
            "gntalloc" => "load it: modprobe xen-gntalloc",
            _ => "load it: modprobe xen-evtchn",
        };
        Ok(Arc::new(Self {
            domain,
            proven,
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

    /// Opens the devices that a backend needs, before the first guest needs them. Checks that their
    /// drivers have the requests that old kernels lack.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Os`] with the missing device or request, and the remedy.
    pub fn require_backend(&self) -> Result<(), Error> {
        let gntdev = self.gntdev.get()?;
        // A batch without copies does nothing.
        let (mut segments, mut arena) = (Vec::new(), []);
        let copied = gntdev.copy(&mut Copies::new(&mut segments, &mut arena));
        copied.map_err(|errno| lacks(self.gntdev.path(), "grant copy", errno))?;
        let evtchn = self.evtchn.fresh()?;
        // A fresh device has no signal to forget.
        evtchn.reset().map_err(|errno| lacks(self.evtchn.path(), "reset", errno))
    }

    /// Opens gntalloc, which a frontend needs for its grants.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Xen::require_backend`].
    pub fn require_gntalloc(&self) -> Result<(), Error> {
        self.gntalloc.get().map(drop)
    }

    /// Returns the scratch memory that no batch uses now. A panic of a holder left nothing behind
    /// that matters.
    fn scratch(&self) -> MutexGuard<'_, Vec<Scratch>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrontendPlatform for Xen {
    fn domain(&self) -> DomId {
        self.domain
    }

    /// Grants by gntalloc. All its pages are one fixed pool of the domain, which all processes of
    /// the domain share.
    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        grant::grant(&self.gntalloc, self.read.gntalloc, &self.counters, peer, pages, access)
    }

    /// Gives the run back to gntalloc when its last handle is dropped. The driver frees each page
    /// once the peer no longer has it: it revokes a grant when the page is unmapped here, and does
    /// not report the result.
    fn release(&self, granted: Granted) -> Released {
        grant::release(granted)
    }

    /// Gives the run back nevertheless: the kernel keeps the numbers of references over a restore,
    /// and gntalloc's references are still its own.
    fn abandon(&self, granted: Granted) {
        drop(granted);
    }

    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error> {
        Ok(self.events()?)
    }

    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error> {
        Ok(self.store.connect_patiently()?)
    }
}

impl Mapper for Xen {
    /// Maps by gntdev. Grants of this domain itself are mapped only if it is PV. In another kind
    /// Xen moves the page to the place of the mapping, away from its owner, and the kernel crashes
    /// sooner or later. Copies do not have this problem.
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

    /// Opens a gntdev for this peer alone, which takes one descriptor.
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
        // Memory that another domain reaches would not be ours alone.
        if !self.proven {
            return None;
        }
        let arena = self.arenas.make(self.gntalloc.get().ok()?, self.domain, bytes)?;
        Some(Box::new(arena))
    }
}

impl BackendPlatform for Xen {
    fn events(&self) -> Result<Box<dyn EventChannels>, Error> {
        Ok(Box::new(EventSet::new(self.domain, self.evtchn.fresh()?, &self.counters)))
    }
}

impl Platform for Xen {
    fn host(&self) -> &'static str {
        "xen"
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
