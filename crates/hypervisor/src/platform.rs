//! Platforms: access to the hypervisor and to the store.

use crate::{Access, DomId, Error, FrontendEvents, FrontendStore, Granted, Released};
#[cfg(feature = "std")]
use crate::{CounterSnapshot, EventChannels, Mapper, Store};
use alloc::boxed::Box;

/// Platform of a frontend: all calls that a frontend makes, and no others. A unikernel implements
/// this trait only.
///
/// A process has one platform, and shares it by an `Arc`. Each thread that waits makes its own
/// event channels and its own store connection.
///
/// The trait requires `Send + Sync`, also of a platform with one thread: a queue keeps the platform
/// for its grants, and a program may move each queue to another thread. A platform with one thread
/// keeps its mutable state behind a lock that is never contended.
pub trait FrontendPlatform: Send + Sync {
    /// Returns the number of the domain in which the caller runs.
    fn domain(&self) -> DomId;

    /// Makes `pages` zeroed pages and grants them to `peer`. The pages hold nothing else, so the
    /// peer sees no other data (XSA-403).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Exhausted`] if the grant table or the memory is full.
    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error>;

    /// Releases a run. Each grant is revoked by one atomic operation, without a test before it
    /// (XSA-396). The platform keeps pages that the peer can still access, and reclaims them later.
    /// It does not use them again before that.
    fn release(&self, granted: Granted) -> Released;

    /// Takes a run whose grants are no longer valid, because the domain was restored from a save.
    /// Its references may belong to new grants now, so they are not revoked. By default the memory
    /// is not used again as long as this process runs.
    fn abandon(&self, granted: Granted) {
        core::mem::forget(granted);
    }

    /// Makes a new set of event channels. A frontend makes one per queue.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Os`] or [`Error::Gone`].
    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error>;

    /// Makes a new connection to the store. A frontend makes one per vif.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Os`] or [`Error::Gone`].
    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error>;
}

/// Platform of a backend that is handed its rings: guests' pages, and event channels. It has no
/// store.
#[cfg(feature = "std")]
pub trait BackendPlatform: Mapper {
    /// Makes a new set of event channels with its own descriptor. A backend makes one per worker.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Os`] or [`Error::Gone`].
    fn events(&self) -> Result<Box<dyn EventChannels>, Error>;
}

/// Platform of a backend that finds its vifs in the store, and of other programs. It extends the
/// platform of a frontend.
#[cfg(feature = "std")]
pub trait Platform: FrontendPlatform + BackendPlatform {
    /// Returns the name of the host for tables: `embedded` or `xen`.
    fn host(&self) -> &'static str;

    /// Makes a new connection to the store.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Os`] or [`Error::Gone`].
    fn store(&self) -> Result<Box<dyn Store>, Error>;

    /// Returns the counters of this process's requests to the hypervisor.
    fn counters(&self) -> CounterSnapshot;
}
