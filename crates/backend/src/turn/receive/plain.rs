//! A turn whose frames each fit one posted page, with nothing to be done to them: as
//! in `turn::plain`, each step is taken for all of them before the next.

use super::{Incoming, Origin, Receive};
use crate::VifError;
use crate::journal::JournalMemory;
use crate::policy::Buffers;
use crate::state::shared::QueueState;
use crate::state::stats::VifStats;
use crate::state::trace::TraceRing;
use crate::turn::Moved;
use crate::turn::plain::{RxPlain, is_short};
use crate::turn::scratch::Scratch;
use grantway_ports::{FramePlace, Port};
use grantway_ring::RingMemory;

impl<M: RingMemory<2>, J: JournalMemory> Receive<M, J> {
    /// Takes the turn of a port with plain frames, if a page is posted for each frame of a burst.
    #[inline(always)]
    pub(super) fn turn_plain(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        port: &mut dyn Port,
        shared: &QueueState,
    ) -> Result<Moved, VifError> {
        let Scratch { arena, left, delivery, rx_plain, .. } = scratch;
        let (arena, plain) = (&mut arena[..], &mut **rx_plain);
        plain.frames.clear();
        port.recv_own_burst(arena, left.of(self.id), &mut plain.frames)?;
        let count = plain.frames.len();
        if count == 0 {
            return Ok(Moved { call_at: self.waiting.call_at(), ..Moved::default() });
        }
        if self.store_short(plain, arena, buffers, shared)? {
            let call_at = self.waiting.call_at();
            return Ok(Moved { packets: count, notify: false, call_at });
        }
        // The port gave what it said that it does not give.
        delivery.clear();
        for &place in &plain.frames {
            self.accept(Incoming::new(place, Origin::Port), arena, delivery, shared)?;
        }
        self.finish(delivery, arena, buffers, None, shared)?;
        Ok(Moved { packets: count, notify: false, call_at: self.waiting.call_at() })
    }

    /// Takes plain frames from the bridge, as many as pages are posted. Returns the number of
    /// frames taken. [`Receive::show`] has to follow.
    pub(crate) fn take_short(
        &mut self,
        frames: &[FramePlace],
        plain: &mut RxPlain,
        arena: &mut [u8],
        buffers: &mut Buffers,
        shared: &QueueState,
    ) -> Result<usize, VifError> {
        let takes = self.is_plain(shared) && frames.iter().all(is_short);
        let posted = match takes {
            false => 0,
            true if self.has_posted(frames.len())? => frames.len(),
            // At most a ring of them.
            true => self.posted()? as usize,
        };
        plain.frames.clear();
        // No more than a burst.
        let room = posted.min(plain.frames.capacity()).min(frames.len());
        plain.frames.extend(frames.iter().copied().take(room));
        if plain.frames.is_empty() {
            return Ok(0);
        }
        match self.store_short(plain, arena, buffers, shared)? {
            true => Ok(plain.frames.len()),
            false => Ok(0),
        }
    }

    /// Stores the listed frames, for each of which a page is posted, and answers their requests.
    /// Returns false, and has answered nothing, if a frame is not plain.
    #[inline(always)]
    pub(super) fn store_short(
        &mut self,
        plain: &mut RxPlain,
        arena: &mut [u8],
        buffers: &mut Buffers,
        shared: &QueueState,
    ) -> Result<bool, VifError> {
        let count = plain.frames.len();
        plain.first = self.ring.req_cons();
        let peeked = self.ring.peek_batch(&mut plain.slots[..count]);
        if peeked.map_err(|e| self.ring_error(e))? < count {
            return Err(VifError::Internal("a posted page vanished"));
        }
        if !plain.store(buffers, arena)? {
            return Ok(false);
        }
        // At most a burst.
        let consumed = self.ring.consume(count as u32);
        consumed.map_err(|_| VifError::Internal("consumed unseen slots"))?;
        // Killed before this, we leave the pages posted, and a successor writes them anew.
        if let Some(journal) = &self.journal {
            journal.rx_consumed(plain.first, &plain.owed[..count]);
        }
        if shared.tap.is_on() {
            shared.tap.packets(self.queue, TraceRing::Receive, arena, &plain.frames);
        }
        let (mut stored, mut bytes) = (count as u64, plain.bytes);
        if plain.missed != 0 {
            let (frames, of_them) = plain.drop_missed();
            VifStats::add(&shared.stats.rx_dropped_grant, frames);
            stored -= frames;
            bytes -= of_them;
        }
        let answered = self.ring.push_responses(&plain.answers[..count]);
        answered.map_err(|_| VifError::Internal("answered a slot twice"))?;
        VifStats::add(&shared.stats.rx_slots, count as u64);
        VifStats::add(&shared.stats.rx_packets, stored);
        self.packets += stored;
        VifStats::add(&shared.stats.rx_bytes, bytes);
        Ok(true)
    }
}
