//! What a toolstack does for a vif: it reads the operator's words, and writes
//! both ends' folders into the store.
//!
//! - [`config`]: xl's vif string; [`mac`] and [`rate`] are its values.
//! - [`device`]: attach, detach and list, over any
//!   [`Store`](grantway_hypervisor::Store).

pub mod config;
pub mod device;
pub mod mac;
pub mod rate;
