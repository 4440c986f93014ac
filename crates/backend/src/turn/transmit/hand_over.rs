//! The step of a turn from private bytes to rules and sink, for both kinds of batch.

use crate::VifError;
use crate::state::stats::VifStats;
use crate::state::trace::TraceRing;
use crate::turn::batch::{Batch, TxBatch};
use crate::turn::plain::TxPlain;
use crate::turn::sink::Sink;
use crate::turn::stages::Stages;
use crate::turn::work::{TURN, at_least_one};

/// A batch whose packets can be handed over.
pub(super) trait HandOver: Batch {
    /// Ends the packets that must not be sent, shows the others to the trace, and passes them to
    /// rules and sink.
    ///
    /// # Errors
    ///
    /// The vif cannot continue.
    fn hand_over<S: Sink>(
        &mut self,
        queue: u16,
        arena: &mut [u8],
        stages: &mut Stages<'_, '_, S>,
    ) -> Result<(), VifError>;
}

impl HandOver for TxBatch {
    fn hand_over<S: Sink>(
        &mut self,
        queue: u16,
        arena: &mut [u8],
        stages: &mut Stages<'_, '_, S>,
    ) -> Result<(), VifError> {
        let Stages { buffers, rules, sink, shared } = stages;
        self.judge(shared);
        if shared.tap.is_on() {
            let on_their_way = self.packets.iter().filter(|taken| taken.goes_on());
            let heads = on_their_way.map(|taken| (taken.at(), taken.len()));
            shared.tap.heads(queue, TraceRing::Transmit, arena, heads);
        }
        if let Some(rules) = rules {
            let limits = sink.limits();
            debug_assert!(limits.in_place == usize::MAX, "rules judge what is private");
            rules.judge(self, limits.private, arena, &shared.stats);
        }
        sink.send(self, arena, buffers, &shared.stats)
    }
}

impl HandOver for TxPlain {
    #[inline]
    fn hand_over<S: Sink>(
        &mut self,
        queue: u16,
        arena: &mut [u8],
        stages: &mut Stages<'_, '_, S>,
    ) -> Result<(), VifError> {
        let Stages { rules, sink, shared, .. } = stages;
        let (frames, missed) = self.fetched();
        if missed > 0 {
            VifStats::add(&shared.stats.tx_dropped_grant, missed as u64);
        }
        if shared.tap.is_on() {
            shared.tap.packets(queue, TraceRing::Transmit, arena, frames);
        }
        match rules {
            None => sink.send_frames(arena, frames, &shared.stats),
            Some(rules) => {
                let kept = rules.run_to_port(arena, frames, &shared.stats);
                sink.send_frames(arena, &kept, &shared.stats)
            }
        }
    }
}

/// Returns the number of packets that are within a turn's work: 1 or more. Each packet may go to
/// all receivers of the sink, or to one.
#[inline(always)]
pub(super) fn within<S: Sink>(batch: &impl Batch, arena: &[u8], sink: &S) -> usize {
    let (packets, reach) = (batch.packets(), sink.limits().reach);
    if reach == 0 {
        return packets;
    }
    let all: u32 = (0..packets).map(|number| batch.price(number, arena).0).sum();
    match all.saturating_mul(reach) <= TURN {
        true => packets,
        false => within_by_way(batch, arena, sink),
    }
}

/// Returns the same number as [`within`]. Asks the sink for each packet if it may go to all
/// receivers.
#[inline(never)]
fn within_by_way(batch: &impl Batch, arena: &[u8], sink: &impl Sink) -> usize {
    let reach = sink.limits().reach;
    let prices = (0..batch.packets()).map(|number| {
        let (price, head) = batch.price(number, arena);
        price.saturating_mul(if sink.may_flood(head) { reach } else { 1 })
    });
    at_least_one(prices)
}
