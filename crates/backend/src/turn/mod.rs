//! A turn of one queue: packets from the guest to a sink, and frames to the guest.
//!
//! From the guest, in this order: [`transmit`] takes slots off the ring; [`batch`], or [`plain`]
//! for packets of a slot each, parses them; `policy` brings their bytes into private memory;
//! [`stages`] has rules judge them; a [`sink`] takes them, behind
//! [`complete`] if the vif's checksums are full; their slots are answered.
//! To the guest: [`receive`].

pub(crate) mod batch;
pub(crate) mod complete;
pub(crate) mod delivery;
pub(crate) mod lists;
pub(crate) mod outgoing;
pub(crate) mod plain;
pub(crate) mod queue;
pub(crate) mod receive;
pub(crate) mod scratch;
pub(crate) mod showing;
pub(crate) mod sink;
pub(crate) mod stages;
pub(crate) mod stretches;
pub(crate) mod taken;
pub(crate) mod transmit;
pub(crate) mod waiting;
pub(crate) mod work;

use std::time::Instant;

/// Result of a turn in one direction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Packets taken from one side, delivered or dropped.
    pub packets: usize,
    /// The peer asked to be signalled.
    pub notify: bool,
    /// Time at which the next packet may go, if the rate holds it.
    pub call_at: Option<Instant>,
}
