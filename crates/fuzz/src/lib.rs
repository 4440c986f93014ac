//! Fuzzing guided by coverage, without an engine from elsewhere.
//!
//! - [`targets`]: what is fuzzed. A target takes any bytes, makes of them what a
//!   peer could write, and panics where a promise of the code is broken.
//! - [`corpus`]: inputs worth keeping, one file a target, which `cargo test`
//!   runs again.
//! - [`engine`]: changes inputs at random and keeps those that reach something
//!   new, as the compiler's counters tell.
//!
//! The program of this crate runs the engine; `make fuzz` builds it with the
//! counters (a stable compiler has them).
#![forbid(unsafe_code)]

pub mod corpus;
pub mod engine;
pub mod targets;
