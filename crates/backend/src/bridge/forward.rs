//! A burst of one sender through the bridge.

use super::table::Route;
use super::{Bridge, HEAD, Place};
use crate::VifError;
use crate::delivery::{Accepted, Delivery};
use crate::outlet::{Outgoing, Outlet, Tally};
use crate::policy::{Piece, Policy};
use crate::queue::{Queue, VifId};
use crate::receive::Frame;
use crate::scratch::{BURST, Scratch, place};
use crate::stats::VifStats;
use grantway_hypervisor::EventChannels;
use grantway_netif::Offload;
use grantway_netif::flow::flow_hash;
use grantway_netif::slots::tx::TxFragment;
use grantway_netif::tx::status;
use grantway_ports::{FrameMeta, PortError, RECV_BUFFER, SendError};
use std::time::Instant;

/// A queue: which vif, which of its queues.
pub(crate) type Key = (VifId, u16);

/// The queues beside the sender's own.
pub(crate) trait Others {
    /// A queue in service.
    fn queue(&mut self, key: Key) -> Option<&mut Queue>;
    /// A queue has something to do.
    fn wake(&mut self, key: Key);
    /// A queue is broken, which is not the sender's affair.
    fn broken(&mut self, key: Key, error: VifError);
}

/// Lists of a burst that keep their room from burst to burst.
#[derive(Default)]
pub(crate) struct Hub {
    /// Whom the burst goes to, and what: the first `used` are in use.
    targets: Vec<(Key, Delivery)>,
    used: usize,
    pieces: Vec<Piece>,
}

impl Hub {
    fn target(&mut self, key: Key) -> usize {
        if let Some(at) = self.targets[..self.used].iter().position(|(k, _)| *k == key) {
            return at;
        }
        if self.used == self.targets.len() {
            self.targets.push((key, Delivery::new()));
        }
        let (owner, delivery) = &mut self.targets[self.used];
        *owner = key;
        delivery.clear();
        self.used += 1;
        self.used - 1
    }
}

/// Where the packets of one burst go when their vif is on the bridge.
pub(crate) struct Forward<'a, O> {
    pub bridge: &'a mut Bridge,
    pub hub: &'a mut Hub,
    pub others: O,
    pub events: &'a mut dyn EventChannels,
    pub from: Place,
    /// The sender's queue.
    pub number: u16,
    pub now: Instant,
}

impl<O: Others> Outlet for Forward<'_, O> {
    fn head(&self) -> usize {
        HEAD
    }

    fn send(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        policy: &mut dyn Policy,
        stats: &mut Tally<'_>,
    ) -> Result<i16, VifError> {
        let head = &arena[packet.at..packet.at + packet.head()];
        match self.bridge.table.route(head, self.from, self.now) {
            Route::Back => {
                VifStats::add(&stats.tx_dropped_back, 1);
                Ok(status::OKAY)
            }
            Route::To(Place::Vif(vif)) => {
                let Some(number) = self.queue_for(vif, head) else {
                    VifStats::add(&stats.tx_dropped_port, 1);
                    return Ok(status::OKAY);
                };
                self.give_guest((vif, number), packet, arena, policy, stats)
            }
            Route::To(Place::Uplink) => {
                let whole = self.whole(packet, arena, policy, stats)?;
                Ok(whole.map_or(status::ERROR, |frame| {
                    stats.sent(frame.len);
                    self.give_uplink(&arena[frame.at..frame.at + frame.len], frame.offload, stats);
                    status::OKAY
                }))
            }
            Route::Flood => {
                let Some(frame) = self.whole(packet, arena, policy, stats)? else {
                    return Ok(status::ERROR);
                };
                stats.sent(frame.len);
                self.flood(frame, arena);
                self.give_uplink(&arena[frame.at..frame.at + frame.len], frame.offload, stats);
                Ok(status::OKAY)
            }
        }
    }

    fn finish(
        &mut self,
        arena: &mut [u8],
        policy: &mut dyn Policy,
        statuses: &mut [i16],
    ) -> Result<(), VifError> {
        self.deliver(arena, Some(policy), statuses);
        if let Some(uplink) = &mut self.bridge.uplink
            && let Err(e) = uplink.flush()
        {
            self.bridge.fail(e);
        }
        Ok(())
    }
}

impl<O: Others> Forward<'_, O> {
    /// The queue of a guest that takes a frame which begins like this: the one that
    /// the guest has set, or the one that goes with the sender's.
    fn queue_for(&mut self, vif: VifId, head: &[u8]) -> Option<u16> {
        let number = self.bridge.queue(vif, self.number)?;
        let queue = self.others.queue((vif, number));
        Some(queue.and_then(|queue| queue.steers(head)).unwrap_or(number))
    }

    /// Gives a packet to one guest: its head from the arena, the rest from page to
    /// page where pages are posted.
    fn give_guest(
        &mut self,
        key: Key,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        policy: &mut dyn Policy,
        stats: &mut Tally<'_>,
    ) -> Result<i16, VifError> {
        let Some(queue) = self.others.queue(key) else {
            VifStats::add(&stats.tx_dropped_port, 1);
            return Ok(status::OKAY);
        };
        let at = self.hub.target(key);
        let delivery = &mut self.hub.targets[at].1;
        match queue.accept_split(packet, arena, delivery) {
            Ok(Accepted::Laid | Accepted::Dropped) => {
                stats.sent(packet.len());
                Ok(status::OKAY)
            }
            Ok(Accepted::Short) => {
                let Some(frame) = self.whole(packet, arena, policy, stats)? else {
                    return Ok(status::ERROR);
                };
                stats.sent(packet.len());
                self.give_queue(key, frame, arena);
                Ok(status::OKAY)
            }
            Err(error) => {
                self.break_off(key, error);
                Ok(status::OKAY)
            }
        }
    }

    /// Gives a frame in the arena to one guest's queue.
    fn give_queue(&mut self, key: Key, frame: Frame, arena: &[u8]) {
        let Some(queue) = self.others.queue(key) else { return };
        let at = self.hub.target(key);
        match queue.accept(frame, arena, &mut self.hub.targets[at].1) {
            Ok(Accepted::Short) => self.others.wake(key),
            Ok(_) => {}
            Err(error) => self.break_off(key, error),
        }
    }

    /// What was laid out for a broken queue is nobody's any more.
    fn break_off(&mut self, key: Key, error: VifError) {
        let at = self.hub.target(key);
        self.hub.targets[at].1.clear();
        self.others.broken(key, error);
    }

    /// Gives a frame in the arena to every guest but its sender.
    fn flood(&mut self, frame: Frame, arena: &[u8]) {
        let from = self.from;
        let frame = Frame { flooded: true, ..frame };
        let members: Vec<VifId> = self.bridge.members.keys().copied().collect();
        for vif in members.into_iter().filter(|&vif| Place::Vif(vif) != from) {
            let head = &arena[frame.at..frame.at + frame.len];
            if let Some(number) = self.queue_for(vif, head) {
                self.give_queue((vif, number), frame, arena);
            }
        }
    }

    /// Moves at most a burst from the uplink to the guests; whether there may be more.
    ///
    /// # Errors
    ///
    /// The uplink is of no more use.
    pub fn burst_from_uplink(&mut self, arena: &mut [u8]) -> Result<bool, PortError> {
        let mut at = 0;
        let mut more = true;
        for _ in 0..BURST {
            let Some(uplink) = &mut self.bridge.uplink else { return Ok(false) };
            if at > Scratch::FILL {
                break;
            }
            let Some(meta) = uplink.recv(&mut arena[at..at + RECV_BUFFER])? else {
                more = uplink.always_ready();
                break;
            };
            let FrameMeta { len, offload } = meta;
            let frame = Frame { at, len, offload, from: None, flooded: false, passed: false };
            self.route_in(frame, arena);
            at = place((at + len).next_multiple_of(64), 0, len);
        }
        self.deliver(arena, None, &mut []);
        match self.bridge.failure.take() {
            Some(e) => Err(e),
            None => Ok(more),
        }
    }

    /// Routes a frame in the arena that came by the uplink.
    fn route_in(&mut self, frame: Frame, arena: &[u8]) {
        let bytes = &arena[frame.at..frame.at + frame.len];
        // Whoever has fewer queues takes the remainder; a flow keeps to one.
        self.number = (flow_hash(bytes) >> 16) as u16;
        match self.bridge.table.route(bytes, Place::Uplink, self.now) {
            Route::To(Place::Vif(vif)) => {
                if let Some(number) = self.queue_for(vif, bytes) {
                    self.give_queue((vif, number), frame, arena);
                }
            }
            Route::Flood => self.flood(frame, arena),
            Route::To(Place::Uplink) | Route::Back => {}
        }
    }

    fn give_uplink(&mut self, frame: &[u8], offload: Offload, stats: &VifStats) {
        let Some(uplink) = &mut self.bridge.uplink else { return };
        match uplink.send(frame, offload) {
            Ok(()) => {}
            Err(SendError::Dropped(_)) => VifStats::add(&stats.tx_dropped_port, 1),
            Err(SendError::Busy) => VifStats::add(&stats.tx_dropped_busy, 1),
            Err(SendError::Failed(e)) => self.bridge.fail(e),
        }
    }

    /// Brings a packet's rest behind its head, into the arena; none where a grant
    /// cannot be read.
    fn whole(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        policy: &mut dyn Policy,
        stats: &VifStats,
    ) -> Result<Option<Frame>, VifError> {
        let (len, head) = (packet.len(), packet.head());
        let at = packet.whole_at;
        arena.copy_within(packet.at..packet.at + head, at);
        self.hub.pieces.clear();
        let mut end = at + head;
        let mut rest = packet.rest();
        while let Some(TxFragment { gref, offset, size, .. }) = rest.take(usize::MAX) {
            self.hub.pieces.push(Piece::new(gref, offset, size, end));
            end += usize::from(size);
        }
        if !self.hub.pieces.is_empty() {
            policy.fetch(&mut self.hub.pieces, arena)?;
        }
        if self.hub.pieces.iter().any(|piece| !piece.status.is_okay()) {
            VifStats::add(&stats.tx_dropped_grant, 1);
            return Ok(None);
        }
        let from = match self.from {
            Place::Vif(vif) => Some((vif, self.number)),
            Place::Uplink => None,
        };
        let (flooded, passed) = (false, false);
        Ok(Some(Frame { at, len, offload: packet.offload(), from, flooded, passed }))
    }

    /// Stores what was laid out in the receivers' pages, answers and signals them.
    /// A receiver's trouble is its own. Without the sender's policy, what was to come
    /// from its pages is answered as an error.
    pub fn deliver(
        &mut self,
        arena: &mut [u8],
        mut policy: Option<&mut dyn Policy>,
        statuses: &mut [i16],
    ) {
        for (key, delivery) in &mut self.hub.targets[..self.hub.used] {
            let Some(queue) = self.others.queue(*key) else { continue };
            let sender = policy.as_mut().map(|policy| &mut **policy as &mut dyn Policy);
            let done = queue.finish(delivery, arena, sender, self.events);
            if let Err(error) = done {
                self.others.broken(*key, error);
            }
            for crossed in delivery.crosses.iter().filter(|cross| !cross.status.is_okay()) {
                if let Some(status) = statuses.get_mut(crossed.packet) {
                    *status = status::ERROR;
                }
            }
        }
        self.hub.used = 0;
    }
}
