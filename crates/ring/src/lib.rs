//! The shared ring of Xen, and memory that a peer can write at any time.
//!
//! # When to use it
//!
//! - To write the frontend or the backend of a Xen protocol that uses the rings of `xen/io/ring.h`,
//!   with one page per ring and slots of a fixed number of 32-bit words.
//! - To read and write granted pages without a Rust reference into them ([`SharedPage`],
//!   [`VolatileSlice`]).
//!
//! # Example
//!
//! Both ends of a ring, in one process.
//!
//! ```
//! use grantway_ring::{Back, Front, RingPage, SharedRun};
//!
//! // A transmit ring of netif: slots of 3 words. A frontend grants this page to its backend.
//! let run = SharedRun::private(1);
//! let page = run.page(0).expect("a run of one page");
//! let mut front = Front::init(RingPage::<3>::new(page.clone()));
//! let mut back = Back::new(RingPage::<3>::new(page));
//!
//! // The frontend writes a request. publish() shows it, and returns true if the backend waits.
//! let index = front.push([7, 0, 64])?;
//! assert!(front.publish(), "notify the backend");
//!
//! // The backend takes a private copy, and answers.
//! let (at, words) = back.pop()?.expect("one request");
//! assert_eq!((at, words), (index, [7, 0, 64]));
//! back.push_response([0; 3])?;
//! assert!(back.publish(), "notify the frontend");
//! assert_eq!(front.pop()?, Some((index, [0; 3])));
//!
//! // Before a wait: ask for an event, and look again.
//! assert!(!back.arm()?, "no request came, so the backend may sleep");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | Module | Content |
//! |---|---|
//! | [`front`], [`back`] | the two ends of a ring |
//! | [`page`] | the ring page, in the layout of `xen/io/ring.h` |
//! | [`access`] | the interface between an end and its memory, and the eight [`Fence`]s |
//! | [`memory`] | pages and runs of pages that a peer can write |
//! | [`error`] | faults of the peer, and faults of the caller |
//!
//! # Guarantees and limits
//!
//! - No Rust reference (`&`, `&mut`) to shared memory exists, except to the atomic index words.
//!   Accesses are volatile, atomic or assembly, and the caller gets a copy.
//! - All volatile accesses and all fences of the project are in this crate.
//! - loom explores both ends in every order of their accesses (`tests/loom.rs`). The ends are
//!   generic over [`RingMemory`], so the tested code is the code that runs: only the memory below
//!   it differs.
//! - An index that no honest peer can have written is an error value ([`RingError`]).
//! - A ring has one page. Its slots are arrays of `W` 32-bit words in the byte order of the
//!   machine: 3 words on a transmit ring, 2 on a receive ring, 4 on a control ring.
//!
//! # What it is not
//!
//! - It does not know the meaning of the words: `grantway-netif` has it for netif.
//! - It makes no grants, and sends no events: `grantway-hypervisor` has the traits for both.
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
