//! One vif from the side of the guest: what a guest's driver or a unikernel
//! links.
//!
//! [`Vif`] negotiates over the store; a [`Queue`] sends and receives frames. One
//! thread may run a vif with all its queues, which is what [`Vif::open`] makes;
//! or a [`Runner`] has the queues and gives each to a thread. Nothing here
//! blocks, starts a thread or reads a clock: the caller waits on the event
//! channels and on the store, by whatever means it has, and calls
//! [`Vif::store_changed`] and [`Vif::take_events`]. [`Control`] is the control ring,
//! which stays with whoever has the vif.
//!
//! The backend is not trusted: every response is copied once, checked against
//! a private shadow of what was asked (XSA-376), and only then believed. Pages
//! that the backend can reach are zeroed, granted once, and shared with
//! nothing else (XSA-403).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod buffers;
mod control;
mod error;
mod frame;
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
pub use negotiate::{BackendFeatures, Wishes};
pub use queue::Queue;
pub use receive::Received;
pub use runner::{Here, Runner};
pub use staging::{QueueStaging, StagingPage};
pub use stats::QueueStats;
pub use transmit::{TxFrame, TxMeta};
pub use vif::{Vif, VifStatus};

pub use grantway_ring::{VolatileSlice, VolatileSliceMut};
