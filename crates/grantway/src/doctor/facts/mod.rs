//! Facts of the system, without judgement. A fact that cannot be read is `None` or empty: no
//! function fails.

pub mod backend;
pub mod frontends;
pub mod limits;
pub mod links;
pub mod netback;
pub mod options;
pub mod platform;
pub mod process;
pub mod vhost;
pub mod vifs;
