//! The backend, which serves vifs to frontends in place of the kernel's netback.
//!
//! [`Backend`] lives on the control thread. It watches the store, lets each vif's state machine
//! act, and never touches a packet. A worker thread owns the queues and moves the packets. The acts
//! of a guest cost its own vif and nothing else.
//!
//! The way of a packet, for guest transmit: `worker` gives a `turn::queue` its turn.
//! `turn::transmit` copies a burst of slots from the ring, parses the copies, and has the
//! [`policy`] fetch the bytes. Then it hands the frames to the port and answers every slot once.
//! For guest receive, `turn::receive` takes frames from the port, one posted page or more for each.
//! It has the policy store them, and answers at the same ring indices.
//!
//! A listener ([`Backend::listen`]) reads the head of each packet that crosses a ring, and the
//! moments at which rings were full (`state::trace`).
//!
//! The control thread serves the requests on a guest's control ring (`control::ctrl`). The hash
//! settings of these requests reach the queues through `state::steer`.
#![forbid(unsafe_code)]

mod bell;
mod bridge;
mod control;
mod error;
mod ids;
mod journal;
#[cfg(test)]
mod journal_tests;
mod layout;
pub mod policy;
mod rings;
mod state;
mod turn;
mod worker;

pub use control::backend::{Account, Backend, BackendConfig, CONTROL_WORK_MAX, VifReport};
pub use control::succession::JOURNAL_PAGES;
pub use control::surroundings::{OpenPort, PortRequest};
pub use error::{StartError, VifError};
pub use ids::{MAX_QUEUES, QUEUE_PAGES, VifId};
pub use journal::{JournalError, Tampered};
pub use layout::ARENA_PAGES;
pub use state::checksums::Checksums;
pub use state::guest::Patience;
pub use state::shared::{Clock, OnPlug, OnWorker, PlugEvent};
pub use state::stats::{VifStats, VifStatsSnapshot};
pub use state::trace::{TRACE_HEAD, TraceBatch, TraceKind, TraceReader, TraceRecord, TraceRing};
pub use turn::lists::GraphReport;
pub use turn::queue::{QueueCounts, QueueReport};
pub use turn::waiting::WAITING_MAX;
pub use worker::{Idle, Meter, Pace, ROUND_MAX, Settings, Still, WaitMode, WorkerReport};

/// Most bytes of memory that frames hold that wait for one queue: for its guest to post pages, and
/// on their way from the vif's other queues.
pub const QUEUE_MEMORY_MAX: usize = turn::waiting::ALLOCATED_MAX + state::steer::ALLOCATED_MAX;
