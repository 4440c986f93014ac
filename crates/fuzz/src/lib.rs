//! Targets of fuzzing, and the inputs that are kept for them.
//!
//! - [`targets`]: functions that take any bytes, make of them what a peer could write,
//!   and panic if the code breaks a promise.
//! - [`corpus`]: inputs worth keeping, one file a target, which `cargo test` runs again.
//!
//! libFuzzer, which changes inputs and keeps those that reach something new, is in
//! `tests/libfuzzer`: this crate needs no C++ compiler. `make fuzz` runs both.
#![forbid(unsafe_code)]

pub mod corpus;
pub mod targets;
