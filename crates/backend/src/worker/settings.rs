//! Settings of a backend, which its control thread and its workers read.

use super::meter::Meter;
use super::mode::WaitMode;
use crate::policy::PolicyLimits;
use crate::state::checksums::Checksums;
use crate::state::guest::Patience;
use crate::state::shared::{Clock, OnPlug, OnWorker};
use std::sync::Arc;
use std::time::Instant;

/// Settings of a backend. They do not change while it runs.
#[derive(Clone)]
pub struct Settings {
    /// The way in which workers wait.
    pub mode: WaitMode,
    /// Most queues that a vif may have, 1 to [`MAX_QUEUES`](crate::MAX_QUEUES).
    pub queues: u32,
    /// Patience with guests that post no pages.
    pub patience: Patience,
    /// Limits of the buffer policies.
    pub policy: PolicyLimits,
    /// True if segments from guests are merged for receivers that accept large frames, and large
    /// frames from ports are cut for guests that do not accept them.
    pub merge: bool,
    /// Checksums of vifs without a mark of their own. A [`RingServer`](crate::RingServer) goes by
    /// [`HandedVif::checksums`](crate::HandedVif::checksums).
    pub checksums: Checksums,
    /// True if hotplug scripts set up the interfaces, as under a Xen toolstack. A
    /// [`RingServer`](crate::RingServer) runs none.
    pub hotplug: bool,
    /// Source of the time.
    pub clock: Clock,
    /// Meter of a worker's processor time, or of its work. Queues of a worker share by this meter.
    pub meter: Meter,
    /// Function that each worker thread calls before it serves a queue. The function may give up
    /// rights that no turn needs. An error prevents the start.
    pub on_worker: OnWorker,
    /// Function that is called for a vif's events, if there are hotplug scripts. It must not block.
    pub on_plug: OnPlug,
}

impl Default for Settings {
    /// Returns settings for one queue per vif, with the way to wait that fits this machine, the
    /// system's clocks, merging, and no hotplug scripts.
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
