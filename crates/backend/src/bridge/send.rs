//! A turn of one sender through the bridge: its packets go through the graph, each is aimed at
//! its receivers (`route`), and then each receiver is given what is for it (`give`).

use super::forward::{Forward, Others};
use super::give::Sender;
use super::route::count_unreached;
use crate::VifError;
use crate::layout::{BURST, HEAD, RING_SLOTS, place};
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::batch::{Limits, TxBatch};
use crate::turn::queue::{Queue, Turn};
use crate::turn::scratch::Scratch;
use crate::turn::sink::{Sink, Tally};
use crate::turn::work;
use arrayvec::ArrayVec;
use grantway_netif::tx::status;
use grantway_ports::{FramePlace, RECV_BUFFER};
use grantway_vector::Verdict;

/// Bytes of the longest packet that is copied whole into private memory and from
/// there to its receiver: to copy so much twice costs less than a second operation.
const WHOLE: usize = work::SHORT;

impl<O: Others> Sink for Forward<'_, O> {
    #[inline]
    fn limits(&self) -> Limits {
        let reach = self.bridge.reach();
        let (slots, in_place) = (RING_SLOTS, usize::MAX);
        Limits { private: HEAD, whole: WHOLE, in_place, slots, reach, cuts: false }
    }

    fn may_flood(&self, head: &[u8]) -> bool {
        self.bridge.lists.may_flood(head, self.now)
    }

    fn send_frames(
        &mut self,
        arena: &mut [u8],
        frames: &[FramePlace],
        stats: &VifStats,
    ) -> Result<(), VifError> {
        self.bridge.lists.run_whole(arena, frames, (self.from, None), self.now);
        self.tell();
        self.aim_all(arena, frames, stats);
        self.send_to_uplink(arena, stats);
        self.give(arena, None);
        self.flush();
        self.send_away();
        Ok(())
    }

    fn send(
        &mut self,
        batch: &mut TxBatch,
        arena: &mut [u8],
        buffers: &mut Buffers,
        stats: &VifStats,
    ) -> Result<(), VifError> {
        let lists = &mut self.bridge.lists;
        lists.run_heads(batch, HEAD, arena, (self.from, None), self.now);
        if let Some(merger) = &mut self.merger {
            lists.merge(merger, arena);
        }
        self.tell();
        self.hub.parcels.fill(self.bridge, batch, arena, buffers)?;
        let mut tally = Tally::new(stats);
        // A list has no more than a burst.
        for frame in 0..self.bridge.lists.len() as u8 {
            self.send_parcel(frame, batch, arena, &mut tally);
        }
        self.send_to_uplink(arena, stats);
        let gone = self.give(arena, Some(Sender { batch, buffers, tally, gone: None }));
        self.flush();
        self.send_away();
        gone.map_or(Ok(()), Err)
    }
}

impl<O: Others> Forward<'_, O> {
    /// A turn of the sender's queue.
    pub fn turn(mut self, queue: &mut Queue, scratch: &mut Scratch) -> Result<Turn, VifError> {
        if queue.completes() {
            self.merger = None;
        }
        queue.show_before_requests(self.events)?;
        let moved = queue.transmit(scratch, &mut self)?;
        queue.after_transmit(moved, scratch, None, self.events)
    }

    /// Aims one frame of the list, and notes what becomes of the packets that it consists of.
    fn send_parcel(&mut self, frame: u8, batch: &mut TxBatch, arena: &[u8], tally: &mut Tally<'_>) {
        if self.bridge.lists.verdict(frame) == Verdict::Merged {
            // It goes with an earlier one.
            return;
        }
        let parcel = self.hub.parcels.get(frame);
        let aimed = parcel.map(|parcel| self.aim(frame, &[parcel.place], parcel.rest, arena));
        let lists = &self.bridge.lists;
        for (part, _) in lists.pieces(frame) {
            let Some(taken) = batch.packets.get_mut(part.token as usize) else { continue };
            match aimed {
                None => {
                    VifStats::add(&tally.tx_dropped_grant, 1);
                    taken.end(status::ERROR);
                }
                Some(Err(verdict)) => count_unreached(tally, verdict, 1),
                // It counts when its receiver takes it.
                Some(Ok(())) if parcel.is_some_and(|parcel| parcel.rest.is_some()) => {}
                Some(Ok(())) => {
                    tally.sent(taken.len());
                    VifStats::add(&tally.tx_merged, u64::from(lists.is_merged(frame)));
                }
            }
        }
    }

    /// Moves at most a burst from the uplink to the guests. Returns true if there may be more.
    pub fn burst_from_uplink(&mut self, arena: &mut [u8]) -> bool {
        let (mut at, mut more) = (0, true);
        let mut frames: ArrayVec<FramePlace, BURST> = ArrayVec::new();
        let (mut left, reach) = (work::TURN, self.bridge.reach());
        while !frames.is_full() && at <= Scratch::FILL && left > 0 {
            let Some(uplink) = &mut self.bridge.uplink else { return false };
            let meta = match uplink.recv(&mut arena[at..at + RECV_BUFFER]) {
                Ok(Some(meta)) => meta,
                Ok(None) => {
                    more = uplink.readiness().is_now();
                    break;
                }
                // What it gave before goes on.
                Err(e) => {
                    self.bridge.fail(e);
                    break;
                }
            };
            let price = u32::from(work::price(meta.len, meta.offload.gso, work::SEGMENT));
            let to_all = price.saturating_mul(reach);
            // Where a burst to all is within a turn's work, nobody asks where it goes.
            let one = to_all > work::TURN / BURST as u32
                && !self.bridge.lists.may_flood(&arena[at..at + meta.len], self.now);
            left = left.saturating_sub(if one { price } else { to_all });
            frames.push(FramePlace { at, meta });
            at = place((at + meta.len).next_multiple_of(64), 0, meta.len);
        }
        self.bridge.lists.run_whole(arena, &frames, (self.from, None), self.now);
        self.tell();
        // What becomes of them is no vif's affair.
        self.aim_all(arena, &frames, &VifStats::default());
        self.hub.uplink.clear();
        self.give(arena, None);
        self.send_away();
        more && self.bridge.uplink.is_some()
    }

    /// Sends the news of the list to other workers, before any frame of it arrives. So the worker
    /// that judges an answer knows them.
    fn tell(&mut self) {
        if self.mesh.is_shared() {
            let news = &mut self.hub.news;
            news.clear();
            news.extend(self.bridge.lists.news());
            self.mesh.tell(news);
        }
    }

    /// Hands other workers what is for their guests.
    fn send_away(&mut self) {
        let reach = self.bridge.reach();
        let away = self.hub.away.iter_mut().enumerate();
        for (worker, bundle) in away.filter(|(_, bundle)| !bundle.is_empty()) {
            (bundle.from, bundle.sender) = (self.from, self.sender);
            let work = bundle.price(reach);
            self.mesh.push(worker, bundle, work);
        }
    }

    /// Hands the uplink what is for it.
    pub(super) fn send_to_uplink(&mut self, arena: &[u8], stats: &VifStats) {
        let frames = &mut self.hub.uplink;
        if let Some(port) = &mut self.bridge.uplink
            && !frames.is_empty()
        {
            match port.send_burst(arena, frames) {
                Ok(sent) => {
                    VifStats::add(&stats.tx_dropped_port, sent.dropped as u64);
                    VifStats::add(&stats.tx_dropped_busy, sent.busy as u64);
                }
                Err(e) => self.bridge.fail(e),
            }
        }
        self.hub.uplink.clear();
    }

    pub(super) fn flush(&mut self) {
        if let Some(uplink) = &mut self.bridge.uplink
            && let Err(e) = uplink.flush()
        {
            self.bridge.fail(e);
        }
    }
}
