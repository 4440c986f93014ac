//! Threats of a hostile or broken frontend to the real backend, one test each. Beside each
//! attack an honest vif carries numbered frames and loses none, and after each the
//! backend serves a new vif, lets go of all that it held, and nobody panicked.

#[path = "../support/mod.rs"]
mod support;

mod checksums;
mod ctrl;
mod driver;
mod events;
mod first_slot;
mod frontends;
mod full_port;
mod grants;
mod hash;
mod headroom;
mod keys;
mod lifecycle;
mod patience;
mod payloads;
mod rate;
mod receive;
mod refused;
mod remains;
mod restart;
mod rings;
mod segments;
mod slots;
mod staging;
mod takeover;
mod trouble;
