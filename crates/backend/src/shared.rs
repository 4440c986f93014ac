//! What the queues of one vif share.

use crate::credit::Credit;
use crate::multicast::MulticastFilter;
use crate::stats::VifStats;
use crate::steer::SteeringCell;
use crate::trace::Tap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Tells the time: [`Instant::now`], but in a simulation.
pub type Clock = fn() -> Instant;

/// Tells what the calling thread has used of its processor.
pub type Meter = fn() -> Duration;

/// What the queues of one vif share, whichever workers they belong to.
pub(crate) struct Shared {
    clock: Clock,
    /// What it carried and dropped.
    pub stats: VifStats,
    /// What the guest may send.
    pub credit: Credit,
    /// Which multicast frames the guest wants.
    pub multicast: MulticastFilter,
    /// Where the guest wants its frames.
    pub steering: SteeringCell,
    /// Where its queues say what they do, for who listens.
    pub tap: Tap,
    /// Queues whose guest has posted nothing for much too long.
    stalled: AtomicU32,
}

impl Shared {
    pub fn new(clock: Clock, tap: Tap) -> Self {
        let (stats, credit, multicast) =
            (VifStats::default(), Credit::default(), MulticastFilter::default());
        let (steering, stalled) = (SteeringCell::default(), AtomicU32::new(0));
        Self { clock, stats, credit, multicast, steering, tap, stalled }
    }

    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Nothing is stalled: a connection begins.
    pub fn begin(&self) {
        self.stalled.store(0, Relaxed);
    }

    /// A queue stalled, or no longer is; whether the vif's carrier changes by it:
    /// it is there while no queue is stalled.
    pub fn stalled_queue(&self, stalled: bool) -> bool {
        match stalled {
            true => self.stalled.fetch_add(1, Relaxed) == 0,
            false => self.stalled.fetch_sub(1, Relaxed) == 1,
        }
    }
}
