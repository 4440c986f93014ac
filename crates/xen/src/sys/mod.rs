//! System calls of the devices, and all `unsafe` code of this crate. These modules know
//! descriptors, requests and mappings, and nothing of their purpose.

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
