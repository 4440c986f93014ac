//! The packets that a turn takes off the ring: each parsed once, from private copies of its
//! slots. What its slots say, where its bytes lie and what becomes of it are kept here until
//! its slots are answered.

use crate::VifError;
use crate::journal::{TxOwed, TxOwedBytes};
use crate::layout::HEAD;
use crate::layout::{BURST, HEADS, RING_SLOTS, place};
use crate::policy::Piece;
use crate::state::shared::Shared;
use crate::state::stats::VifStats;
use crate::state::trace::TraceRing;
use crate::turn::outgoing::{Outgoing, lead};
use crate::turn::sink::{Limits, Sink};
use crate::turn::stages::Stages;
use crate::turn::work;
use grantway_netif::Offload;
use grantway_netif::slots::tx::{
    Multicast, Outcome, TxFatal, TxFragment, TxPacket, TxRefusal, parse_tx,
};
use grantway_netif::tx::status;
use grantway_ports::{FrameMeta, FramePlace};
use std::time::Instant;

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

    /// Hands the packets that are to be sent to rules and sink, and shows them to who listens.
    ///
    /// # Errors
    ///
    /// The vif cannot go on.
    fn hand_over<S: Sink>(
        &mut self,
        queue: u16,
        arena: &mut [u8],
        stages: &mut Stages<'_, '_, S>,
    ) -> Result<(), VifError>;

    /// The answers to the slots, in the order of the ring.
    fn answers(&mut self) -> &[[u32; 3]];
}

/// Meaning of a packet's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Packet,
    /// A change of the guest's own multicast filter.
    Change(Multicast),
    Refused(TxRefusal),
}

/// One packet of a turn.
#[derive(Debug)]
pub(crate) struct Taken {
    what: What,
    /// Its slots among the turn's: the first, and one past the last.
    slots: (u16, u16),
    /// Its fragments: the first, and one past the last.
    fragments: (u16, u16),
    /// Its pieces that are brought into private memory: the first, and one past the last.
    pieces: (u16, u16),
    /// Start of its private bytes in the arena.
    at: u32,
    /// Start of the arena's room for the whole packet.
    whole_at: u32,
    /// Its length in bytes; 0 if it is refused.
    len: u16,
    offload: Offload,
    /// Price of the packet for each receiver; 0 if the sink asks for no prices.
    price: u16,
    /// Status that answers its slots, if it goes no further.
    ended: Option<i16>,
}

impl Taken {
    /// Its length in bytes; 0 if it is refused.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Returns the start of its private bytes in the arena.
    pub fn at(&self) -> usize {
        self.at as usize
    }

    /// Returns the start of the arena's room for the whole packet.
    pub fn whole_at(&self) -> usize {
        self.whole_at as usize
    }

    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Returns true if the packet is still on its way to the sink.
    pub fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    /// Ends the packet: it goes no further, and `status` answers its slots.
    pub fn end(&mut self, status: i16) {
        self.ended = Some(status);
    }

    /// Notes where the arena has room for the whole packet.
    pub fn place_whole(&mut self, at: usize) {
        // Within the arena.
        self.whole_at = at as u32;
    }

    /// The frame that it is, if all of it is private.
    pub fn place(&self) -> FramePlace {
        FramePlace { at: self.at(), meta: FrameMeta { len: self.len(), offload: self.offload } }
    }
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
                    taken.describe(&packet, limits, fragments);
                    at = taken.list(at, limits.private, fragments, pieces);
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

    /// Ends the packets that are none to be sent: those that are refused, whose bytes could not
    /// be read, or that are changes of the multicast filter, which are made.
    pub fn judge(&mut self, shared: &Shared) {
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

    /// A packet of the turn, by its number, of which at most `private` bytes are private;
    /// none if it goes no further.
    pub fn outgoing(&self, number: usize, private: usize) -> Option<Outgoing<'_>> {
        let taken = self.packets.get(number).filter(|taken| taken.goes_on())?;
        let (first, end) = taken.fragments;
        let fragments = self.fragments.get(first.into()..end.into()).unwrap_or(&[]);
        Some(Outgoing::new((number, taken), fragments, private))
    }

    /// Iterates over the packets that go on, as [`TxBatch::outgoing`] returns them.
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
            rules.judge(self, sink.limits().private, arena, &shared.stats);
        }
        sink.send(self, arena, buffers, &shared.stats)
    }

    fn answers(&mut self) -> &[[u32; 3]] {
        let mut owed = self.owed.iter();
        self.answers.clear();
        for taken in &self.packets {
            let status = taken.ended.unwrap_or(status::OKAY);
            let own = owed.by_ref().take((taken.slots.1 - taken.slots.0).into());
            self.answers.extend(own.map(|owed| owed.response(status).to_words()));
        }
        &self.answers
    }
}

impl Taken {
    fn at_slots(first: usize, end: usize) -> Self {
        Self {
            what: What::Packet,
            // A ring's.
            slots: (first as u16, end as u16),
            fragments: (0, 0),
            pieces: (0, 0),
            at: 0,
            whole_at: 0,
            len: 0,
            offload: Offload::default(),
            price: 0,
            ended: None,
        }
    }

    /// Notes what the packet's slots say, and adds its fragments to the list.
    fn describe(&mut self, packet: &TxPacket<'_>, limits: Limits, fragments: &mut Vec<TxFragment>) {
        self.what = packet.multicast.map_or(What::Packet, What::Change);
        (self.len, self.offload) = (packet.len, packet.offload);
        if limits.reach > 0 {
            self.price = work::price(self.len(), packet.offload.gso);
        }
        // A ring's at most.
        let first = fragments.len() as u16;
        for fragment in packet.fragments() {
            if !fragment.is_empty() {
                fragments.push(fragment);
            }
        }
        self.fragments = (first, fragments.len() as u16);
    }

    /// Finds a place in the arena, from `at` on, for the packet's first `private` bytes, and
    /// lists them to be fetched. Returns where the arena is free behind them.
    fn list(
        &mut self,
        at: usize,
        private: usize,
        fragments: &[TxFragment],
        pieces: &mut Vec<Piece>,
    ) -> usize {
        let own = fragments.get(usize::from(self.fragments.0)..).unwrap_or(&[]);
        let private = self.len().min(private);
        // Heads have the same place whatever comes behind them.
        let lead = if private > HEAD { lead(own).unwrap_or(0).min(private) } else { 0 };
        let at = place(at, lead, private);
        let (first, mut end) = (pieces.len(), at);
        for &TxFragment { gref, offset, size, .. } in own {
            // At most a page.
            let size = usize::from(size).min(at + private - end) as u16;
            if size == 0 {
                break;
            }
            pieces.push(Piece::new(gref, offset, size, end));
            end += usize::from(size);
        }
        // Pieces are a ring's at most, and the arena is small.
        (self.pieces, self.at) = ((first as u16, pieces.len() as u16), at as u32);
        end.next_multiple_of(64)
    }

    /// Returns true if all pieces of the packet were fetched.
    fn is_here(&self, pieces: &[Piece]) -> bool {
        let (first, end) = self.pieces;
        let own = pieces.get(first.into()..end.into()).unwrap_or(&[]);
        own.iter().all(|piece| piece.status.is_okay())
    }
}
