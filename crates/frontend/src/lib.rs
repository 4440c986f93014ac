//! The guest's end of a vif: a netfront for a driver, a unikernel or a program to link.
//!
//! # When to use it
//!
//! - To give a guest that has no Linux kernel a Xen network interface.
//! - To take the place of xen-netfront in a Linux guest, from user space.
//!
//! `grantway-stack` adds TCP and UDP. For a guest without an operating system, `grantway-bare` is
//! the platform.
//!
//! # Example
//!
//! A guest of an embedded host opens its vif, and serves it turn by turn. `examples/echo.rs` adds a
//! backend and the wait.
//!
//! ```
//! use grantway_embedded::{Domain, Host, Role};
//! use grantway_frontend::{SendError, Vif, VifError, VifStatus, Wishes};
//! use grantway_hypervisor::{DomId, FrontendPlatform};
//! # use grantway_hypervisor::{Permission, Platform, Rights, Store, StoreOps};
//! use grantway_netif::Offload;
//! use std::sync::Arc;
//!
//! /// Sends each received frame back. Returns true if the caller must not wait.
//! fn turn(vif: &mut Vif, buf: &mut [u8]) -> Result<bool, VifError> {
//!     vif.store_changed()?; // negotiates
//!     vif.take_answers()?; // stages pages, if the backend offers staging
//!     vif.take_events()?;
//!     vif.reap()?; // takes buffers of sent frames back
//!     while let Some(received) = vif.recv(buf)? {
//!         match vif.send(&buf[..received.len], Offload::default()) {
//!             Ok(()) | Err(SendError::Full) => {}
//!             Err(error) => println!("not sent: {error}"),
//!         }
//!     }
//!     vif.flush()?;
//!     vif.arm() // asks for a signal, and looks once more
//! }
//!
//! let dir = tempfile::tempdir()?;
//! let _host = Host::spawn(dir.path())?;
//! # // A toolstack writes these nodes.
//! # let tools = Domain::connect(dir.path(), DomId(0), Role::Service)?;
//! # tools.create_domain(DomId(7), "guest")?;
//! # let mut store = tools.store()?;
//! # let (front, back) = ("/local/domain/7/device/vif/0", "/local/domain/0/backend/vif/7/0");
//! # for (folder, owner, reader) in [(front, 7, 0), (back, 0, 7)] {
//! #     store.write(folder, b"")?;
//! #     store.set_permissions(folder, &[
//! #         Permission { domain: DomId(owner), rights: Rights::None },
//! #         Permission { domain: DomId(reader), rights: Rights::Read },
//! #     ])?;
//! # }
//! # for (folder, key, value) in [
//! #     (front, "backend", back), (front, "backend-id", "0"), (front, "mac", "00:16:3e:00:00:01"),
//! #     (front, "state", "1"), (back, "frontend", front), (back, "frontend-id", "7"),
//! #     (back, "state", "1"),
//! # ] {
//! #     store.write(&format!("{folder}/{key}"), value.as_bytes())?;
//! # }
//! let guest: Arc<dyn FrontendPlatform> = Domain::connect(dir.path(), DomId(7), Role::Guest)?;
//! let mut vif = Vif::open(guest, 0, Wishes::default())?;
//! turn(&mut vif, &mut vec![0; 65_535])?;
//! assert_eq!(vif.status(), VifStatus::Waiting, "no backend runs yet");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types
//!
//! | Type | Content |
//! |---|---|
//! | [`Vif`] | one vif: its nodes in the store, its state, and its connections |
//! | [`Queue`] | one transmit ring and one receive ring |
//! | [`Runner`] | the code that runs the queues: [`Here`] (one thread), or an own one (many threads) |
//! | [`Control`] | the control ring, which stays with the owner of the vif |
//! | [`Wishes`], [`BackendFeatures`] | features that the guest asks for, and features that both ends use |
//! | [`LentFrame`], [`RxFrame`] | received frames in the pages that the backend wrote them to |
//! | [`VifError`], [`PeerError`], [`SendError`] | reasons why a vif or a frame cannot go on |
//!
//! With [`Vif::open`] one thread runs a vif with all its queues. With [`Vif::open_with`] a
//! [`Runner`] gets the queues of each connection, and may give each queue to a thread.
//!
//! # Guarantees and limits
//!
//! - No call waits for the backend, starts a thread or reads a clock. Only the store's answers are
//!   waited for. The caller waits for the store, the control ring and the event channels. Then it
//!   calls [`Vif::store_changed`], [`Vif::take_answers`] and [`Vif::take_events`].
//! - Each response is copied once, and checked against a private record of its request (XSA-376).
//! - Pages that the backend can reach are zeroed before they are granted, granted once, and shared
//!   with nothing else (XSA-403).
//! - A backend that breaks the protocol makes its vif [`VifStatus::Held`]. It never causes a panic.
//! - A queue grants 274 pages, and 402 once it was busy. The control ring grants 3.
//! - Frames have 14 to 65,535 bytes, and 4096 at most if the backend has no `feature-sg`.
//! - `no_std` with `alloc`. The feature `std` adds descriptors for `poll` and `epoll`.
//!
//! # What it is not
//!
//! - It is not a TCP/IP stack: `grantway-stack` has one.
//! - It has no event loop, and it prints nothing.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod buffers;
mod control;
mod demand;
mod error;
mod frame;
mod halves;
mod lent;
mod negotiate;
mod nodes;
mod pool;
mod queue;
mod receive;
mod refs;
mod runner;
mod staging;
mod stats;
mod transmit;
mod vif;

pub use control::{
    Answer, Control, HashRefusal, HashState, HashWish, StagingRefusal, StagingState, SubmitError,
    Ticket,
};
pub use error::{PeerError, SendError, VifError};
pub use frame::{LentFrame, RxFrame};
pub use grantway_netif::Policy;
pub use grantway_netif::xenbus::Reopen;
pub use negotiate::{BackendFeatures, Wishes};
pub use queue::Queue;
pub use receive::Received;
pub use runner::{Here, Runner};
pub use staging::{QueueStaging, StagingPage};
pub use stats::QueueStats;
pub use transmit::{TxFrame, TxMeta};
pub use vif::{Vif, VifStatus};

pub use grantway_ring::{VolatileSlice, VolatileSliceMut};
