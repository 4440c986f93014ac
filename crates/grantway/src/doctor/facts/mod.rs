//! What the system says, gathered without a judgement. What cannot be read is
//! `None` or empty: nothing here fails.

pub mod backend;
pub mod frontends;
pub mod limits;
pub mod links;
pub mod netback;
pub mod platform;
pub mod process;
pub mod vifs;
