//! Gives each receiver of a turn its frames, after all frames of the turn were aimed.

use super::forward::{Forward, Others};
use super::hub::{Hub, Target};
use crate::VifError;
use crate::layout::HEAD;
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::batch::TxBatch;
use crate::turn::delivery::Accepted;
use crate::turn::outgoing::Gather;
use crate::turn::receive::{Incoming, Origin};
use crate::turn::sink::Tally;
use crate::turn::work;
use grantway_netif::tx::status;
use grantway_ports::{FrameMeta, FramePlace};
use std::time::Instant;

/// The sender of packets whose rest is in its pages.
pub(super) struct Sender<'a> {
    pub batch: &'a mut TxBatch,
    pub buffers: &'a mut Buffers,
    pub tally: Tally<'a>,
    /// The error because of which nothing more can be read.
    pub gone: Option<VifError>,
}

impl Sender<'_> {
    /// Copies a whole packet into private memory. Returns `None` if it cannot be read.
    fn bring(
        &mut self,
        number: usize,
        gather: &mut Gather,
        arena: &mut [u8],
    ) -> Option<FramePlace> {
        let packet = self.batch.outgoing(number, HEAD)?;
        let (len, at) = (packet.len(), packet.whole_at());
        let place = FramePlace { at, meta: FrameMeta { len, offload: packet.offload() } };
        let mut is_missed = false;
        if self.gone.is_none() {
            gather.add(number, &packet, 0..len, at, arena);
            self.gone = gather.fetch(self.buffers, arena, |_| is_missed = true).err();
        }
        if is_missed || self.gone.is_some() {
            VifStats::add(&self.tally.tx_dropped_grant, 1);
            self.batch.packets[number].end(status::ERROR);
            return None;
        }
        Some(place)
    }
}

/// State of a receiver's queue after it was given its frames.
enum Next {
    /// Some frames wait for pages: the queue is to have a turn.
    Wakes,
    /// Nothing is left to do for the queue until this time, or until it is woken.
    Rests(Option<Instant>),
}

impl<O: Others> Forward<'_, O> {
    /// Gives each receiver what is for it, and has that stored, answered and signalled. A
    /// receiver's trouble is its own. Returns why nothing more can be read of the sender.
    pub(super) fn give(
        &mut self,
        arena: &mut [u8],
        mut sender: Option<Sender<'_>>,
    ) -> Option<VifError> {
        for at in 0..self.hub.used {
            let key = self.hub.targets[at].key;
            match self.give_one(at, arena, sender.as_mut()) {
                Ok(Next::Wakes) => self.others.wake(key),
                Ok(Next::Rests(None)) => {}
                Ok(Next::Rests(Some(at))) => self.others.call(key, at),
                Err(error) => {
                    // What was laid out for it is nobody's any more.
                    let target = &mut self.hub.targets[at];
                    target.delivery.clear();
                    count_gone(target, sender.as_ref());
                    self.others.broken(key, error);
                }
            }
        }
        self.deliver(arena, sender.as_mut());
        sender?.gone
    }

    /// Gives a receiver its frames: as many as it can take at once as one burst, if all are private,
    /// and the others one by one.
    ///
    /// # Errors
    ///
    /// The receiver is broken.
    #[inline(always)]
    fn give_one(
        &mut self,
        at: usize,
        arena: &mut [u8],
        mut sender: Option<&mut Sender<'_>>,
    ) -> Result<Next, VifError> {
        let Hub { targets, plain, parcels, .. } = &mut *self.hub;
        let target = &mut targets[at];
        let Some(queue) = self.others.queue(target.key) else {
            count_gone(target, sender.as_deref());
            return Ok(Next::Rests(None));
        };
        let Target { burst, flooded, split, packets, delivery, .. } = target;
        let (taken, call_at) = match *split {
            0 => queue.take_burst(burst, plain, arena, self.events)?,
            _ => (0, None),
        };
        if taken == burst.len() {
            return Ok(Next::Rests(call_at));
        }
        let most = work::segments_for_each(self.bridge.reach());
        let mut waits = false;
        for (number, mut place) in burst.iter().copied().enumerate().skip(taken) {
            if *split >> number & 1 == 1 {
                let Some(sender) = &mut sender else { continue };
                let packet = packets[number].into();
                let Some(outgoing) = sender.batch.outgoing(packet, HEAD) else { continue };
                let accepted = queue.accept_split(&outgoing, arena, delivery)?;
                // From here on it is counted.
                *split &= !(1 << number);
                if accepted != Accepted::Short {
                    sender.tally.sent(place.meta.len);
                    continue;
                }
                // It has to wait, or to be finished, and to be private for that.
                let Some(whole) = sender.bring(packet, &mut parcels.gather, arena) else {
                    continue;
                };
                sender.tally.sent(place.meta.len);
                place = whole;
            }
            let flooded = (*flooded >> number & 1 == 1).then_some(most);
            let frame = Incoming::new(place, Origin::Bridge { sender: self.sender, flooded });
            waits |= queue.accept(frame, arena, delivery)? == Accepted::Short;
        }
        Ok(if waits { Next::Wakes } else { Next::Rests(call_at) })
    }

    /// Stores what was laid out in the receivers' pages, answers and signals them. If the sender
    /// is gone, what was to come from its pages is answered as an error.
    fn deliver(&mut self, arena: &mut [u8], mut sender: Option<&mut Sender<'_>>) {
        let Hub { targets, used, .. } = &mut *self.hub;
        for Target { key, delivery, .. } in &mut targets[..std::mem::take(used)] {
            if delivery.frames.is_empty() {
                continue;
            }
            let Some(queue) = self.others.queue(*key) else { continue };
            let buffers = sender.as_deref_mut().filter(|sender| sender.gone.is_none());
            let buffers = buffers.map(|sender| &mut *sender.buffers);
            match queue.finish(delivery, arena, buffers, self.events) {
                Ok(None) => {}
                Ok(Some(at)) => self.others.call(*key, at),
                Err(error) => self.others.broken(*key, error),
            }
            let Some(sender) = &mut sender else { continue };
            for crossed in delivery.crosses.iter().filter(|cross| !cross.status.is_okay()) {
                if let Some(taken) = sender.batch.packets.get_mut(crossed.packet) {
                    taken.end(status::ERROR);
                }
            }
        }
    }
}

/// Counts the frames of a receiver that is gone or broken, and that are not counted yet: those
/// whose rest is in the sender's pages. A private frame counted when it was aimed.
fn count_gone(target: &Target, sender: Option<&Sender<'_>>) {
    if let Some(sender) = sender {
        VifStats::add(&sender.tally.tx_dropped_port, target.split.count_ones().into());
    }
}
