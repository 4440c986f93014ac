//! Pages that are mapped for packets on their way to a port, and the answers that wait for the
//! unmapping.
//!
//! Unmapping is done for many pages at once: when [`UNANSWERED_MOST`] slots wait, when the guest is
//! about to run out of slots, when it sent nothing in a turn, when the queue is to wait for others,
//! and at the latest at the first turn after [`UNANSWERED_LONGEST`]. A queue is never armed with
//! answers that wait.

use crate::layout::{HEAD, RING_SLOTS};
use crate::policy::{Map, Stretch};
use crate::state::stats::VifStats;
use crate::turn::batch::TxBatch;
use crate::turn::outgoing::Gather;
use grantway_hypervisor::GrantRef;
use grantway_netif::slots::tx::{SLOTS_SENT, TxFragment};
use std::time::{Duration, Instant};

/// Slots that wait to be answered before pages are unmapped for it: half a ring,
/// so that the guest has the other half to fill.
const UNANSWERED_MOST: usize = RING_SLOTS / 2;
/// Longest time that the first waiting answer waits while packets keep coming.
const UNANSWERED_LONGEST: Duration = Duration::from_micros(100);
/// Slots that the guest is to have free: a guest stops to send when it has fewer
/// than its longest packet takes, and one more packet is to go meanwhile.
const FREE_LEAST: usize = 2 * (SLOTS_SENT + 2);

/// Pages that a queue maps for its port, and the answers that wait for the unmapping.
pub(crate) struct Stretches {
    map: Map,
    pub all: Vec<Stretch>,
    /// Stretches of each packet of the turn: the first, and one past the last. The range is empty
    /// if no page is mapped for the packet.
    pub of: Vec<(usize, usize)>,
    /// Packets that are copied, as they are brought into private memory.
    pub copied: Gather,
    /// Answers that wait, in the order of the ring.
    answers: Vec<[u32; 3]>,
    /// Since when the first of them does.
    since: Option<Instant>,
}

impl Stretches {
    pub fn new(map: Map) -> Self {
        let (all, of, answers) = (Vec::new(), Vec::new(), Vec::new());
        Self { map, all, of, copied: Gather::default(), answers, since: None }
    }

    /// Pages that are mapped now.
    #[cfg(test)]
    pub fn mapped(&self) -> usize {
        self.map.mapped()
    }

    /// Ends a turn; see [`Map::end_turn`].
    pub fn end_turn(&mut self, idle: bool) {
        self.map.end_turn(idle);
    }

    /// Answers that wait.
    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    /// Returns true if answers wait.
    pub fn owe(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Returns true if the answers of a turn have to wait: pages are mapped for its packets, or for
    /// packets before them.
    pub fn are_used(&self) -> bool {
        self.map.mapped() > 0 || self.owe()
    }

    /// Adds answers that wait.
    pub fn wait(&mut self, answers: &[[u32; 3]]) {
        self.answers.extend_from_slice(answers);
    }

    /// Returns true if the waiting answers are to be given now. `shown` is the number of further
    /// requests that the guest has shown.
    pub fn are_due(&mut self, shown: usize, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let slots = self.answers.len();
        slots >= UNANSWERED_MOST
            || slots + shown > RING_SLOTS - FREE_LEAST
            || now.saturating_duration_since(since) >= UNANSWERED_LONGEST
    }

    /// Unmaps all pages. Returns the answers that may be given from here on.
    pub fn unmap(&mut self) -> &[[u32; 3]] {
        // A turn that failed leaves pages named here.
        self.all.clear();
        self.map.unmap();
        &self.answers
    }

    /// Forgets the answers, which were given.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.since = None;
    }

    /// Begins a turn of `packets` packets. No page is mapped for them yet.
    pub fn begin(&mut self, packets: usize) {
        self.all.clear();
        self.of.clear();
        self.of.resize(packets, (0, 0));
    }

    /// Lists the pages that are to be mapped: of whole packets, as far as there is room.
    pub fn list(&mut self, batch: &TxBatch) {
        let room = self.map.room();
        for packet in batch.all_outgoing(HEAD).filter(|packet| packet.len() > HEAD) {
            let (first, mut rest) = (self.all.len(), packet.rest());
            while let Some(TxFragment { gref, offset, size, .. }) = rest.take(usize::MAX) {
                self.all.push(Stretch { gref: GrantRef(gref), offset, len: size, page: None });
            }
            if self.all.len() > room {
                self.all.truncate(first);
            }
            self.of[packet.number()] = (first, self.all.len());
        }
    }

    /// Maps the pages that are listed, all of them or none.
    pub fn map(&mut self, stats: &VifStats) {
        if !self.all.is_empty() && self.map.map(&mut self.all) {
            VifStats::add(&stats.mapped_hits, self.all.len() as u64);
            VifStats::add(&stats.mapped_pages, self.all.len() as u64);
        } else {
            self.all.clear();
            self.of.fill((0, 0));
        }
    }
}
