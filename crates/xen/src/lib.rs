//! The real Xen, by `/dev/xen`. This crate implements the traits of [`grantway_hypervisor`] with
//! the Linux drivers `xen-gntdev`, `xen-gntalloc` and `xen-evtchn`, and with xenstored. No library
//! of Xen is needed, at run time or to build.
//!
//! - [`Xen`] is the domain that this process runs in: a [`grantway_hypervisor::Platform`]. It opens
//!   a device at the first call that needs it.
//! - [`uapi`] has the request numbers and layouts that the drivers expect.
//!
//! Limits of these drivers shape the traits. gntalloc never says if a peer still has a page, so
//! nothing can be said of a released page. gntdev maps a list whole or not at all, and does not
//! say which reference was wrong; the first such reference is searched for afterwards.
//!
//! Callers are the command, and tests. All `unsafe` code is in `sys`.
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
