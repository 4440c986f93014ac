//! A platform that cannot tell if the backend still reaches a page, as Xen's gntalloc.

use grantway_embedded::Domain;
use grantway_hypervisor::{
    Access, BackendPlatform, CopyOp, CounterSnapshot, DomId, Error, EventChannels, FrontendEvents,
    FrontendPlatform, FrontendStore, GrantRef, Granted, Mapper, Platform, Released, Store,
};
use grantway_ring::{SharedPage, SharedRun};
use std::sync::{Arc, Mutex};

pub struct Silent {
    domain: Arc<Domain>,
    /// Pages that were given back, and stay granted.
    kept: Mutex<Vec<Granted>>,
}

impl Silent {
    pub fn over(domain: &Arc<Domain>) -> Self {
        Self { domain: Arc::clone(domain), kept: Mutex::default() }
    }

    /// Returns the pages that were given back.
    pub fn pages(&self) -> Vec<(GrantRef, SharedPage)> {
        let kept = self.kept.lock().unwrap();
        let pages = |granted: &Granted| {
            let page = |at| granted.page(at).map(|(page, gref)| (gref, page));
            (0..granted.grefs.len()).filter_map(page).collect::<Vec<_>>()
        };
        kept.iter().flat_map(pages).collect()
    }
}

impl FrontendPlatform for Silent {
    fn domain(&self) -> DomId {
        self.domain.domain()
    }

    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        self.domain.grant(peer, pages, access)
    }

    fn release(&self, granted: Granted) -> Released {
        let deferred = granted.grefs.len();
        self.kept.lock().unwrap().push(granted);
        Released { revoked: 0, deferred }
    }

    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error> {
        Ok(self.events()?)
    }

    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error> {
        Ok(self.store()?)
    }
}

impl Mapper for Silent {
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        self.domain.map(peer, grefs, access)
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        self.domain.copy(arena, ops)
    }
}

impl BackendPlatform for Silent {
    fn events(&self) -> Result<Box<dyn EventChannels>, Error> {
        self.domain.events()
    }
}

impl Platform for Silent {
    fn host(&self) -> &'static str {
        self.domain.host()
    }

    fn store(&self) -> Result<Box<dyn Store>, Error> {
        self.domain.store()
    }

    fn counters(&self) -> CounterSnapshot {
        self.domain.counters()
    }
}
