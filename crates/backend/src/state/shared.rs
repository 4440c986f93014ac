//! What the queues of one vif share.

use crate::state::credit::Credit;
use crate::state::multicast::MulticastFilter;
use crate::state::stats::VifStats;
use crate::state::steer::SteeringCell;
use crate::state::trace::Tap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tells the time: [`Instant::now`], but in a simulation.
pub type Clock = fn() -> Instant;

/// Tells what the calling thread has used of its processor.
pub type Meter = fn() -> Duration;

/// What a worker thread does first. The error says why it must not serve.
pub type OnWorker = Arc<dyn Fn() -> std::io::Result<()> + Send + Sync>;

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
    /// Queues whose guest has posted nothing for much too long. Held while the carrier
    /// is made what follows from it.
    stalled: Mutex<u32>,
}

impl Shared {
    pub fn new(clock: Clock, tap: Tap) -> Self {
        let (stats, credit, multicast) =
            (VifStats::default(), Credit::default(), MulticastFilter::default());
        let (steering, stalled) = (SteeringCell::default(), Mutex::new(0));
        Self { clock, stats, credit, multicast, steering, tap, stalled }
    }

    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Nothing is stalled: a connection begins.
    pub fn begin(&self) {
        *self.stalled.lock().unwrap_or_else(PoisonError::into_inner) = 0;
    }

    /// A queue stalled, or no longer is. The vif's carrier is there while no queue is
    /// stalled: where that changes, `set_link` makes it so before the worker of another
    /// queue can change it again.
    ///
    /// # Errors
    ///
    /// What `set_link` says.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::VifId;
    use grantway_hypervisor::DomId;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn the_carrier_is_what_the_last_change_made_it() {
        let vif = VifId { domain: DomId(1), devid: 0 };
        let shared = Shared::new(Instant::now, Tap::new(Arc::default(), vif));
        let carrier = AtomicBool::new(true);
        let set_link = |up| {
            // Two workers at once: no change overtakes another.
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
