//! The packets that a turn takes off the ring. Each is parsed once, from private copies of its
//! slots. The data of its slots, the place of its bytes and its fate are kept here until its slots
//! are answered.

use crate::journal::{TxOwed, TxOwedBytes};
use crate::layout::{BURST, HEAD, HEADS, RING_SLOTS};
use crate::policy::Piece;
use crate::state::shared::QueueState;
use crate::state::stats::VifStats;
use crate::turn::outgoing::Outgoing;
use crate::turn::taken::{Taken, What};
use crate::turn::work;
use grantway_netif::slots::tx::{Outcome, TxFatal, TxFragment, TxRefusal, parse_tx};
use grantway_netif::tx::status;
use grantway_ports::FramePlace;
use std::time::Instant;

/// Demands of a sink on the packets of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of a packet that are copied into private memory before it is sent.
    pub private: usize,
    /// Bytes of the longest packet that is taken as a frame in private memory, of which no
    /// more is asked; 0 if none is.
    pub whole: usize,
    /// A turn that has as many slots takes no further packet. The last packet may exceed it.
    pub slots: usize,
    /// Bytes of the longest large packet that is private as a whole. Of a longer one the head is
    /// private, and the arena has room for all of it from there on.
    pub in_place: usize,
    /// Number of receivers that a packet may go to; 0 if their number makes no difference.
    pub reach: u32,
    /// True if a large frame is sent as segments, each by itself.
    pub cuts: bool,
}

/// The packets that a turn took off the ring. A turn does the same steps in the same order for any
/// packets. Two types implement the steps: [`TxBatch`] for packets of any kind, and
/// [`TxPlain`](crate::turn::plain::TxPlain) for packets of one slot without an extra.
pub(crate) trait Batch {
    /// Returns the number of packets.
    fn packets(&self) -> usize;

    /// Returns the number of slots that the packets take.
    fn slots(&self) -> usize;

    /// Returns the price of a packet for each receiver, and the packet's first bytes.
    fn price<'a>(&self, number: usize, arena: &'a [u8]) -> (u32, &'a [u8]);

    /// Leaves all packets but the first `within` on the ring. Returns the bytes of those left, as
    /// far as they were charged to the rate.
    fn leave(&mut self, within: usize) -> u64;

    /// The slots, as the journal is to have them.
    fn owed(&mut self) -> &[TxOwedBytes];

    /// The answers to the slots, in the order of the ring.
    fn answers(&mut self) -> &[[u32; 3]];
}

/// The packets of one turn.
pub(crate) struct TxBatch {
    /// Private copies of the turn's slots.
    pub slots: Box<[[u32; 3]; RING_SLOTS]>,
    /// The packets, in the order of the ring.
    pub packets: Vec<Taken>,
    /// Pieces that are brought into private memory.
    pub pieces: Vec<Piece>,
    /// The fragments of all packets, without empty ones.
    fragments: Vec<TxFragment>,
    /// The slots, as far as an answer needs them.
    owed: Vec<TxOwed>,
    /// The slots of `owed` in the journal's format.
    owed_bytes: Vec<TxOwedBytes>,
    answers: Vec<[u32; 3]>,
}

impl TxBatch {
    pub fn new() -> Self {
        Self {
            slots: Box::new([[0; 3]; RING_SLOTS]),
            packets: Vec::with_capacity(BURST),
            pieces: Vec::with_capacity(RING_SLOTS),
            fragments: Vec::with_capacity(RING_SLOTS),
            owed: Vec::with_capacity(RING_SLOTS),
            owed_bytes: Vec::with_capacity(RING_SLOTS),
            answers: Vec::with_capacity(RING_SLOTS),
        }
    }

    /// Parses the first `waiting` slots into packets, a burst at most, and lists what is to
    /// be fetched of each. Ends before a packet to which `admit` says when it may go.
    ///
    /// # Errors
    ///
    /// A chain that cannot be followed. The packets before it are listed.
    pub fn parse(
        &mut self,
        waiting: usize,
        limits: Limits,
        mut admit: impl FnMut(usize) -> Result<(), Instant>,
    ) -> Result<Option<Instant>, TxFatal> {
        let Self { slots, packets, pieces, fragments, owed, .. } = self;
        packets.clear();
        pieces.clear();
        fragments.clear();
        owed.clear();
        let segment = if limits.cuts { work::SEGMENT_SENT } else { work::SEGMENT };
        let segment = (limits.reach > 0).then_some(segment);
        let (mut slot, mut at, mut whole_at) = (0, 0, HEADS);
        while packets.len() < BURST && slot < limits.slots {
            let parsed = match parse_tx(&slots[slot..waiting]) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                // Its end may be behind what was looked at.
                Err(TxFatal::Truncated { .. }) if waiting == BURST && slot > 0 => break,
                Err(fatal) => return Err(fatal),
            };
            let end = slot + parsed.slots;
            let mut taken = Taken::at_slots(slot, end);
            let first_owed = owed.len();
            match parsed.outcome {
                Outcome::Packet(packet) => {
                    if let Err(later) = admit(packet.len.into()) {
                        return Ok(Some(later));
                    }
                    taken.describe(&packet, segment, fragments);
                    at = match taken.stays(limits.in_place) {
                        true => taken.list_head(at, fragments, pieces),
                        false => taken.list(at, limits.private, fragments, pieces),
                    };
                }
                Outcome::Refused(refused) => taken.what = What::Refused(refused.reason),
            }
            owed.extend(parsed.responses(status::OKAY).map(TxOwed::from));
            if let What::Change(_) = taken.what {
                owed[first_owed..].iter_mut().for_each(|owed| *owed = owed.changing());
            }
            taken.place_whole(whole_at);
            whole_at = (whole_at + taken.len()).next_multiple_of(64);
            packets.push(taken);
            slot = end;
        }
        Ok(None)
    }

    /// Ends a packet, by its number, whose bytes could not be read after it was judged, once.
    pub fn end_unread(&mut self, number: usize, stats: &VifStats) {
        if let Some(taken) = self.packets.get_mut(number).filter(|taken| taken.goes_on()) {
            VifStats::add(&stats.tx_dropped_grant, 1);
            taken.end(status::ERROR);
        }
    }

    /// Ends the packets that are none to be sent: those that are refused, whose bytes could not
    /// be read, or that are changes of the multicast filter, which are made.
    pub fn judge(&mut self, shared: &QueueState) {
        let Self { packets, pieces, .. } = self;
        for taken in packets {
            let end = match taken.what {
                What::Packet if taken.is_here(pieces) => continue,
                What::Packet => {
                    VifStats::add(&shared.stats.tx_dropped_grant, 1);
                    status::ERROR
                }
                What::Change(change) => {
                    let done = shared.multicast.change(change);
                    VifStats::add(&shared.stats.tx_dropped_multicast, u64::from(!done));
                    if done { status::OKAY } else { status::ERROR }
                }
                What::Refused(reason) => {
                    let counter = match reason {
                        TxRefusal::TooManySlots { .. } => &shared.stats.tx_dropped_slots,
                        _ => &shared.stats.tx_dropped_malformed,
                    };
                    VifStats::add(counter, 1);
                    status::ERROR
                }
            };
            taken.end(end);
        }
    }

    /// Iterates over the packets that are sent on, if each is wholly private.
    pub fn frames(&self) -> impl Iterator<Item = FramePlace> {
        self.packets.iter().filter(|taken| taken.goes_on()).map(Taken::place)
    }

    /// Returns a packet of the turn by its number, of which at most `private` bytes are private.
    /// Returns `None` if it is not sent on.
    pub fn outgoing(&self, number: usize, private: usize) -> Option<Outgoing<'_>> {
        let taken = self.packets.get(number).filter(|taken| taken.goes_on())?;
        let (first, end) = taken.fragments;
        let fragments = self.fragments.get(first.into()..end.into()).unwrap_or(&[]);
        Some(Outgoing::new((number, taken), fragments, private))
    }

    /// Iterates over the packets that are sent on, as [`TxBatch::outgoing`] returns them.
    pub fn all_outgoing(&self, private: usize) -> impl Iterator<Item = Outgoing<'_>> {
        (0..self.packets.len()).filter_map(move |number| self.outgoing(number, private))
    }
}

impl Batch for TxBatch {
    fn packets(&self) -> usize {
        self.packets.len()
    }

    fn slots(&self) -> usize {
        self.owed.len()
    }

    fn price<'a>(&self, number: usize, arena: &'a [u8]) -> (u32, &'a [u8]) {
        let Some(taken) = self.packets.get(number) else { return (0, &[]) };
        let head = arena.get(taken.at()..taken.at() + taken.len().min(HEAD));
        (taken.price.into(), head.unwrap_or(&[]))
    }

    #[cold]
    fn leave(&mut self, within: usize) -> u64 {
        let left = self.packets.get(within..).unwrap_or(&[]);
        // They pay when they go; a refused one, which has no length here, never does.
        let bytes = left.iter().map(|taken| u64::from(taken.len)).sum();
        if let Some(first) = left.first() {
            self.owed.truncate(first.slots.0.into());
        }
        self.packets.truncate(within);
        bytes
    }

    fn owed(&mut self) -> &[TxOwedBytes] {
        self.owed_bytes.clear();
        self.owed_bytes.extend(self.owed.iter().map(|owed| owed.to_bytes()));
        &self.owed_bytes
    }

    fn answers(&mut self) -> &[[u32; 3]] {
        self.answers.clear();
        for taken in &self.packets {
            let status = taken.ended.unwrap_or(status::OKAY);
            // Each slot is owed one answer.
            let own = self.owed.get(taken.slots.0.into()..taken.slots.1.into()).unwrap_or(&[]);
            self.answers.extend(own.iter().map(|owed| owed.response(status).to_words()));
        }
        &self.answers
    }
}
