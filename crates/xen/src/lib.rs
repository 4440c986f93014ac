//! The real Xen, by way of `/dev/xen`: what [`grantway_hypervisor`] asks for,
//! kept by the Linux drivers `xen-gntdev`, `xen-gntalloc` and `xen-evtchn`, and
//! by xenstored. No library of Xen's is needed, at run time or to build.
//!
//! - [`Xen`] is the domain that this process runs in: a
//!   [`grantway_hypervisor::Platform`]. It opens a device when it is first
//!   asked for what the device does.
//! - [`uapi`] is what the drivers expect in memory: request numbers and
//!   layouts.
//!
//! What these drivers cannot do shapes the traits: gntalloc never says whether
//! a peer still has a page ([`grantway_hypervisor::Revoke::Unknown`]), and
//! gntdev maps a list whole or not at all, without saying what was wrong (the
//! first reference that is, is searched for afterwards).
//!
//! Who may call in: the command, and tests. Everything that is `unsafe` is in
//! `sys`.
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
