//! TCP segments of a turn on the bridge, merged for who takes large frames.

use super::chains::{Outcome, Part};
use super::forward::{Forward, Others};
use crate::VifError;
use crate::policy::Buffers;
use crate::state::stats::VifStats;
use crate::turn::lists::UPLINK;
use crate::turn::outlet::{Outgoing, Tally};
use crate::turn::receive::Frame;
use crate::turn::scratch::Scratch;
use grantway_netif::tx::status;
use grantway_vector::Verdict;

impl<O: Others> Forward<'_, O> {
    /// Merges the packets of a turn, whose first bytes are private and of which is known
    /// where they go. Merged frames are private then, all of each.
    pub(super) fn merge(
        &mut self,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Result<(), VifError> {
        let Some(merger) = &mut self.merger else { return Ok(()) };
        let (lists, chains) = (&mut self.bridge.lists, &mut self.hub.chains);
        chains.some = lists.merge(merger, &mut scratch.arena);
        if !chains.some {
            return Ok(());
        }
        chains.clear();
        chains.place(lists, scratch);
        chains.fetch(buffers, &mut scratch.arena)
    }

    /// Gives a packet that is part of a merged frame; the status for it, none where it
    /// is by itself.
    pub(super) fn give_merged(
        &mut self,
        packet: &Outgoing<'_>,
        frame: u8,
        arena: &mut [u8],
        stats: &mut Tally<'_>,
    ) -> Option<i16> {
        if !self.hub.chains.some {
            return None;
        }
        let first = match *self.hub.chains.parts.get(packet.number)? {
            Part::Alone => return None,
            Part::With(first) => first,
            Part::First { at, len } => {
                if self.hub.chains.outcomes[packet.number] == Outcome::Given
                    && !self.give_whole(frame, (at, len), arena, stats)
                {
                    self.hub.chains.outcomes[packet.number] = Outcome::Nobody;
                }
                packet.number
            }
        };
        match self.hub.chains.outcomes[first] {
            Outcome::Given => {
                stats.sent(packet.len());
                VifStats::add(&stats.tx_merged, 1);
            }
            Outcome::Nobody => VifStats::add(&stats.tx_dropped_port, 1),
            Outcome::Unreadable => {
                VifStats::add(&stats.tx_dropped_grant, 1);
                return Some(status::ERROR);
            }
        }
        Some(status::OKAY)
    }

    /// Gives a merged frame, which lies in the arena; whether it is for anybody.
    fn give_whole(
        &mut self,
        frame: u8,
        (at, len): (usize, usize),
        arena: &mut [u8],
        stats: &VifStats,
    ) -> bool {
        let offload = self.bridge.lists.frame(frame).offload;
        match self.bridge.lists.verdict(frame) {
            Verdict::To(UPLINK) if self.bridge.uplink.is_some() => {
                self.give_uplink(&arena[at..at + len], offload, stats);
                true
            }
            Verdict::To(port) => {
                let Some((key, _)) = self.queue_for(port, frame, &arena[at..at + len]) else {
                    return false;
                };
                let from = self.sender;
                let whole = Frame { at, len, offload, from, flooded: None, passed: false };
                self.give_queue(key, whole, arena);
                true
            }
            _ => false,
        }
    }
}
