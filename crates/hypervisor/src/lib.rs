//! Traits and types for the operations that a domain requests from Xen: grants, event channels, and
//! xenstore.
//!
//! # When to use it
//!
//! - Implement the traits to run Grantway's frontend, or also its backend, on a platform of your
//!   own.
//! - Take the traits as arguments in code that has to run both on real Xen and in tests without
//!   Xen.
//!
//! Three crates implement the traits. `grantway-xen` uses the devices of `/dev/xen`.
//! `grantway-embedded` runs on any Linux machine. `grantway-bare` runs in a unikernel, and has the
//! traits of a frontend only.
//!
//! # Example
//!
//! A store in memory. Helpers such as [`StoreOps::read_text`] come with the trait.
//!
//! ```
//! use grantway_hypervisor::{Error, StoreErrno, StoreOps};
//! use std::collections::BTreeMap;
//!
//! struct InMemory(BTreeMap<String, Vec<u8>>);
//!
//! impl StoreOps for InMemory {
//!     fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
//!         let missing = || Error::Store { what: "read", path: path.into(), errno: StoreErrno::Enoent };
//!         self.0.get(path).cloned().ok_or_else(missing)
//!     }
//!     fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error> {
//!         self.0.insert(path.into(), value.to_vec());
//!         Ok(())
//!     }
//!     fn remove(&mut self, path: &str) -> Result<(), Error> {
//!         self.0.retain(|node, _| node != path && !node.starts_with(&format!("{path}/")));
//!         Ok(())
//!     }
//!     fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
//!         let names = self.0.keys().filter_map(|node| node.strip_prefix(path)?.strip_prefix('/'));
//!         Ok(names.map(|name| name.split('/').next().unwrap_or(name).into()).collect())
//!     }
//! }
//!
//! let mut store = InMemory(BTreeMap::new());
//! store.write("device/vif/0/state", b"4")?;
//! assert_eq!(store.read_text("device/vif/0/state")?.as_deref(), Some("4"));
//! assert_eq!(store.read_text("device/vif/1/state")?, None);
//! assert_eq!(store.read("missing").unwrap_err().to_string(), "xenstore read missing: ENOENT");
//! # Ok::<(), Error>(())
//! ```
//!
//! # Traits
//!
//! | Trait | For | Operations |
//! |---|---|---|
//! | [`FrontendPlatform`] | frontends | grants pages; makes event channels and store connections |
//! | [`FrontendEvents`] | frontends | makes, closes and signals ports |
//! | [`StoreOps`], [`FrontendStore`] | frontends | reads, writes, transactions, watches |
//! | [`Mapper`] | backends | maps and copies a peer's granted pages |
//! | `BackendPlatform` | backends | extends [`Mapper`]: makes sets of event channels (feature `std`) |
//! | `Platform`, `EventChannels`, `Store` | backends, tools | extend the traits above (feature `std`) |
//!
//! An implementor of [`FrontendPlatform`] provides everything that a frontend calls. The feature
//! `std` also adds the descriptors that `poll` and `epoll` wait on. It adds no method that an
//! implementor of a frontend's traits has to write.
//!
//! # Guarantees and limits
//!
//! The traits promise no more than `/dev/xen` can keep:
//!
//! - [`FrontendPlatform::grant`] makes a fixed run of zeroed pages that a peer may access. A page
//!   that [`FrontendPlatform::release`] cannot prove revoked is not used again before it is.
//! - [`Mapper::map`] takes a list of grants and one access mode. It maps all grants or none. The
//!   run is unmapped as a whole when its last handle is dropped.
//! - [`Mapper::copy`] takes a batch and sets a status for each operation. Either side of a copy may
//!   be a peer's page.
//! - [`FrontendEvents`] remembers signals: an event is not lost if it comes while its waiter is
//!   busy.
//! - [`FrontendStore`] is the only source for the death of a peer.
//!
//! # What it is not
//!
//! - It implements no platform.
//! - It does not know the network: `grantway-netif` has the protocol, and `grantway-frontend` and
//!   `grantway-backend` have the drivers.
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
pub use platform::{BackendPlatform, Platform};
#[cfg(feature = "std")]
pub use store::Store;
