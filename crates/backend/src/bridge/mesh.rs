//! The mesh: the way of frames and news between the workers of one bridge.
//!
//! A guest's rings belong to one worker. Frames for a guest of another worker go into the inbox of
//! that worker as a [`Bundle`], in private memory. A worker with too many frames in the inbox of
//! another begins no turn on the bridge until there is room. So the frames stay on their guests'
//! rings, and none is lost. A worker that empties its inbox never waits for another, so no worker
//! waits for ever.
//!
//! Each inbox is emptied in the order in which it was filled. News have a way of their own. They
//! arrive before any frame of their turn: a worker reads them before its next turn.

use super::bundle::Bundle;
use crate::bell::Bell;
use crate::turn::work;
use grantway_vector::News;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes, as allocated, that one worker may have in the inbox of another before it begins no
/// further turn. The last turn may add as much as its work allows.
const BYTES_MAX: usize = 1024 * 1024;
/// Work of its bundles there, by their prices, from which it begins none either: so a frame to
/// another worker waits for half a turn's work of each worker, and for one turn, at most.
const WORK_MAX: usize = work::TURN as usize / 2;
/// News in an inbox from which no worker begins a turn. Each worker's last turn may add two for
/// each of its frames.
const NEWS_MAX: usize = 4096;

/// The share of one worker in the inbox of another.
#[derive(Default)]
struct Share {
    /// Bytes of its bundles, as allocated.
    bytes: AtomicUsize,
    /// Work of its bundles.
    work: AtomicUsize,
    /// True if it waits for room.
    waits: AtomicBool,
    /// Bundles that were taken and are empty, for their memory.
    spare: Mutex<Vec<Bundle>>,
}

impl Share {
    fn is_above(&self, bytes: usize, work: usize) -> bool {
        self.bytes.load(SeqCst) >= bytes || self.work.load(SeqCst) >= work
    }
}

/// Everything for one worker.
struct Inbox {
    /// Bundles, each with the worker that it came from and its work.
    bundles: Mutex<VecDeque<(usize, u32, Bundle)>>,
    /// Number of the bundles.
    count: AtomicUsize,
    news: Mutex<Vec<News>>,
    /// Number of the news.
    told: AtomicUsize,
    /// The shares of the other workers, by their numbers.
    shares: Box<[Share]>,
    /// True while the worker sleeps, or is about to: then its bell has to be rung.
    asleep: AtomicBool,
    bell: Arc<Bell>,
}

impl Inbox {
    fn new(bell: &Arc<Bell>, workers: usize) -> Self {
        Self {
            bundles: Mutex::default(),
            count: AtomicUsize::new(0),
            news: Mutex::default(),
            told: AtomicUsize::new(0),
            shares: (0..workers).map(|_| Share::default()).collect(),
            asleep: AtomicBool::new(false),
            bell: Arc::clone(bell),
        }
    }

    fn is_full_for(&self, worker: usize) -> bool {
        let share = self.shares.get(worker);
        share.is_some_and(|share| share.is_above(BYTES_MAX, WORK_MAX))
            || self.told.load(SeqCst) >= NEWS_MAX
    }

    /// Returns true if its worker must not sleep, because there are frames, or so much news that
    /// others may soon have to wait.
    fn is_urgent(&self) -> bool {
        self.count.load(SeqCst) > 0 || self.told.load(SeqCst) >= NEWS_MAX / 2
    }

    /// Wakes its worker if it sleeps.
    fn wake(&self) {
        // What is urgent is counted before the flag is read; `falls_asleep` sets the flag before it
        // looks for that. So one of the two sees the other.
        if self.asleep.swap(false, SeqCst) {
            self.bell.ring();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One worker's end of the mesh.
pub(crate) struct Mesh {
    own: usize,
    inboxes: Arc<[Inbox]>,
}

/// Returns the ends of the workers that have these bells.
pub(crate) fn mesh(bells: &[Arc<Bell>]) -> Vec<Mesh> {
    let inboxes: Arc<[Inbox]> = bells.iter().map(|bell| Inbox::new(bell, bells.len())).collect();
    (0..bells.len()).map(|own| Mesh { own, inboxes: Arc::clone(&inboxes) }).collect()
}

impl Mesh {
    /// Returns the number of this worker.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.inboxes.len()
    }

    /// Returns true if there are other workers.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.inboxes.len() > 1
    }

    fn inbox(&self) -> Option<&Inbox> {
        self.inboxes.get(self.own).filter(|_| self.is_shared())
    }

    fn others(&self) -> impl Iterator<Item = &Inbox> {
        let others = self.inboxes.iter().enumerate().filter(|&(number, _)| number != self.own);
        others.map(|(_, inbox)| inbox)
    }

    /// Tells all other workers of what frames taught.
    pub fn tell(&self, news: &[News]) {
        for inbox in self.others().filter(|_| !news.is_empty()) {
            let mut all = lock(&inbox.news);
            all.extend_from_slice(news);
            inbox.told.store(all.len(), SeqCst);
            drop(all);
            if inbox.is_urgent() {
                inbox.wake();
            }
        }
    }

    /// Returns true if other workers told news.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.inbox().is_some_and(|inbox| inbox.told.load(SeqCst) > 0)
    }

    /// Takes all news into `room`, whose own go.
    pub fn hear(&self, room: &mut Vec<News>) {
        let Some(inbox) = self.inbox() else { return };
        room.clear();
        let mut all = lock(&inbox.news);
        std::mem::swap(room, &mut all);
        inbox.told.store(0, SeqCst);
        drop(all);
        (0..self.workers()).for_each(|worker| self.lets_go_on(worker));
    }

    /// Hands what is in a bundle to another worker, and wakes it if it sleeps. The bundle is empty
    /// then. `work` is its price.
    pub fn push(&self, to: usize, bundle: &mut Bundle, work: u32) {
        let Some(inbox) = self.inboxes.get(to) else { return };
        let Some(share) = inbox.shares.get(self.own) else { return };
        let empty = lock(&share.spare).pop().unwrap_or_default();
        let bundle = std::mem::replace(bundle, empty);
        let mut bundles = lock(&inbox.bundles);
        share.bytes.fetch_add(bundle.allocated(), SeqCst);
        share.work.fetch_add(work as usize, SeqCst);
        bundles.push_back((self.own, work, bundle));
        inbox.count.store(bundles.len(), SeqCst);
        drop(bundles);
        inbox.wake();
    }

    /// Gives the memory of a bundle that was taken back to the worker that it came from.
    pub fn give_back(&self, from: usize, mut bundle: Bundle) {
        let Some(share) = self.inbox().and_then(|inbox| inbox.shares.get(from)) else { return };
        bundle.clear();
        let mut spare = lock(&share.spare);
        // As much as may be under way, and no more.
        let kept: usize = spare.iter().map(Bundle::allocated).sum();
        if kept + bundle.allocated() <= BYTES_MAX {
            spare.push(bundle);
        }
    }

    /// Takes the next bundle for this worker, with the number of the worker that it came from and
    /// its work.
    pub fn pop(&self) -> Option<(usize, u32, Bundle)> {
        let inbox = self.inbox().filter(|inbox| inbox.count.load(SeqCst) > 0)?;
        let mut bundles = lock(&inbox.bundles);
        let (from, work, bundle) = bundles.pop_front()?;
        inbox.count.store(bundles.len(), SeqCst);
        drop(bundles);
        if let Some(share) = inbox.shares.get(from) {
            share.bytes.fetch_sub(bundle.allocated(), SeqCst);
            share.work.fetch_sub(work as usize, SeqCst);
        }
        self.lets_go_on(from);
        Some((from, work, bundle))
    }

    /// Wakes a worker that waits for room in this worker's inbox, if there is enough to be worth it.
    fn lets_go_on(&self, worker: usize) {
        let Some(share) = self.inbox().and_then(|inbox| inbox.shares.get(worker)) else { return };
        if share.waits.load(SeqCst)
            && !share.is_above(BYTES_MAX / 2, WORK_MAX / 2)
            && share.waits.swap(false, SeqCst)
            && let Some(waiting) = self.inboxes.get(worker)
        {
            waiting.bell.ring();
        }
    }

    /// Returns the number of bundles for this worker.
    pub fn bundles(&self) -> usize {
        self.inbox().map_or(0, |inbox| inbox.count.load(SeqCst))
    }

    /// Returns true if there are bundles for this worker.
    #[inline]
    pub fn has_bundles(&self) -> bool {
        self.inbox().is_some_and(|inbox| inbox.count.load(SeqCst) > 0)
    }

    /// Returns true if a turn on the bridge may not begin, for want of room in an inbox.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.others().any(|inbox| inbox.is_full_for(self.own))
    }

    /// Asks for a ring of this worker's bell when there is room. Returns false if there is room
    /// already.
    pub fn waits_for_room(&self) -> bool {
        let mut waits = false;
        for inbox in self.others().filter(|inbox| inbox.is_full_for(self.own)) {
            let Some(share) = inbox.shares.get(self.own) else { continue };
            share.waits.store(true, SeqCst);
            // What was taken before the flag was set rings for nobody.
            waits |= inbox.is_full_for(self.own);
        }
        waits
    }

    /// Notes that the worker is about to sleep. Returns false if it must not.
    pub fn falls_asleep(&self) -> bool {
        let Some(inbox) = self.inbox() else { return true };
        inbox.asleep.store(true, SeqCst);
        let sleeps = !inbox.is_urgent();
        if !sleeps {
            inbox.asleep.store(false, SeqCst);
        }
        sleeps
    }

    /// Notes that the worker does not sleep any more.
    pub fn wakes(&self) {
        if let Some(inbox) = self.inbox() {
            inbox.asleep.store(false, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests;
