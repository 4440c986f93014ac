//! Placeholder.
#![no_std]
extern crate alloc;
pub mod memory;
pub use memory::{OutOfPage, PAGE_SIZE, SharedPage, SharedRun};
