//! The guest's side of one vif, for a guest's driver or a unikernel to link.
//!
//! [`Vif`] negotiates over the store. A [`Queue`] sends and receives frames. With [`Vif::open`] one
//! thread runs a vif with all its queues. Otherwise a [`Runner`] has the queues and gives each to a
//! thread. Nothing here blocks, starts a thread or reads a clock: the caller waits on the event
//! channels and on the store, by whatever means it has, and calls [`Vif::store_changed`],
//! [`Vif::take_events`] and [`Vif::take_answers`]. [`Control`] is the control ring, which stays with
//! the owner of the vif; pages become staged by its answers.
//!
//! The backend is not trusted. Every response is copied once, and believed only after a check
//! against a private shadow of the request (XSA-376). Pages that the backend can reach are zeroed,
//! granted once, and shared with nothing else (XSA-403).
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
