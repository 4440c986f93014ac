//! A turn whose packets are all of one slot, with nothing said beside: short packets,
//! of which there are millions a second. Each slot is looked at once: what it says is
//! judged, its bytes are fetched, and what becomes of it is listed in fixed room. All
//! else is done for the turn.

use super::Transmit;
use crate::VifError;
use crate::journal::JournalMemory;
use crate::state::shared::Shared;
use crate::state::stats::VifStats;
use crate::state::trace::TraceRing;
use crate::turn::outlet::Outlet;
use crate::turn::plain::TxPlain;
use crate::turn::taken::Moved;
use grantway_netif::tx::{TxFlags, TxRequest};
use grantway_ring::RingMemory;

/// Whether all packets of these slots are of one slot each, as far as their flags tell.
pub(super) fn are_plain(slots: &[[u32; 3]]) -> bool {
    slots.iter().all(|&words| {
        let flags = TxRequest::from_words(words).flags;
        !flags.intersects(TxFlags::MORE_DATA | TxFlags::EXTRA_INFO)
    })
}

impl<M: RingMemory<3>, J: JournalMemory> Transmit<M, J> {
    /// The turn of the packets that are listed, of so many slots.
    pub(super) fn turn_plain(
        &mut self,
        count: usize,
        arena: &mut [u8],
        plain: &mut TxPlain,
        outlet: &mut impl Outlet,
        shared: &Shared,
    ) -> Result<Moved, VifError> {
        self.held_until = None;
        // Killed before this, we leave the requests on the ring: bytes that were read of
        // them went nowhere.
        if let Some(journal) = &self.journal {
            journal.tx_consumed(self.ring.req_cons(), &plain.owed[..count]);
        }
        let mut fetched = count;
        if plain.missed != 0 {
            fetched = plain.drop_missed(count);
            VifStats::add(&shared.stats.tx_dropped_grant, (count - fetched) as u64);
        }
        let frames = &plain.frames[..fetched];
        if shared.tap.is_on() {
            shared.tap.packets(self.queue, TraceRing::Transmit, arena, frames);
        }
        outlet.send_whole(arena, frames, &shared.stats)?;
        // At most a burst.
        let consumed = self.ring.consume(count as u32);
        consumed.map_err(|_| VifError::Internal("consumed unseen slots"))?;
        let answered = self.ring.push_responses(&plain.answers[..count]);
        answered.map_err(|_| VifError::Internal("answered a slot twice"))?;
        let notify = self.publish();
        VifStats::add(&shared.stats.tx_slots, count as u64);
        Ok(Moved { packets: count, notify, call_at: None })
    }
}
