//! Findings from facts. Nothing here looks at the system.

pub mod backend;
pub mod devices;
pub mod embedded;
pub mod frontends;
pub mod limits;
pub mod links;
pub mod netback;
pub mod platform;
pub mod sandbox;
pub mod vifs;
