//! Traits and types for the operations that a domain may ask of Xen. Nothing here knows the
//! network.
//!
//! Two platforms keep these promises: `embedded` (any Linux machine) and `xen`
//! (/dev/xen). The traits promise no more than /dev/xen can keep:
//!
//! - [`Granter::grant`] makes a fixed run of zeroed pages that a peer may
//!   reach; what [`Granter::revoke`] cannot prove revoked is never used for
//!   anything else.
//! - [`Mapper::map`] takes a list and one access mode and succeeds or fails as
//!   a whole; the run goes back whole when its last handle is dropped.
//! - [`Mapper::copy`] takes a batch and gives a status each; either side may
//!   be foreign.
//! - [`EventChannels`] counts signals, so that an event that comes while its
//!   waiter is busy elsewhere is never lost.
//! - [`Store`] is xenstore; a peer's death is learnt from it and from nowhere
//!   else.
//!
//! The feature `std` adds the descriptors that `poll` and `epoll` wait on; a
//! unikernel has none.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod counters;
mod error;
mod event;
mod grant;
mod store;

pub use counters::{CounterSnapshot, Counters};
pub use error::{Error, StoreErrno};
pub use event::{EventChannels, Port};
pub use grant::{
    Access, Apart, Arena, CopyOp, CopySide, DomId, GrantRef, GrantStatus, Granted, Granter, Mapper,
    Released, Revoke,
};
pub use store::{Permission, Rights, Store, StoreOps, WatchEvent, transaction};

use alloc::boxed::Box;

/// A domain's way to its hypervisor and its store.
///
/// One value a process; clones of the `Arc` around it go wherever grants or
/// copies are made. Event channels and store connections are made from it, one
/// for each thread that waits.
pub trait Platform: Granter + Mapper {
    /// The domain we are.
    fn domain(&self) -> DomId;

    /// Returns the name of the host for tables: `embedded` or `xen`.
    fn host(&self) -> &'static str;

    /// A new set of event channels with a descriptor of its own: one a worker.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] or [`Error::Gone`].
    fn events(&self) -> Result<Box<dyn EventChannels>, Error>;

    /// A new connection to the store.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] or [`Error::Gone`].
    fn store(&self) -> Result<Box<dyn Store>, Error>;

    /// Returns the counts of this process's requests to the hypervisor.
    fn counters(&self) -> CounterSnapshot;
}
