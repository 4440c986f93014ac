//! One way of a simulated link: a queue, a rate, a delay, and what netem does to frames.

use grantway_netif::Offload;
use grantway_testkit::Numbers;
use std::collections::{BTreeMap, VecDeque};

/// Properties of a way. All chances are in frames of a million.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// Bits per second.
    pub rate: u64,
    /// Time that a frame is under way, in nanoseconds.
    pub delay: u64,
    /// Frames that the queue before the wire holds (`txqueuelen`). Further ones are dropped.
    pub queue: usize,
    /// Chance that a frame is lost.
    pub loss: u32,
    /// Chance that a frame overtakes all that are under way, as netem's `reorder`.
    pub reorder: u32,
    /// Most time by which a frame is later than the delay says, in nanoseconds. It may be overtaken.
    pub jitter: u64,
}

impl Path {
    /// Returns true if chance decides what becomes of a frame.
    pub fn is_by_chance(&self) -> bool {
        self.loss > 0 || self.reorder > 0 || self.jitter > 0
    }
}

/// A frame under way.
pub struct Frame {
    pub bytes: Vec<u8>,
    pub offload: Offload,
}

/// One way of a link.
pub struct Wire {
    path: Path,
    numbers: Numbers,
    /// Times at which frames of the queue are on the wire, in nanoseconds.
    queued: VecDeque<u64>,
    /// Frames under way, by the time at which they arrive and by their order.
    under_way: BTreeMap<(u64, u64), Frame>,
    order: u64,
    /// Frames that found the queue full.
    pub dropped: u64,
    /// Frames that were lost.
    pub lost: u64,
}

impl Wire {
    pub fn new(path: Path, numbers: Numbers) -> Self {
        let (queued, under_way) = (VecDeque::new(), BTreeMap::new());
        Self { path, numbers, queued, under_way, order: 0, dropped: 0, lost: 0 }
    }

    /// Takes a frame at a time.
    pub fn send(&mut self, now: u64, frame: Frame) {
        while self.queued.front().is_some_and(|&at| at <= now) {
            self.queued.pop_front();
        }
        if self.queued.len() >= self.path.queue {
            self.dropped += 1;
            return;
        }
        let took = frame.bytes.len() as u64 * 8 * 1_000_000_000 / self.path.rate;
        let sent = self.queued.back().copied().unwrap_or(0).max(now) + took;
        self.queued.push_back(sent);
        if self.chance(self.path.loss) {
            self.lost += 1;
            return;
        }
        let late = match self.path.jitter {
            0 => 0,
            jitter => self.numbers.next() % jitter,
        };
        let delay = if self.chance(self.path.reorder) { 0 } else { self.path.delay + late };
        self.order += 1;
        self.under_way.insert((sent + delay, self.order), frame);
    }

    fn chance(&mut self, of_a_million: u32) -> bool {
        of_a_million > 0 && self.numbers.next() % 1_000_000 < u64::from(of_a_million)
    }

    /// Returns the next frame that has arrived.
    pub fn arrived(&mut self, now: u64) -> Option<Frame> {
        let first = self.under_way.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// Returns the time at which the next frame arrives.
    pub fn next(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }
}
