//! Finds the receivers of a frame: by the verdict of the graph, and by flow among a guest's queues.

use super::Member;
use super::bundle::To;
use super::forward::{Forward, Others};
use crate::ids::Key;
use crate::layout::HEAD;
use crate::state::stats::VifStats;
use crate::turn::lists::{UPLINK, count_dropped};
use grantway_netif::flow::flow_hash;
use grantway_ports::FramePlace;
use grantway_vector::{PortId, Verdict};

impl<O: Others> Forward<'_, O> {
    /// Adds the frames of the list, all of each in private memory, to what their receivers are
    /// given: those together that go the same way one after the other.
    pub(super) fn aim_all(&mut self, arena: &[u8], frames: &[FramePlace], stats: &VifStats) {
        let (mut packets, mut bytes) = (0, 0);
        let mut rest = frames;
        while !rest.is_empty() {
            let first = frames.len() - rest.len();
            let (places, later) = rest.split_at(self.bridge.lists.alike(first, frames.len()));
            rest = later;
            // A burst at most.
            match self.aim(first as u8, places, None, arena) {
                Ok(()) => {
                    packets += places.len() as u64;
                    bytes += places.iter().map(|place| place.meta.len as u64).sum::<u64>();
                }
                Err(verdict) => count_unreached(stats, verdict, places.len() as u64),
            }
        }
        VifStats::add(&stats.tx_packets, packets);
        VifStats::add(&stats.tx_bytes, bytes);
    }

    /// Adds frames that go the same way to what their receivers are given. `first` is the number
    /// of the first of them in the list; `rest` is its packet, if only its first bytes are
    /// private.
    ///
    /// # Errors
    ///
    /// The verdict on the frames, if they reach no receiver.
    pub(super) fn aim(
        &mut self,
        first: u8,
        places: &[FramePlace],
        rest: Option<u8>,
        arena: &[u8],
    ) -> Result<(), Verdict> {
        let queue = self.bridge.lists.queue(first);
        let aimed = Aimed { places, rest, flooded: false, queue };
        match self.bridge.lists.verdict(first) {
            Verdict::To(UPLINK) if self.bridge.uplink.is_some() => self.aim_at_uplink(places),
            verdict @ Verdict::To(port) => {
                if let Some(worker) = self.bridge.worker_of(port) {
                    self.hub.away[worker].add(places, To::Port(port, queue), arena);
                    return Ok(());
                }
                if !self.aim_at(port, aimed, arena) {
                    return Err(verdict);
                }
            }
            Verdict::Flood => {
                for port in self.reached() {
                    self.aim_at(port, Aimed { flooded: true, ..aimed }, arena);
                }
                if self.may_reach_uplink() {
                    self.aim_at_uplink(places);
                }
                let bridge = &*self.bridge;
                let away = self.hub.away.iter_mut().enumerate();
                for (_, bundle) in away.filter(|&(worker, _)| bridge.floods_to(worker)) {
                    bundle.add(places, To::All, arena);
                }
            }
            verdict @ (Verdict::Open | Verdict::Drop(_) | Verdict::Merged) => return Err(verdict),
        }
        Ok(())
    }

    /// Returns true if what the sender floods may reach an uplink.
    pub(super) fn may_reach_uplink(&self) -> bool {
        self.from != UPLINK && self.bridge.lists.may_pass(self.from, UPLINK)
    }

    #[inline]
    pub(super) fn aim_at_uplink(&mut self, places: &[FramePlace]) {
        // A turn has no more frames than there is room for.
        let _ = self.hub.uplink.try_extend_from_slice(places);
    }

    /// Adds frames to what a port's guest is given. Returns whether there is such a guest.
    #[inline]
    pub(super) fn aim_at(&mut self, port: PortId, aimed: Aimed<'_>, arena: &[u8]) -> bool {
        let Aimed { mut places, rest, flooded, queue } = aimed;
        while let Some(place) = places.first() {
            let bytes = place.bytes(arena);
            let head = if rest.is_some() { &bytes[..bytes.len().min(HEAD)] } else { bytes };
            let Some((key, others_too)) = self.queue_for(port, queue, head) else { return false };
            let (now, later) = places.split_at(if others_too { places.len() } else { 1 });
            self.hub.target(key).push(now, rest, flooded);
            places = later;
        }
        true
    }

    /// Returns the queue of a port's guest that takes a frame which begins with `head`. A filter
    /// chooses it, or the guest's hash, or the number of the sender's queue, since flows keep to
    /// one queue. Returns true beside it if frames of the same verdict go there, too.
    fn queue_for(&mut self, port: PortId, chosen: Option<u16>, head: &[u8]) -> Option<(Key, bool)> {
        let &Member { vif, queues } = self.bridge.members.get(&port)?;
        if let Some(chosen) = chosen {
            return Some(((vif, chosen % queues), true));
        }
        let (number, same) = match self.sender {
            Some((_, number)) => (number % queues, true),
            None if queues == 1 => (0, true),
            None => ((flow_hash(head) >> 16) as u16 % queues, false),
        };
        let steered = self.others.queue((vif, number)).and_then(|queue| queue.steers(head));
        Some(((vif, steered.unwrap_or(number)), same && steered.is_none()))
    }

    /// Returns the guests of the worker that are reached by what the sender floods.
    pub(super) fn reached(&self) -> Vec<PortId> {
        let bridge = &*self.bridge;
        let may = |&&id: &&PortId| id != self.from && bridge.lists.may_pass(self.from, id);
        bridge.members.keys().filter(may).copied().collect()
    }
}

/// Frames that go the same way, as in [`Forward::aim`].
#[derive(Clone, Copy)]
pub(super) struct Aimed<'a> {
    pub places: &'a [FramePlace],
    pub rest: Option<u8>,
    /// True if the frames go to other guests, too.
    pub flooded: bool,
    /// The receiver's queue, if a filter chose one.
    pub queue: Option<u16>,
}

/// Counts packets that reach no receiver, by the verdict on them.
pub(super) fn count_unreached(stats: &VifStats, verdict: Verdict, packets: u64) {
    match verdict {
        // Whom they were for is gone.
        Verdict::To(_) => VifStats::add(&stats.tx_dropped_port, packets),
        verdict => count_dropped(stats, verdict, packets),
    }
}
