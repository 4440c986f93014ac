//! Placeholder.
#![no_std]
#![forbid(unsafe_code)]
pub mod offload;
pub use offload::{Checksum, Gso, GsoKind, Offload};
