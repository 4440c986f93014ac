//! State that the queues of one vif share.

use crate::ids::VifId;
use crate::state::credit::Credit;
use crate::state::multicast::MulticastFilter;
use crate::state::stats::{VifCounters, VifStats};
use crate::state::steer::SteeringCell;
use crate::state::trace::Tap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A clock: [`Instant::now`], except in a simulation.
pub type Clock = fn() -> Instant;

/// Function that each worker thread calls first. After an error the thread does not serve.
pub type OnWorker = Arc<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// Event of a vif, for the program that runs its hotplug script. A successor repeats an event if
/// the event may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlugEvent {
    /// The interface exists, and the script has not reported that it is done.
    Online,
    /// The interface is gone, and the script had reported that it was done.
    Remove,
}

/// Function that is called for a vif's events.
pub type OnPlug = Arc<dyn Fn(VifId, PlugEvent) + Send + Sync>;

/// State that the queues of one vif share, whichever workers they belong to.
pub(crate) struct Shared {
    clock: Clock,
    /// Counters of what the vif carried and dropped.
    pub counters: VifCounters,
    /// The limit of what the guest may send.
    pub credit: Credit,
    /// The filter of multicast frames for the guest.
    pub multicast: MulticastFilter,
    /// The queues that the guest wants its frames in.
    pub steering: SteeringCell,
    /// The trace to which its queues write, for a reader.
    pub tap: Tap,
    /// Time that frames of the vif took other workers.
    pub debt: Debt,
    /// Number of queues whose guest has posted no page for too long. The lock is held while the
    /// carrier is set by this number.
    stalled: Mutex<u32>,
}

/// Time that frames of a vif took other workers, before it is charged to one of the vif's queues.
#[derive(Default)]
pub(crate) struct Debt(AtomicU64);

impl Debt {
    /// Adds time.
    pub fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// Takes all of the time.
    #[inline]
    pub fn take(&self) -> Duration {
        let nanos = if self.0.load(Relaxed) == 0 { 0 } else { self.0.swap(0, Relaxed) };
        Duration::from_nanos(nanos)
    }
}

impl Shared {
    pub fn new(clock: Clock, tap: Tap) -> Self {
        let (counters, credit, multicast) =
            (VifCounters::default(), Credit::default(), MulticastFilter::default());
        let (steering, stalled) = (SteeringCell::default(), Mutex::new(0));
        Self { clock, counters, credit, multicast, steering, tap, debt: Debt::default(), stalled }
    }

    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Begins a connection, in which nothing is stalled.
    pub fn begin(&self) {
        *self.stalled.lock().unwrap_or_else(PoisonError::into_inner) = 0;
    }

    /// Notes that a queue stalled, or no longer is stalled. The vif's carrier is up while no queue
    /// is stalled. If that changes, `set_link` sets the carrier before the worker of another queue
    /// can change it again.
    ///
    /// # Errors
    ///
    /// The error of `set_link`.
    pub fn stalled_queue<E>(
        &self,
        stalled: bool,
        set_link: impl FnOnce(bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut queues = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *queues;
        *queues = if stalled { before + 1 } else { before.saturating_sub(1) };
        match (before, *queues) {
            (0, 1) => set_link(false),
            (1, 0) => set_link(true),
            _ => Ok(()),
        }
    }
}

/// The state of a vif, as one of its queues has it: with counters that only the queue's worker
/// writes.
pub(crate) struct QueueState {
    /// Counters of what the queue carried and dropped. They are part of the vif's.
    pub stats: Arc<VifStats>,
    vif: Arc<Shared>,
}

impl QueueState {
    pub fn new(vif: Arc<Shared>) -> Self {
        Self { stats: vif.counters.begin(), vif }
    }

    /// Returns the state of a vif that has this queue only.
    #[cfg(test)]
    pub fn alone(clock: Clock, tap: Tap) -> Self {
        Self::new(Arc::new(Shared::new(clock, tap)))
    }
}

impl Deref for QueueState {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.vif
    }
}

impl Drop for QueueState {
    fn drop(&mut self) {
        self.vif.counters.end(&self.stats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::VifId;
    use grantway_hypervisor::DomId;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn the_carrier_has_the_state_of_the_last_change() {
        let vif = VifId { domain: DomId(1), devid: 0 };
        let shared = Shared::new(Instant::now, Tap::new(Arc::default(), vif));
        let carrier = AtomicBool::new(true);
        let set_link = |up| {
            // Two workers change it at once: no change overtakes another.
            assert_ne!(carrier.swap(up, SeqCst), up);
            Ok::<(), ()>(())
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..40_000 {
                        shared.stalled_queue(n % 2 == 0, set_link).unwrap();
                    }
                });
            }
        });
        assert!(carrier.load(SeqCst));
        shared.stalled_queue(true, set_link).unwrap();
        assert!(!carrier.load(SeqCst));
    }

    #[test]
    fn no_other_queue_stalls_or_recovers_while_the_carrier_is_changed() {
        let vif = VifId { domain: DomId(1), devid: 0 };
        let shared = Shared::new(Instant::now, Tap::new(Arc::default(), vif));
        for stalled in [true, false] {
            let mut carrier = None;
            let set_link = |up| {
                assert!(shared.stalled.try_lock().is_err(), "another worker could change it");
                carrier = Some(up);
                Ok::<(), ()>(())
            };
            shared.stalled_queue(stalled, set_link).unwrap();
            assert_eq!(carrier, Some(!stalled));
        }
    }
}
