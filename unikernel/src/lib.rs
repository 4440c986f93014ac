//! The guest's work, apart from the platform that it runs on: its tests are programs of an operating
//! system.
//!
//! - [`words`]: the words of the command line.
//! - [`work`]: the seam between a guest's loop and its work.
//! - [`serve`]: TCP and UDP. [`services`] are echo, discard and the page; [`iperf`] is iperf 2.
//! - [`flows`]: the log of the stack's flows.
//! - [`frames`]: numbered test frames, made and judged in the vif's own pages.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod flows;
pub mod frames;
pub mod iperf;
pub mod page;
mod places;
pub mod serve;
pub mod services;
pub mod words;
pub mod work;
