//! Steering by the hash settings of a guest: the queue of each frame, and the way to that queue
//! from the queue that the frame came to.
//!
//! Settings seldom change. A lock guards them, and a queue takes the lock only if their version
//! changed. A frame may belong to another queue, perhaps of another worker. Such a frame goes
//! through the lane of that queue, which is bounded in bytes.

use crate::bell::Bell;
use crate::ids::Key;
use crate::layout::HEAD;
use grantway_netif::hashing::Steering;
use grantway_netif::{Hash, Offload};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Bounds of the frames and bytes that may be on their way to one queue.
const LANE_FRAMES: usize = 1024;
const LANE_BYTES: usize = 1024 * 1024;

/// Most memory of one lane.
pub(crate) const ALLOCATED_MAX: usize = LANE_BYTES + LANE_FRAMES * size_of::<Passing>();

/// The settings of one vif, which its control ring passes to its queues.
///
/// Each queue reads the version for each frame. So counters of other code must not share its cache
/// line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct SteeringCell {
    /// Version of the settings. It changes after each change of them.
    version: AtomicU64,
    current: Mutex<Option<Arc<Steering>>>,
}

impl SteeringCell {
    /// Sets the settings from now on. With `None`, the backend chooses the queues.
    pub fn set(&self, steering: Option<Steering>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = steering.map(Arc::new);
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// The settings, as one queue has read them.
#[derive(Default)]
pub(crate) struct Steers {
    version: u64,
    held: Option<Arc<Steering>>,
}

impl Steers {
    /// Returns the settings as they are now.
    #[inline]
    fn look(&mut self, cell: &SteeringCell) -> Option<&Steering> {
        let version = cell.version.load(Ordering::Acquire);
        if version != self.version {
            self.renew(version, cell);
        }
        self.held.as_deref()
    }

    #[cold]
    fn renew(&mut self, version: u64, cell: &SteeringCell) {
        self.version = version;
        let current = cell.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.held.clone_from(&current);
    }

    /// Returns true if the guest set anything.
    #[inline]
    pub fn are_set(&mut self, cell: &SteeringCell) -> bool {
        self.look(cell).is_some()
    }

    /// Returns the hash that is sent with a frame, by the frame's first bytes. Returns `None` if
    /// the guest asked for none.
    #[inline]
    pub fn hash(&mut self, cell: &SteeringCell, frame: &[u8]) -> Option<Hash> {
        self.look(cell)?.hash(head(frame))
    }

    /// Returns the queue of a frame, by the frame's first bytes. Returns `None` if the guest leaves
    /// the choice to the backend.
    #[inline]
    pub fn queue(&mut self, cell: &SteeringCell, frame: &[u8]) -> Option<u16> {
        let steering = self.look(cell)?;
        Some(steering.queue(steering.hash(head(frame))))
    }
}

/// Returns the part of a frame by which its queue is chosen. On the bridge only this part is
/// private, and a flow must have the same queue there.
fn head(frame: &[u8]) -> &[u8] {
    frame.get(..HEAD).unwrap_or(frame)
}

/// A frame on its way.
struct Passing {
    bytes: Vec<u8>,
    offload: Offload,
}

/// The way to one queue. It is empty and takes no memory if the guest set no hash.
#[derive(Default)]
struct Lane {
    frames: Mutex<VecDeque<Passing>>,
    /// Bytes on their way.
    bytes: AtomicUsize,
    /// True if a frame may be on its way that the queue has not looked for.
    pending: AtomicBool,
    /// Wakes the worker that has the queue.
    bell: OnceLock<(Arc<Bell>, Key)>,
}

impl Lane {
    fn frames(&self) -> MutexGuard<'_, VecDeque<Passing>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame if there is room for it. Returns true if there was room.
    fn push(&self, frame: &[u8], offload: Offload) -> bool {
        let mut frames = self.frames();
        let fits = frames.len() < LANE_FRAMES;
        if fits {
            frames.push_back(Passing { bytes: frame.to_vec(), offload });
        }
        fits
    }
}

/// The lanes of a vif, as one queue has them.
pub(crate) struct LaneEnd {
    lanes: Arc<[Lane]>,
    own: usize,
}

/// Returns the ends of a connection's lanes, one for each queue.
pub(crate) fn lanes(queues: usize) -> Vec<LaneEnd> {
    let lanes: Arc<[Lane]> = (0..queues).map(|_| Lane::default()).collect();
    (0..queues).map(|own| LaneEnd { lanes: Arc::clone(&lanes), own }).collect()
}

impl LaneEnd {
    fn own(&self) -> Option<&Lane> {
        self.lanes.get(self.own)
    }

    /// Makes the bell ring for the queue of this key when a frame comes.
    pub fn wake_by(&self, bell: &Arc<Bell>, key: Key) {
        if let Some(lane) = self.own() {
            let _ = lane.bell.set((Arc::clone(bell), key));
        }
    }

    /// Sends a frame to its queue. Returns false if the frame was dropped.
    pub fn pass(&self, queue: u16, frame: &[u8], offload: Offload) -> bool {
        let Some(lane) = self.lanes.get(usize::from(queue)) else { return false };
        let len = frame.len();
        if lane.bytes.fetch_add(len, Ordering::Relaxed) + len > LANE_BYTES
            || !lane.push(frame, offload)
        {
            lane.bytes.fetch_sub(len, Ordering::Relaxed);
            return false;
        }
        // Set after the frame is in the lane, so that a reader of the flag finds the frame.
        if !lane.pending.swap(true, Ordering::AcqRel)
            && let Some((bell, key)) = lane.bell.get()
        {
            bell.ring_for(*key);
        }
        true
    }

    /// Returns true if a frame may have come that was not looked for.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.own().is_some_and(|lane| lane.pending.load(Ordering::Acquire))
    }

    /// Moves the next frame that came to the start of `room`. Returns its length and offload.
    pub fn take(&self, room: &mut [u8]) -> Option<(usize, Offload)> {
        let lane = self.own()?;
        // Cleared before the look: a frame that comes after it sets the flag again.
        if !lane.pending.load(Ordering::Relaxed) || !lane.pending.swap(false, Ordering::AcqRel) {
            return None;
        }
        let Passing { bytes, offload } = lane.frames().pop_front()?;
        lane.pending.store(true, Ordering::Release);
        lane.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        room.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some((bytes.len(), offload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::VifId;
    use grantway_hypervisor::DomId;
    use std::collections::BTreeSet;

    #[test]
    fn frames_reach_their_queue_in_order_and_ring_once() {
        let ends = lanes(2);
        let bell = Arc::new(Bell::new().unwrap());
        let key = (VifId { domain: DomId(7), devid: 0 }, 1);
        ends[1].wake_by(&bell, key);
        assert_eq!(bell.hush(), BTreeSet::new());
        let mut room = vec![0; 4096];
        assert_eq!(ends[1].take(&mut room), None);
        for n in 0..3 {
            assert!(ends[0].pass(1, &[n; 60], Offload::default()));
        }
        assert_eq!(rustix::io::read(&bell, &mut [0; 8]), Ok(8));
        for n in 0..3 {
            assert!(ends[1].is_pending());
            assert_eq!(ends[1].take(&mut room), Some((60, Offload::default())));
            assert_eq!(room[0], n);
        }
        assert_eq!((ends[1].take(&mut room), ends[1].is_pending()), (None, false));
        assert!(ends[0].pass(1, &[9; 60], Offload::default()));
        assert_eq!(rustix::io::read(&bell, &mut [0; 8]), Ok(8), "rung anew");
        assert_eq!(bell.hush(), BTreeSet::from([key]));
        assert_eq!(bell.hush(), BTreeSet::new());
        assert!(!ends[0].pass(2, &[9; 60], Offload::default()), "no such queue");
    }

    #[test]
    fn frames_on_their_way_are_bounded_and_delivered_ones_free_room() {
        let ends = lanes(2);
        let frame = vec![1; 65_000];
        let sent = |ends: &[LaneEnd]| {
            (0..100).filter(|_| ends[0].pass(1, &frame, Offload::default())).count()
        };
        let allocated = || {
            let frames = ends[1].own().unwrap().frames();
            let bytes: usize = frames.iter().map(|frame| frame.bytes.capacity()).sum();
            bytes + frames.capacity() * size_of::<Passing>()
        };
        let most = LANE_BYTES / frame.len();
        assert_eq!(sent(&ends), most);
        assert!(allocated() <= ALLOCATED_MAX);
        let mut room = vec![0; 65_536];
        while ends[1].take(&mut room).is_some() {}
        assert_eq!(sent(&ends), most);
        while ends[1].take(&mut room).is_some() {}
        let small = (0..2000).filter(|_| ends[0].pass(1, &[0; 60], Offload::default())).count();
        assert_eq!(small, LANE_FRAMES);
        assert!(allocated() <= ALLOCATED_MAX);
    }
}
