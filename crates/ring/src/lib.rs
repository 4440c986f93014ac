//! The Xen shared ring, and memory shared with a peer.
//!
//! Every volatile access and every fence of the project lives here.
//!
//! - [`memory`]: pages that a peer can write while we look at them.
//! - [`access`]: what a ring asks of the memory it lives in, and the eight
//!   [`Fence`]s that keep its two ends in step.
//! - [`page`]: the ring page itself, as `xen/io/ring.h` lays it out.
//! - [`front`], [`back`]: the two ends.
//!
//! Both ends are generic over [`RingMemory`], so that the code which loom
//! explores (`tests/loom.rs`) is the code that ships: only the memory beneath
//! it is exchanged.
//!
//! Slots are arrays of `W` 32-bit words in the machine's byte order: 3 on a
//! transmit ring, 2 on a receive ring, 4 on a control ring. What the words mean
//! is the business of `grantway-netif`.
#![no_std]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod access;
pub mod back;
mod copy;
pub mod error;
pub mod front;
#[cfg(feature = "std")]
mod lasting;
pub mod memory;
pub mod page;
mod slice;

pub use access::{Fence, Index, RingMemory};
pub use back::Back;
pub use error::{BadIndices, Full, RingError, Unconsumed, Unseen};
pub use front::Front;
pub use memory::{OutOfPage, PAGE_SIZE, SharedPage, SharedRun};
pub use page::RingPage;
pub use slice::{VolatileSlice, VolatileSliceMut};
