//! Settings of a backend, which its control thread and its workers read.

use super::meter::Meter;
use super::mode::WaitMode;
use crate::policy::PolicyLimits;
use crate::state::checksums::Checksums;
use crate::state::guest::Patience;
use crate::state::shared::{Clock, OnPlug, OnWorker};
use std::sync::Arc;
use std::time::Instant;

/// Settings of a backend. They stay as they are while it runs.
#[derive(Clone)]
pub struct Settings {
    /// Way in which workers wait.
    pub mode: WaitMode,
    /// Most queues that a vif may have, 1 to [`MAX_QUEUES`](crate::MAX_QUEUES).
    pub queues: u32,
    /// Patience with guests that post no pages.
    pub patience: Patience,
    /// Limits on the ways in which buffers cross.
    pub policy: PolicyLimits,
    /// True if TCP segments from guests are merged for receivers that accept large frames, and
    /// large frames from ports are cut for guests that do not.
    pub merge: bool,
    /// Checksums of vifs that have no mark of their own.
    pub checksums: Checksums,
    /// True if hotplug scripts set interfaces up, as under a Xen toolstack.
    pub hotplug: bool,
    /// Source of the time.
    pub clock: Clock,
    /// Meter of a worker's processor time, by which its queues share the processor, or of its work.
    pub meter: Meter,
    /// Function that each worker thread calls before it serves a queue. The function may give up
    /// rights that no turn needs. An error ends the start.
    pub on_worker: OnWorker,
    /// Function that is called for a vif's events, with hotplug scripts. It must not block.
    pub on_plug: OnPlug,
}

impl Default for Settings {
    /// One queue per vif, the waiting that fits this machine, the system's clocks, merging on, and
    /// no hotplug scripts.
    fn default() -> Self {
        Self {
            mode: WaitMode::fitting(),
            queues: 1,
            patience: Patience::default(),
            policy: PolicyLimits::default(),
            merge: true,
            checksums: Checksums::Offload,
            hotplug: false,
            clock: Instant::now,
            meter: Meter::PROCESSOR,
            on_worker: Arc::new(|| Ok(())),
            on_plug: Arc::new(|_, _| ()),
        }
    }
}
