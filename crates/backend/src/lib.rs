//! The host's end of a vif: a netback in user space, in place of the kernel's.
//!
//! # When to use it
//!
//! - To serve the vifs of Xen guests from your own program.
//! - To connect each vif to a [`Port`](grantway_ports::Port) of your own, or the vifs to each other
//!   by a bridge with rules.
//! - To serve rings that your own toolstack hands over, without a store ([`RingServer`]).
//!
//! For a backend with options, reports and a sandbox, run the command `grantway backend`.
//!
//! # Example
//!
//! A backend of an embedded host, and a guest that sends it a frame. The port sends the frame back.
//! `examples/server.rs` has a loop that sleeps.
//!
//! ```
//! use grantway_backend::{Backend, BackendConfig, OpenPort};
//! use grantway_embedded::{Domain, Host, Role};
//! use grantway_frontend::{Vif, VifStatus, Wishes};
//! use grantway_hypervisor::{DomId, FrontendPlatform, Platform};
//! # use grantway_hypervisor::{Permission, Rights, Store, StoreOps};
//! use grantway_netif::Offload;
//! use grantway_ports::Echo;
//! use grantway_vector::Secret;
//! use std::sync::Arc;
//!
//! let dir = tempfile::tempdir()?;
//! let _host = Host::spawn(dir.path())?;
//! let platform: Arc<dyn Platform> = Domain::connect(dir.path(), DomId(0), Role::Service)?;
//! let config = BackendConfig::new(dir.path(), Secret::random()?);
//! let open_port: OpenPort = Box::new(|_| Ok(Box::new(Echo::new())));
//! let mut backend = Backend::start(platform, config, open_port)?;
//!
//! # // A toolstack makes the domain, and writes these nodes.
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
//! #     (back, "online", "1"), (back, "state", "1"),
//! # ] {
//! #     store.write(&format!("{folder}/{key}"), value.as_bytes())?;
//! # }
//! let guest: Arc<dyn FrontendPlatform> = Domain::connect(dir.path(), DomId(7), Role::Guest)?;
//! let mut vif = Vif::open(guest, 0, Wishes::default())?;
//! while vif.status() != VifStatus::Connected {
//!     backend.step()?; // This thread negotiates. A worker thread moves the frames.
//!     vif.store_changed()?;
//! }
//! vif.send(&[0xff; 60], Offload::default())?;
//! vif.flush()?;
//! let mut buf = vec![0; 65_535];
//! let echo = loop {
//!     backend.step()?;
//!     vif.take_answers()?;
//!     if let Some(received) = vif.recv(&mut buf)? {
//!         break received;
//!     }
//! };
//! assert_eq!(echo.len, 60);
//! assert_eq!(backend.report().next().expect("one vif").stats.tx_packets, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! - The control thread has the [`Backend`]. It watches the store, negotiates with each guest, and
//!   serves the control rings. It never touches a packet.
//! - Worker threads own the queues and move the packets, one turn of a queue after the other
//!   (`worker`, `turn::queue`).
//! - From a guest: a turn copies a burst of slots from the ring and checks the copies. The
//!   [`policy`] fetches the bytes, the port takes the frames, and each slot is answered once
//!   (`turn::transmit`).
//! - To a guest: a turn takes frames from the port, and chooses posted pages for each. The policy
//!   stores the bytes, and the slots are answered (`turn::receive`).
//! - Hash settings of a guest reach its queues through `state::steer`.
//! - A [`TraceReader`] gets the head of each packet, and the times at which rings were full.
//!
//! # Types
//!
//! | Type | Content |
//! |---|---|
//! | [`Backend`], [`BackendConfig`], [`Settings`] | the backend, and its configuration |
//! | [`RingServer`], [`HandedVif`], [`FrontendKeys`] | a backend that is handed its rings, without a store |
//! | [`OpenPort`], [`PortRequest`] | the function that opens the port of a vif |
//! | [`policy::PolicyLimits`] | the best buffer policy, and the limits of mapped memory |
//! | [`VifReport`], [`QueueReport`], [`WorkerReport`], [`GraphReport`] | reports |
//! | [`StartError`], [`VifError`] | reasons why a backend does not start, or a vif is not served |
//!
//! # Guarantees and limits
//!
//! - A guest can harm only its own vif. Its work, its mapped memory and its queued frames are
//!   limited: [`ROUND_MAX`], [`CONTROL_WORK_MAX`], [`QUEUE_PAGES`], [`QUEUE_MEMORY_MAX`].
//! - Each slot is copied once and checked, and each request is answered once.
//! - A process that is killed leaves its connections to a successor, by journals in the run folder.
//! - An error of one vif ends only that vif. [`Backend::step`] fails only if the platform, the store
//!   or a worker is gone.
//! - A vif has at most [`MAX_QUEUES`] queues.
//!
//! # What it is not
//!
//! - It parses no options, prints nothing and makes no sandbox: the command `grantway backend`
//!   does.
//! - It is not a toolstack: it attaches no vifs.
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

pub use control::asked::CONTROL_WORK_MAX;
pub use control::backend::Backend;
pub use control::config::BackendConfig;
pub use control::handed::{HandedVif, Refused, RingServer};
pub use control::negotiate::Offer;
pub use control::published::FrontendKeys;
pub use control::report::{Account, VifReport};
pub use control::succession::JOURNAL_PAGES;
pub use control::surroundings::{OpenPort, PortRequest};
pub use error::{StartError, VifError};
pub use ids::{CtrlRefs, MAX_QUEUES, QUEUE_PAGES, QueueRefs, VifId};
pub use journal::{JournalError, Tampered};
pub use layout::ARENA_PAGES;
pub use state::checksums::Checksums;
pub use state::credit::Rate;
pub use state::guest::Patience;
pub use state::shared::{Clock, OnPlug, OnWorker, PlugEvent};
pub use state::stats::{VifStats, VifStatsSnapshot};
pub use state::trace::{TRACE_HEAD, TraceBatch, TraceKind, TraceReader, TraceRecord, TraceRing};
pub use turn::lists::GraphReport;
pub use turn::queue::{QueueCounts, QueueReport};
pub use turn::waiting::WAITING_MAX;
pub use worker::{Idle, Meter, Pace, ROUND_MAX, Settings, Still, WaitMode, WorkerReport};

/// Most bytes of memory for frames that wait for one queue: until its guest posts pages, or on
/// their way from other queues of the vif.
pub const QUEUE_MEMORY_MAX: usize = turn::waiting::ALLOCATED_MAX + state::steer::ALLOCATED_MAX;
