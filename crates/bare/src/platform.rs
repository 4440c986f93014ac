//! The platform.

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

/// The platform of this guest. There is one.
pub struct Bare {
    domain: AtomicU16,
    shared: SharedInfo,
    pub(crate) events: Arc<Events>,
    grants: Mutex<Grants>,
    store: Stores,
}

impl Bare {
    /// Sets the platform up, with the ways that are the defaults ([`Options`]). To be called once.
    ///
    /// # Errors
    ///
    /// [`Error`] if Xen, its toolstack or the store refused what a guest needs.
    pub fn new() -> Result<Arc<Self>, Error> {
        Self::with(Options::default())
    }

    /// Sets the platform up, with these ways. To be called once, in place of [`Bare::new`].
    ///
    /// # Errors
    ///
    /// [`Error`] if Xen, its toolstack or the store refused what a guest needs.
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

    /// Returns the ways that are in force. Xen may have refused [`Layout::Fifo`](crate::Layout).
    #[must_use]
    pub fn options(&self) -> Options {
        self.events.options()
    }

    /// Returns the guest's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock::new(self.shared.clone())
    }

    /// Gives the processor away until an event channel of this guest is signalled, that of the
    /// store among them, or until that time by [`Bare::clock`]. Does not while an event of the
    /// store waits for somebody. It may come back sooner: whoever has waited looks at everything.
    pub fn wait(&self, until: Option<Duration>) {
        if !self.store.has_events() {
            self.events.wait(until);
        }
    }

    /// Gives the processor away until that time by [`Bare::clock`], whatever comes.
    pub fn pause(&self, until: Duration) {
        self.events.pause(until);
    }

    /// Has the guest saved, as its toolstack asked for. Returns once it goes on: false if the save
    /// was given up. If the guest was restored, all grants and event channels are void, and the
    /// guest's domain may be another one: each vif has to be resumed.
    ///
    /// # Errors
    ///
    /// [`Error`] if Xen or the store refuses what the guest needs again.
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
