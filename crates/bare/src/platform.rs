//! Platform of the guest.

use crate::channels::Channels;
use crate::clock::Clock;
use crate::console;
use crate::events::Events;
use crate::grants::Grants;
use crate::options::Options;
use crate::store::StorePage;
use crate::stores::{StoreUser, Stores};
use crate::sys::hypercall::{self, run};
use crate::sys::memory::GrantTable;
use crate::sys::shared::SharedInfo;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU16, Ordering::SeqCst};
use core::time::Duration;
use grantway_hypervisor::{
    Access, DomId, Error, FrontendEvents, FrontendPlatform, FrontendStore, Granted, Released,
    StoreOps,
};
use spin::Mutex;

/// Platform of this guest. A guest has exactly one.
pub struct Bare {
    domain: AtomicU16,
    shared: SharedInfo,
    pub(crate) events: Arc<Events>,
    grants: Mutex<Grants>,
    store: Stores,
}

impl Bare {
    /// Sets up the platform with the default [`Options`]. Call it once.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if Xen, its toolstack or the store refuses a resource that a guest needs.
    pub fn new() -> Result<Arc<Self>, Error> {
        Self::with(Options::default())
    }

    /// Sets up the platform with these options. Call it once, in place of [`Bare::new`].
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if Xen, its toolstack or the store refuses a resource that a guest needs.
    pub fn with(options: Options) -> Result<Arc<Self>, Error> {
        let shared = SharedInfo::new().ok_or_else(|| lacks("XENMAPSPACE_shared_info"))?;
        if !hypercall::take_upcalls() {
            return Err(lacks("HVM_PARAM_CALLBACK_IRQ"));
        }
        let table = GrantTable::new().ok_or_else(|| lacks("XENMAPSPACE_grant_table"))?;
        let events = Events::new(shared.clone(), options);
        let events = Arc::new(events.ok_or_else(|| lacks("EVTCHNOP_bind_virq"))?);
        let page = StorePage::new(Clock::new(shared.clone()), Arc::clone(&events));
        let store = Stores::new(page.ok_or_else(|| lacks("HVM_PARAM_STORE_PFN"))?);
        Ok(Arc::new(Self {
            domain: AtomicU16::new(own_number(&mut store.user())?),
            shared,
            events,
            grants: Mutex::new(Grants::new(table)),
            store,
        }))
    }

    /// Returns the options that are in use. The layout differs from the requested one if Xen lacks
    /// [`Layout::Fifo`](crate::Layout).
    #[must_use]
    pub fn options(&self) -> Options {
        self.events.options()
    }

    /// Returns the guest's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock::new(self.shared.clone())
    }

    /// Waits until an event channel of this guest is signalled, including that of the store, or
    /// until [`Bare::clock`] shows `until`. The processor goes to Xen meanwhile. Returns at once if
    /// a store event is queued. It may return early, so the caller has to check all its sources
    /// afterwards.
    pub fn wait(&self, until: Option<Duration>) {
        if !self.store.has_events() {
            self.events.wait(until);
        }
    }

    /// Waits until [`Bare::clock`] shows `until`. Signals do not end the wait. The processor goes
    /// to Xen meanwhile.
    pub fn pause(&self, until: Duration) {
        self.events.pause(until);
    }

    /// Suspends the guest, on a request of its toolstack, so that it can be saved. Returns when the
    /// guest runs again: true after a restore, false if the save was cancelled. After a restore,
    /// all grants and event channels are invalid, and the number of the domain may have changed.
    /// Each vif has to be resumed then.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if Xen or the store refuses a resource that the restored guest needs.
    pub fn suspend(&self) -> Result<bool, Error> {
        let before = self.shared.now();
        let restored = run::suspend();
        self.events.forget_timer();
        if !restored {
            return Ok(false);
        }
        if !self.shared.renew(before) {
            return Err(lacks("XENMAPSPACE_shared_info"));
        }
        if !hypercall::take_upcalls() {
            return Err(lacks("HVM_PARAM_CALLBACK_IRQ"));
        }
        if !self.events.renew() {
            return Err(lacks("EVTCHNOP_bind_virq"));
        }
        let table = GrantTable::new().ok_or_else(|| lacks("XENMAPSPACE_grant_table"))?;
        self.grants.lock().renew(table);
        console::renew();
        let page = StorePage::new(self.clock(), Arc::clone(&self.events));
        self.store.renew(page.ok_or_else(|| lacks("HVM_PARAM_STORE_PFN"))?)?;
        self.domain.store(own_number(&mut self.store.user())?, SeqCst);
        Ok(true)
    }
}

impl FrontendPlatform for Bare {
    fn domain(&self) -> DomId {
        DomId(self.domain.load(SeqCst))
    }

    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        self.grants.lock().grant(peer, pages, access)
    }

    fn release(&self, granted: Granted) -> Released {
        self.grants.lock().release(granted)
    }

    /// Takes pages back whose grants went with the domain that the guest was in.
    fn abandon(&self, granted: Granted) {
        drop(granted);
    }

    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error> {
        Ok(Box::new(Channels::new(Arc::clone(&self.events))))
    }

    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error> {
        Ok(Box::new(self.store.user()))
    }
}

/// Returns the number of our domain, which its folder in the store has.
fn own_number(store: &mut StoreUser) -> Result<u16, Error> {
    let text = store.read_text("domid")?;
    let number = text.and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| lacks("domid in the store"))
}

fn lacks(call: &str) -> Error {
    Error::Os {
        call: call.to_string(),
        reason: "the hypervisor or its toolstack refused it".to_string(),
        remedy: "look at `xl dmesg`; the guest has to be of the type pvh",
    }
}
