//! Pages and event channels that are lent to the backend's domain, and taken back when dropped.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use grantway_hypervisor::{
    Access, DomId, Error, FrontendEvents, FrontendPlatform, GrantRef, Granted, Port,
};
use grantway_ring::SharedPage;

/// A run of granted pages. When dropped, it goes back to the platform. The platform keeps the pages
/// that the backend can still reach.
pub(crate) struct Lent {
    platform: Arc<dyn FrontendPlatform>,
    /// The pages; `None` once they went back.
    granted: Option<Granted>,
    /// True if the grants are void.
    void: AtomicBool,
}

impl Lent {
    /// Grants zeroed pages.
    pub fn new(
        platform: &Arc<dyn FrontendPlatform>,
        peer: DomId,
        pages: usize,
        access: Access,
    ) -> Result<Self, Error> {
        let granted = platform.grant(peer, pages, access)?;
        Ok(Self {
            platform: Arc::clone(platform),
            granted: Some(granted),
            void: AtomicBool::new(false),
        })
    }

    /// Grants further pages to the same domain, in a run of their own.
    pub fn again(&self, access: Access) -> Result<Self, Error> {
        let (pages, peer) = match &self.granted {
            Some(granted) => (granted.grefs.len(), granted.peer),
            None => return Err(Error::Gone { what: "a run that went back".into() }),
        };
        Self::new(&self.platform, peer, pages, access)
    }

    /// Returns a page of the run, and the reference of its grant.
    pub fn page(&self, index: usize) -> Option<(SharedPage, GrantRef)> {
        self.granted.as_ref()?.page(index)
    }

    /// Notes that the grants are void: their references are not touched any more.
    pub fn void(&self) {
        self.void.store(true, Relaxed);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        match self.granted.take() {
            Some(granted) if *self.void.get_mut() => self.platform.abandon(granted),
            Some(granted) => drop(self.platform.release(granted)),
            None => {}
        }
    }
}

/// The event channels of one queue, in a set of their own. When dropped, they are closed.
pub(crate) struct Channels {
    /// The set of the channels, to wait for them.
    pub set: Box<dyn FrontendEvents>,
    /// Channel for sent frames. Received frames use it, too, if there is only one channel.
    pub tx: Port,
    /// Channel for received frames.
    pub rx: Port,
}

impl Channels {
    /// Makes one channel, or one for each direction.
    pub fn new(platform: &dyn FrontendPlatform, peer: DomId, split: bool) -> Result<Self, Error> {
        let mut set = platform.frontend_events()?;
        let tx = set.alloc_unbound(peer)?;
        let mut channels = Self { set, tx, rx: tx };
        if split {
            channels.rx = channels.set.alloc_unbound(peer)?;
        }
        Ok(channels)
    }

    /// Leaves the channels open, and does not touch them.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.set.close(self.tx);
        if self.rx != self.tx {
            self.set.close(self.rx);
        }
    }
}
