//! The platform: a domain's way to its hypervisor and its store.

use crate::{Access, DomId, Error, FrontendEvents, FrontendStore, Granted, Released};
#[cfg(feature = "std")]
use crate::{CounterSnapshot, EventChannels, Mapper, Store};
use alloc::boxed::Box;

/// Platform of a frontend: all calls that a frontend makes, and no others. A unikernel implements it.
///
/// One value per process; clones of the `Arc` around it go wherever grants are made. Event channels
/// and store connections are made from it, one for each thread that waits.
///
/// `Send + Sync` are asked of a platform of one thread, too. A queue keeps the platform for its
/// grants, and a program may give each queue to a thread: without the bounds here each type of a
/// frontend would exist twice, or have the platform as a parameter. A platform of one thread keeps
/// what it changes behind a lock that nobody waits for.
pub trait FrontendPlatform: Send + Sync {
    /// Returns the number of the domain that we are.
    fn domain(&self) -> DomId;

    /// Grants `pages` pages to `peer`: zeroed, page-granular and shared with
    /// nothing else (XSA-403).
    ///
    /// # Errors
    ///
    /// [`Error::Exhausted`] when the grant table or the memory is full.
    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error>;

    /// Gives a run back. Each grant is taken back atomically (XSA-396: no test before it). Pages
    /// that the peer still reaches are kept and reclaimed later; they are never used again before.
    fn release(&self, granted: Granted) -> Released;

    /// Takes a run whose grants are void, since the domain was restored from a save:
    /// their references may be in force for somebody else by now, and are not
    /// touched. Its memory stays lent for as long as this process runs, where the
    /// platform does not know better.
    fn abandon(&self, granted: Granted) {
        core::mem::forget(granted);
    }

    /// Makes a new set of event channels: one for each queue.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] or [`Error::Gone`].
    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error>;

    /// Makes a new connection to the store: one for each vif.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] or [`Error::Gone`].
    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error>;
}

/// Platform of backends and other programs: a frontend's calls, and these.
#[cfg(feature = "std")]
pub trait Platform: FrontendPlatform + Mapper {
    /// Returns the name of the host for tables: `embedded` or `xen`.
    fn host(&self) -> &'static str;

    /// Makes a new set of event channels with a descriptor of its own: one per worker.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] or [`Error::Gone`].
    fn events(&self) -> Result<Box<dyn EventChannels>, Error>;

    /// Makes a new connection to the store.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] or [`Error::Gone`].
    fn store(&self) -> Result<Box<dyn Store>, Error>;

    /// Returns the counts of this process's requests to the hypervisor.
    fn counters(&self) -> CounterSnapshot;
}
