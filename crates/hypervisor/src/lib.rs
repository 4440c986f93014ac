//! Traits and types for the operations that a domain may ask of Xen. Nothing here knows the
//! network.
//!
//! Three platforms keep these promises: `embedded` (any Linux machine), `xen`
//! (/dev/xen), and `bare` (a unikernel), which has the calls of a frontend alone. The traits
//! promise no more than /dev/xen can keep:
//!
//! - [`FrontendPlatform::grant`] makes a fixed run of zeroed pages that a peer may
//!   reach; what [`FrontendPlatform::release`] cannot prove revoked is never used for
//!   anything else.
//! - [`Mapper::map`] takes a list and one access mode and succeeds or fails as
//!   a whole; the run goes back whole when its last handle is dropped.
//! - [`Mapper::copy`] takes a batch and gives a status each; either side may
//!   be foreign.
//! - [`FrontendEvents`] keeps signals, so that an event that comes while its
//!   waiter is busy elsewhere is never lost.
//! - [`FrontendStore`] is xenstore; a peer's death is learnt from it and from nowhere
//!   else.
//!
//! Who implements [`FrontendPlatform`] has all that a frontend calls. The feature `std` adds what
//! backends and other programs use: `Platform`, `EventChannels` and `Store`, which extend the
//! traits of a frontend, and the descriptors that `poll` and `epoll` wait on. It adds no method that
//! an implementor of a frontend's traits has to write.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod counters;
mod error;
mod event;
mod grant;
mod platform;
mod store;

pub use counters::{CounterSnapshot, Counters};
pub use error::{Error, StoreErrno};
pub use event::{FrontendEvents, Port};
pub use grant::{
    Access, Apart, Arena, CopyOp, CopySide, DomId, GrantRef, GrantStatus, Granted, Mapper, Released,
};
pub use platform::FrontendPlatform;
pub use store::{FrontendStore, Permission, Rights, StoreOps, WatchEvent, transaction};

#[cfg(feature = "std")]
pub use event::EventChannels;
#[cfg(feature = "std")]
pub use platform::Platform;
#[cfg(feature = "std")]
pub use store::Store;
