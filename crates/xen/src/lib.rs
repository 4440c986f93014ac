//! The platform of real Xen: grants, event channels and xenstore by the Linux devices of
//! `/dev/xen`.
//!
//! # When to use it
//!
//! To run a frontend, a backend or a tool on Linux in a Xen domain. [`Xen`] implements the traits
//! of [`grantway_hypervisor`] with the drivers `xen-gntdev`, `xen-gntalloc` and `xen-evtchn`, and
//! with xenstored. No library of Xen is needed, neither at run time nor to build.
//!
//! # Example
//!
//! ```
//! use grantway_hypervisor::{FrontendPlatform, Platform, StoreOps};
//! use grantway_xen::Xen;
//!
//! match Xen::open() {
//!     Ok(xen) => {
//!         println!("this is domain {}", xen.domain());
//!         let name = xen.store()?.read_text("name")?;
//!         println!("its name is {}", name.as_deref().unwrap_or("unknown"));
//!         if let Err(error) = xen.require_backend() {
//!             println!("no backend can run here: {error}");
//!         }
//!     }
//!     // The error names its remedy.
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), grantway_hypervisor::Error>(())
//! ```
//!
//! # Modules and types
//!
//! | Item | Content |
//! |---|---|
//! | [`Xen`] | the domain in which this process runs: a [`grantway_hypervisor::Platform`] |
//! | [`OpenError`] | reasons why Xen cannot be used, with remedies |
//! | [`uapi`] | request numbers and argument layouts of the drivers |
//!
//! # Guarantees and limits
//!
//! - A device is opened by the first call that needs it. A frontend needs no gntdev, and a backend
//!   no gntalloc.
//! - When the process ends in any way, the kernel takes back what it held.
//! - All `unsafe` code is in the module `sys`.
//! - gntalloc does not report if a peer still has a page. So a release cannot prove that a page was
//!   revoked.
//! - gntdev maps a list of grants whole or not at all, and does not report which reference was
//!   wrong. This crate searches for the first wrong reference afterwards.
//! - The pages of gntalloc are one pool of the domain: [`GNTALLOC_PAGES`] by default. gntdev maps
//!   [`GNTDEV_GRANTS`] grants at a time by default.
//!
//! # What it is not
//!
//! - It does not run without an operating system: `grantway-bare` does.
//! - It is not a toolstack: it makes no domains and no devices.
//! - It does not use `/dev/xen/privcmd`, nor libxenctrl.
#![deny(unsafe_code)]

mod apart;
mod arena;
mod copy;
mod counts;
mod device;
mod events;
mod grant;
mod map;
mod open;
mod platform;
mod store;
#[allow(unsafe_code)]
mod sys;
pub mod uapi;
mod xenbus;

pub use grant::GNTALLOC_PAGES;
pub use map::GNTDEV_GRANTS;
pub use open::OpenError;
pub use platform::Xen;
