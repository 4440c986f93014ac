//! Every `unsafe` of this crate, and the system calls of the devices. What
//! lives here knows descriptors, requests and mappings, and nothing of what
//! they are good for.

mod copies;
mod evtchn;
mod gntalloc;
mod gntdev;
mod pages;
mod request;

pub use copies::Copies;
pub use evtchn::{Evtchn, FIRED_BYTES};
pub use gntalloc::Gntalloc;
pub use gntdev::Gntdev;
pub use pages::{Own, Pages};
