//! A turn of one sender through the bridge.

use super::Bridge;
use super::hub::{Hub, Target};
use crate::VifError;
use crate::ids::Key;
use crate::layout::HEAD;
use crate::layout::{BURST, place};
use crate::policy::{Buffers, Piece};
use crate::state::stats::VifStats;
use crate::turn::delivery::Accepted;
use crate::turn::lists::{UPLINK, count_dropped};
use crate::turn::outlet::{Outgoing, Outlet, Tally};
use crate::turn::queue::{Queue, Turn};
use crate::turn::receive::Frame;
use crate::turn::scratch::Scratch;
use crate::turn::taken::Taken;
use crate::turn::work;
use arrayvec::ArrayVec;
use grantway_hypervisor::EventChannels;
use grantway_netif::Offload;
use grantway_netif::flow::flow_hash;
use grantway_netif::slots::tx::TxFragment;
use grantway_netif::tx::status;
use grantway_ports::{FramePlace, RECV_BUFFER, SendError};
use grantway_vector::{Merger, PortId, Verdict};
use std::time::Instant;

/// Bytes of the longest packet that is copied whole into private memory and from
/// there to its receiver: to copy so much twice costs less than a second operation.
const WHOLE: usize = work::SHORT;

/// The queues beside the sender's own.
pub(crate) trait Others {
    /// A queue in service.
    fn queue(&mut self, key: Key) -> Option<&mut Queue>;
    /// A queue has something to do.
    fn wake(&mut self, key: Key);
    /// A queue is broken, which is not the sender's affair.
    fn broken(&mut self, key: Key, error: VifError);
}

/// Where the packets of one turn go when their vif is on the bridge.
pub(crate) struct Forward<'a, O> {
    pub bridge: &'a mut Bridge,
    pub hub: &'a mut Hub,
    pub others: O,
    pub events: &'a mut dyn EventChannels,
    /// What merges the sender's segments, if they are to be.
    pub merger: Option<&'a mut Merger>,
    /// The sender's number in lists.
    pub from: PortId,
    /// The sender's queue; none of the uplink.
    pub sender: Option<Key>,
    pub now: Instant,
}

/// What of a burst is for somebody.
#[derive(Default)]
struct Aimed {
    packets: u64,
    bytes: u64,
}

impl<O: Others> Outlet for Forward<'_, O> {
    const WHOLE: usize = WHOLE;

    const IS_PRICED: bool = true;

    #[inline]
    fn within(&self, packets: &[Taken], arena: &[u8]) -> usize {
        let all: u32 = packets.iter().map(Taken::price).sum();
        match all.saturating_mul(self.bridge.reach()) <= work::TURN {
            true => packets.len(),
            false => self.within_by_stations(packets.iter().map(|packet| {
                let at = packet.at() as usize;
                (packet.price(), &arena[at..at + packet.len().min(HEAD)])
            })),
        }
    }

    #[inline]
    fn within_whole(&self, frames: &[FramePlace], arena: &[u8]) -> usize {
        // A burst at most.
        let all = frames.len() as u32 * work::SHORT_PRICE;
        match all.saturating_mul(self.bridge.reach()) <= work::TURN {
            true => frames.len(),
            false => {
                let each = frames.iter().map(|place| (work::SHORT_PRICE, place.bytes(arena)));
                self.within_by_stations(each)
            }
        }
    }

    fn send_whole(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        self.bridge.lists.run_whole(arena, frames, (self.from, None), self.now);
        let sent = self.aim_all(arena, frames, stats);
        VifStats::add(&stats.tx_packets, sent.packets);
        VifStats::add(&stats.tx_bytes, sent.bytes);
        self.give_bursts(arena, Some(stats));
        self.flush();
        Ok(())
    }

    fn head(&self) -> usize {
        HEAD
    }

    fn prepare(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        _: &VifStats,
    ) -> Result<(), VifError> {
        self.bridge.lists.run_heads(scratch, HEAD, (self.from, None), self.now);
        self.merge(scratch, buffers)
    }

    fn send(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &mut Tally<'_>,
    ) -> Result<i16, VifError> {
        let lists = &self.bridge.lists;
        let Some(frame) = lists.frame_of(packet.number) else {
            return Err(VifError::Internal("a packet that is in no list"));
        };
        if let Some(status) = self.give_merged(packet, frame, arena, stats) {
            return Ok(status);
        }
        match self.bridge.lists.verdict(frame) {
            Verdict::To(UPLINK) if self.bridge.uplink.is_some() => {
                let whole = self.whole(packet, arena, buffers, stats)?;
                Ok(whole.map_or(status::ERROR, |frame| {
                    stats.sent(frame.len);
                    self.give_uplink(&arena[frame.at..frame.at + frame.len], frame.offload, stats);
                    status::OKAY
                }))
            }
            Verdict::To(port) => {
                let head = &arena[packet.at..packet.at + packet.head()];
                match self.queue_for(port, frame, head) {
                    Some((key, _)) => self.give_guest(key, packet, arena, buffers, stats),
                    None => {
                        VifStats::add(&stats.tx_dropped_port, 1);
                        Ok(status::OKAY)
                    }
                }
            }
            Verdict::Flood => {
                let Some(whole) = self.whole(packet, arena, buffers, stats)? else {
                    return Ok(status::ERROR);
                };
                stats.sent(whole.len);
                self.flood(frame, whole, arena, stats);
                Ok(status::OKAY)
            }
            verdict @ (Verdict::Open | Verdict::Drop(_) | Verdict::Merged) => {
                count_dropped(stats, verdict, 1);
                Ok(status::OKAY)
            }
        }
    }

    fn finish(
        &mut self,
        arena: &mut [u8],
        buffers: &mut Buffers,
        statuses: &mut [i16],
    ) -> Result<(), VifError> {
        self.deliver(arena, Some(buffers), statuses);
        self.flush();
        Ok(())
    }
}

impl<O: Others> Forward<'_, O> {
    /// A turn of the sender's queue.
    pub fn turn(mut self, queue: &mut Queue, scratch: &mut Scratch) -> Result<Turn, VifError> {
        match queue.transmit(scratch, &mut self) {
            Ok(moved) => queue.after_transmit(moved, scratch, None, self.events),
            Err(error) => {
                // What was laid out for others by then is answered all the same.
                self.deliver(&mut scratch.arena, None, &mut []);
                Err(error)
            }
        }
    }

    /// How many packets a turn takes, of each of which is known what it costs for each
    /// receiver, and its first bytes: it may go to all, or to one.
    #[inline(never)]
    fn within_by_stations<'a>(&self, packets: impl Iterator<Item = (u32, &'a [u8])>) -> usize {
        let reach = self.bridge.reach();
        work::within(packets.map(
            |(price, head)| match self.bridge.lists.may_flood(head, self.now) {
                true => price.saturating_mul(reach),
                false => price,
            },
        ))
    }

    /// The queue of a port's guest that takes a frame which begins like this: the one
    /// that a filter chose, or that the guest has set, or that goes with the sender's,
    /// since flows keep to one queue. Whether it takes others, too, that are alike.
    pub(super) fn queue_for(
        &mut self,
        port: PortId,
        frame: u8,
        head: &[u8],
    ) -> Option<(Key, bool)> {
        let (vif, member) = self.bridge.member(port)?;
        let queues = member.queues.max(1);
        if let Some(chosen) = self.bridge.lists.queue(frame) {
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

    /// Adds the frames of the list, in private memory, to the bursts of whom they are
    /// for: those together that go the same way one after the other.
    fn aim_all(&mut self, arena: &[u8], frames: &[FramePlace], stats: &VifStats) -> Aimed {
        let mut aimed = Aimed::default();
        let mut rest = frames;
        while !rest.is_empty() {
            let first = frames.len() - rest.len();
            let (places, later) = rest.split_at(self.bridge.lists.alike(first, frames.len()));
            rest = later;
            // A burst at most.
            if self.aim(first as u8, places, arena, stats) {
                aimed.packets += places.len() as u64;
                aimed.bytes += places.iter().map(|place| place.meta.len as u64).sum::<u64>();
            }
        }
        aimed
    }

    /// The same for some that are alike, of which this is the first; whether they are
    /// for anybody.
    fn aim(&mut self, first: u8, places: &[FramePlace], arena: &[u8], stats: &VifStats) -> bool {
        match self.bridge.lists.verdict(first) {
            Verdict::To(UPLINK) if self.bridge.uplink.is_some() => self.aim_uplink(places),
            Verdict::To(port) => {
                if !self.aim_at(port, first, places, arena, false) {
                    VifStats::add(&stats.tx_dropped_port, places.len() as u64);
                    return false;
                }
            }
            Verdict::Flood => {
                for port in self.reached() {
                    self.aim_at(port, first, places, arena, true);
                }
                if self.reaches_uplink() {
                    self.aim_uplink(places);
                }
            }
            verdict @ (Verdict::Open | Verdict::Drop(_) | Verdict::Merged) => {
                count_dropped(stats, verdict, places.len() as u64);
                return false;
            }
        }
        true
    }

    fn aim_uplink(&mut self, places: &[FramePlace]) {
        // A turn has no more frames than there is room for.
        let _ = self.hub.uplink.try_extend_from_slice(places);
    }

    /// Adds frames to the bursts of a port's guest, if there is one.
    fn aim_at(
        &mut self,
        port: PortId,
        first: u8,
        mut places: &[FramePlace],
        arena: &[u8],
        flooded: bool,
    ) -> bool {
        while let Some(place) = places.first() {
            let head = place.bytes(arena);
            let Some((key, others_too)) = self.queue_for(port, first, head) else { return false };
            let (now, later) = places.split_at(if others_too { places.len() } else { 1 });
            let at = self.hub.target(key);
            self.hub.targets[at].push(now, flooded);
            places = later;
        }
        true
    }

    /// The guests that are reached by what the sender floods.
    fn reached(&self) -> Vec<PortId> {
        let bridge = &*self.bridge;
        let may = |&&id: &&PortId| id != self.from && bridge.lists.may_pass(self.from, id);
        bridge.by_id.keys().filter(may).copied().collect()
    }

    fn reaches_uplink(&self) -> bool {
        self.from != UPLINK && self.bridge.lists.may_pass(self.from, UPLINK)
    }

    /// Gives a packet to one guest: its head from the arena, the rest from page to
    /// page where pages are posted.
    fn give_guest(
        &mut self,
        key: Key,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &mut Tally<'_>,
    ) -> Result<i16, VifError> {
        let Some(queue) = self.others.queue(key) else {
            VifStats::add(&stats.tx_dropped_port, 1);
            return Ok(status::OKAY);
        };
        let at = self.hub.target(key);
        let delivery = &mut self.hub.targets[at].delivery;
        match queue.accept_split(packet, arena, delivery) {
            Ok(Accepted::Laid | Accepted::Dropped) => {
                stats.sent(packet.len());
                Ok(status::OKAY)
            }
            Ok(Accepted::Short) => {
                let Some(frame) = self.whole(packet, arena, buffers, stats)? else {
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
    pub(super) fn give_queue(&mut self, key: Key, frame: Frame, arena: &[u8]) {
        let Some(queue) = self.others.queue(key) else { return };
        let at = self.hub.target(key);
        match queue.accept(frame, arena, &mut self.hub.targets[at].delivery) {
            Ok(Accepted::Short) => self.others.wake(key),
            Ok(_) => {}
            Err(error) => self.break_off(key, error),
        }
    }

    /// What was laid out for a broken queue is nobody's any more.
    fn break_off(&mut self, key: Key, error: VifError) {
        let at = self.hub.target(key);
        self.hub.targets[at].delivery.clear();
        self.others.broken(key, error);
    }

    /// Gives a frame in the arena to everybody but its sender.
    fn flood(&mut self, number: u8, frame: Frame, arena: &[u8], stats: &VifStats) {
        let bytes = &arena[frame.at..frame.at + frame.len];
        let frame = Frame { flooded: Some(work::segments_for_each(self.bridge.reach())), ..frame };
        for port in self.reached() {
            if let Some((key, _)) = self.queue_for(port, number, bytes) {
                self.give_queue(key, frame, arena);
            }
        }
        if self.reaches_uplink() {
            self.give_uplink(bytes, frame.offload, stats);
        }
    }

    /// Moves at most a burst from the uplink to the guests; whether there may be more.
    pub fn burst_from_uplink(&mut self, arena: &mut [u8]) -> bool {
        let (mut at, mut more) = (0, true);
        let mut frames: ArrayVec<FramePlace, BURST> = ArrayVec::new();
        let (mut left, reach) = (work::TURN, self.bridge.reach());
        while !frames.is_full() && at <= Scratch::FILL && left > 0 {
            let Some(uplink) = &mut self.bridge.uplink else { return false };
            let meta = match uplink.recv(&mut arena[at..at + RECV_BUFFER]) {
                Ok(Some(meta)) => meta,
                Ok(None) => {
                    more = uplink.always_ready();
                    break;
                }
                // What it gave before goes on.
                Err(e) => {
                    self.bridge.fail(e);
                    break;
                }
            };
            let price = u32::from(work::price(meta.len, meta.offload.gso));
            let to_all = price.saturating_mul(reach);
            // Where a burst to all is within a turn's work, nobody asks where it goes.
            let one = to_all > work::TURN / BURST as u32
                && !self.bridge.lists.may_flood(&arena[at..at + meta.len], self.now);
            left = left.saturating_sub(if one { price } else { to_all });
            frames.push(FramePlace { at, meta });
            at = place((at + meta.len).next_multiple_of(64), 0, meta.len);
        }
        self.bridge.lists.run_whole(arena, &frames, (self.from, None), self.now);
        // What becomes of them is no vif's affair.
        let _ = self.aim_all(arena, &frames, &VifStats::default());
        self.give_bursts(arena, None);
        more && self.bridge.uplink.is_some()
    }

    /// Gives each receiver what is for it, as one burst where it takes that so.
    fn give_bursts(&mut self, arena: &mut [u8], stats: Option<&VifStats>) {
        let from = self.sender;
        let Hub { targets, used, uplink, plain, .. } = &mut *self.hub;
        for Target { key, burst, flooded, delivery } in &mut targets[..*used] {
            let Some(queue) = self.others.queue(*key) else { continue };
            let mut broken = None;
            let mut waits = false;
            match queue.take_burst(burst, plain, arena, self.events) {
                Ok(taken) => {
                    for (number, &FramePlace { at, meta }) in burst.iter().enumerate().skip(taken) {
                        let (len, offload) = (meta.len, meta.offload);
                        let flooded = (*flooded >> number & 1 == 1)
                            .then(|| work::segments_for_each(self.bridge.reach()));
                        let frame = Frame { at, len, offload, from, flooded, passed: false };
                        match queue.accept(frame, arena, delivery) {
                            Ok(accepted) => waits |= accepted == Accepted::Short,
                            Err(error) => {
                                delivery.clear();
                                broken = Some(error);
                                break;
                            }
                        }
                    }
                }
                Err(error) => broken = Some(error),
            }
            match broken {
                Some(error) => self.others.broken(*key, error),
                None if waits => self.others.wake(*key),
                None => {}
            }
        }
        if let (Some(stats), Some(port)) = (stats, &mut self.bridge.uplink)
            && !uplink.is_empty()
        {
            match port.send_burst(arena, uplink) {
                Ok(sent) => {
                    VifStats::add(&stats.tx_dropped_port, sent.dropped as u64);
                    VifStats::add(&stats.tx_dropped_busy, sent.busy as u64);
                }
                Err(e) => self.bridge.fail(e),
            }
        }
        uplink.clear();
        self.deliver(arena, None, &mut []);
    }

    pub(super) fn give_uplink(&mut self, frame: &[u8], offload: Offload, stats: &VifStats) {
        let Some(uplink) = &mut self.bridge.uplink else { return };
        match uplink.send(frame, offload) {
            Ok(()) => {}
            Err(SendError::Dropped(_)) => VifStats::add(&stats.tx_dropped_port, 1),
            Err(SendError::Busy) => VifStats::add(&stats.tx_dropped_busy, 1),
            Err(SendError::Failed(e)) => self.bridge.fail(e),
        }
    }

    fn flush(&mut self) {
        if let Some(uplink) = &mut self.bridge.uplink
            && let Err(e) = uplink.flush()
        {
            self.bridge.fail(e);
        }
    }

    /// Brings a packet's rest behind its head, into the arena; none where a grant
    /// cannot be read.
    fn whole(
        &mut self,
        packet: &Outgoing<'_>,
        arena: &mut [u8],
        buffers: &mut Buffers,
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
            buffers.fetch(&mut self.hub.pieces, arena)?;
        }
        if self.hub.pieces.iter().any(|piece| !piece.status.is_okay()) {
            VifStats::add(&stats.tx_dropped_grant, 1);
            return Ok(None);
        }
        let (from, offload) = (self.sender, packet.offload());
        Ok(Some(Frame { at, len, offload, from, flooded: None, passed: false }))
    }

    /// Stores what was laid out in the receivers' pages, answers and signals them.
    /// A receiver's trouble is its own. Without the sender's buffers, what was to come
    /// from its pages is answered as an error.
    fn deliver(
        &mut self,
        arena: &mut [u8],
        mut buffers: Option<&mut Buffers>,
        statuses: &mut [i16],
    ) {
        let Hub { targets, used, .. } = &mut *self.hub;
        for Target { key, delivery, .. } in &mut targets[..std::mem::take(used)] {
            if delivery.frames.is_empty() {
                continue;
            }
            let Some(queue) = self.others.queue(*key) else { continue };
            let done = queue.finish(delivery, arena, buffers.as_deref_mut(), self.events);
            if let Err(error) = done {
                self.others.broken(*key, error);
            }
            for crossed in delivery.crosses.iter().filter(|cross| !cross.status.is_okay()) {
                if let Some(status) = statuses.get_mut(crossed.packet) {
                    *status = status::ERROR;
                }
            }
        }
    }
}
