//! What a turn took, and what it did.

use crate::VifError;
use crate::policy::Piece;
use grantway_netif::slots::tx::{Outcome, TxPacket, parse_tx};
use std::time::Instant;

/// One packet taken off the ring in this turn. What it says is read again from the
/// private copies of its slots, which costs less than to keep it.
pub(crate) struct Taken {
    /// Its slots among those copies: first and one past the last.
    pub(super) slots: (u16, u16),
    /// Its pieces in the list of the turn, likewise.
    pub(super) pieces: (u16, u16),
    /// Where its private bytes are to lie in the arena.
    pub(super) at: u32,
    /// Where there is room for all of it, if that is asked for.
    pub(super) whole_at: u32,
    /// Its bytes; none where it is refused.
    pub(super) len: u16,
    /// What it costs for each receiver, where its outlet asks.
    pub(super) price: u16,
}

impl Taken {
    /// What was parsed of these copies before.
    #[inline]
    pub(super) fn parsed<'a>(&self, slots: &'a [[u32; 3]]) -> Result<Outcome<'a>, VifError> {
        let own = slots.get(self.slots.0.into()..self.slots.1.into()).unwrap_or(&[]);
        match parse_tx(own) {
            Ok(Some(parsed)) => Ok(parsed.outcome),
            _ => Err(VifError::Internal("slots that parse only once")),
        }
    }

    /// The packet, where it is one to be sent, and its private bytes are here.
    pub(crate) fn here<'a>(&self, slots: &'a [[u32; 3]], pieces: &[Piece]) -> Option<TxPacket<'a>> {
        let Ok(Outcome::Packet(packet)) = self.parsed(slots) else { return None };
        let here = || self.pieces(pieces).iter().all(|piece| piece.status.is_okay());
        (packet.multicast.is_none() && here()).then_some(packet)
    }

    /// Its bytes; none where it is refused.
    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    /// What it costs for each receiver, at most ([`price`](crate::turn::work::price)).
    pub(crate) fn price(&self) -> u32 {
        self.price.into()
    }

    /// Where its private bytes are in the arena.
    pub(crate) fn at(&self) -> u32 {
        self.at
    }

    /// There is room for all of it here.
    pub(crate) fn place_whole(&mut self, at: u32) {
        self.whole_at = at;
    }

    /// Its pieces in the list of the turn.
    #[inline]
    pub(super) fn pieces<'a>(&self, pieces: &'a [Piece]) -> &'a [Piece] {
        pieces.get(self.pieces.0.into()..self.pieces.1.into()).unwrap_or(&[])
    }
}

/// What a turn of one direction did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Packets taken from one side, delivered or dropped.
    pub packets: usize,
    /// The peer asked to be signalled.
    pub notify: bool,
    /// When the next packet may go that may not go now.
    pub call_at: Option<Instant>,
}
