//! Serves vifs to frontends, in place of the kernel's netback.
//!
//! [`Backend`] lives on the control thread: it watches the store, lets each
//! vif's state machine act, and never touches a packet. A worker thread owns
//! the queues and moves the packets. What a guest does costs its own vif and
//! nothing else.
//!
//! A packet's way, guest transmit: `worker` gives a `queue` its turn;
//! `transmit` copies a burst of slots from the ring, parses the copies, has the
//! [`policy`] fetch the bytes, hands the frames to the port and answers every
//! slot once. Guest receive: `receive` takes frames from the port, one posted
//! page or more for each, has the policy store them, and answers at the same
//! ring indices.
//!
//! Who listens ([`Backend::listen`]) is shown the head of each packet that crosses a
//! ring, and when rings were full (`trace`).
//!
//! What a guest asks on its control ring is served on the control thread
//! (`ctrl`); the hash settings that come of it reach the queues through `steer`.
#![forbid(unsafe_code)]

mod backend;
mod bridge;
mod credit;
mod ctrl;
mod delivery;
mod error;
mod filter;
mod guest;
mod journal;
#[cfg(test)]
mod journal_tests;
mod lists;
mod merge;
mod multicast;
mod negotiate;
mod outlet;
pub mod policy;
mod queue;
mod receive;
mod refusals;
mod scratch;
mod shared;
mod stats;
mod steer;
mod succession;
mod trace;
mod transmit;
mod vif;
mod voice;
mod waiting;
mod work;
mod worker;

pub use backend::{
    Account, Backend, BackendConfig, CONTROL_WORK_MAX, OpenPort, PortRequest, VifReport,
};
pub use error::{StartError, VifError};
pub use journal::Tampered;
pub use lists::GraphReport;
pub use negotiate::MAX_QUEUES;
pub use queue::{QueueCounts, QueueReport, VifId};
pub use scratch::ARENA_PAGES;
pub use shared::{Clock, Meter, OnWorker};
pub use stats::{VifStats, VifStatsSnapshot};
pub use succession::{JOURNAL_PAGES, JournalError};
pub use trace::{TRACE_HEAD, TraceBatch, TraceKind, TraceReader, TraceRecord, TraceRing};
pub use waiting::{Patience, WAITING_MAX};
pub use worker::{ROUND_MAX, WaitMode, WorkerReport, processor_time};

/// Bytes of memory that frames may hold at most which wait for one queue: for its guest
/// to post pages, and on their way from the vif's other queues.
pub const QUEUE_MEMORY_MAX: usize = waiting::ALLOCATED_MAX + steer::ALLOCATED_MAX;
