//! Buffer policies: how bytes cross between a guest's pages and ours.
//!
//! This is the one seam between the packet path and the grant operations; the
//! rest of the path does not know which policy runs.

mod choice;
mod copy;
mod map;
mod mixed;
mod persistent;
mod plain;
mod quota;
mod staging;
mod table;

pub use choice::{PolicyKind, PolicyLimits};
pub use copy::Copy;
pub use map::Map;
pub use persistent::Persistent;
pub(crate) use plain::is_short;
pub use plain::{RxPlain, TxPlain};
pub use quota::{Budget, Mapped, QUEUE_AREAS, Quota, Reserved};
pub(crate) use staging::{LastingTable, StagedTable};
pub use staging::{Staged, StagedQueue, Staging, StagingError};

use crate::state::stats::VifStats;
use grantway_hypervisor::{CopySide, Error, GrantRef, GrantStatus};
use grantway_ring::SharedPage;
use std::time::Instant;

/// One stretch of a guest's page and its place in the worker's arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The guest's page.
    pub gref: GrantRef,
    /// Offset in that page, in bytes.
    pub offset: u16,
    /// Length in bytes, 1 to 4096.
    pub len: u16,
    /// Offset in the arena, in bytes.
    pub at: u32,
    /// What became of it; set by the policy.
    pub status: GrantStatus,
}

impl Piece {
    /// A piece that is still to cross.
    #[must_use]
    pub fn new(gref: u32, offset: u16, len: u16, at: usize) -> Self {
        let at = at.try_into().unwrap_or(u32::MAX);
        Self { gref: GrantRef(gref), offset, len, at, status: GrantStatus::GENERAL_ERROR }
    }
}

/// One stretch that goes from a guest's page to another guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cross {
    /// The number of the packet in its sender's turn.
    pub packet: usize,
    /// The sender's page, and the offset in it, in bytes.
    pub from: (GrantRef, u16),
    /// The receiver's page, and the offset in it, in bytes.
    pub to: (GrantRef, u16),
    /// Length in bytes, 1 to 4096.
    pub len: u16,
    /// What became of it; set by the policy.
    pub status: GrantStatus,
}

/// One stretch of a guest's page that a port reads in place.
#[derive(Debug)]
pub struct Stretch {
    /// The guest's page.
    pub gref: GrantRef,
    /// Offset in that page, in bytes.
    pub offset: u16,
    /// Length in bytes, 1 to 4096.
    pub len: u16,
    /// The page; set by the policy, which unmaps it only once this is dropped.
    pub page: Option<SharedPage>,
}

/// Where bytes of a guest's page are, for a copy that reads them.
#[derive(Debug)]
pub struct Side<'a> {
    /// What a grant copy names: never a mapping of ours.
    pub grant: CopySide,
    /// The page and the offset in it, in bytes, where we have it mapped.
    pub mapped: Option<(&'a SharedPage, u16)>,
}

/// What moves pieces as they are listed. A trait, for only its calls are sure to be
/// inlined.
pub(crate) trait Take {
    /// Moves a piece, which has this number, or notes it to be moved; whether it can be.
    fn take(&mut self, number: usize, piece: Piece) -> bool;
}

impl<F: FnMut(usize, Piece) -> bool> Take for F {
    #[inline(always)]
    fn take(&mut self, number: usize, piece: Piece) -> bool {
        self(number, piece)
    }
}

/// How the buffers of one vif's queue cross.
pub trait Policy: Send {
    /// The policy's name in tables and figures.
    fn name(&self) -> &'static str;

    /// Guest transmit: brings each piece from the guest's page into the arena
    /// and sets its status.
    ///
    /// # Errors
    ///
    /// When nothing at all could be attempted: the platform is gone.
    fn fetch(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error>;

    /// Guest transmit of packets of one slot each: has them listed from the copies of
    /// their slots, and brings each to its place in the arena as it is. False where a
    /// packet is of another kind: what was brought then does not count.
    ///
    /// # Errors
    ///
    /// As [`Policy::fetch`].
    fn fetch_plain(
        &mut self,
        slots: &[[u32; 3]],
        plain: &mut TxPlain,
        arena: &mut [u8],
    ) -> Result<bool, Error>;

    /// Guest receive of frames that each fit a page: has them listed, and brings each
    /// to its page as it is. False where a frame is of another kind: what was brought
    /// then does not count.
    ///
    /// # Errors
    ///
    /// As [`Policy::fetch`].
    fn store_plain(&mut self, plain: &mut RxPlain, arena: &mut [u8]) -> Result<bool, Error>;

    /// Guest receive: brings each piece from the arena into the guest's page
    /// and sets its status.
    ///
    /// # Errors
    ///
    /// As [`Policy::fetch`].
    fn store(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error>;

    /// Where a copy to another guest reads this guest's page.
    fn side(&mut self, gref: GrantRef, offset: u16) -> Side<'_>;

    /// A grant copy to another guest read this guest's page.
    fn sighted(&mut self, gref: GrantRef) {
        let _ = gref;
    }

    /// Brings each stretch from the sender's page into this guest's and sets its
    /// status. Nobody looked at those bytes, and nobody will.
    ///
    /// # Errors
    ///
    /// As [`Policy::fetch`].
    fn cross(&mut self, sender: &mut dyn Policy, crosses: &mut [Cross]) -> Result<(), Error>;

    /// Guest transmit to a port: whether pages are mapped for as long as a packet
    /// is on its way, all but its first bytes.
    fn maps(&self) -> bool {
        false
    }

    /// How many more pages [`Policy::map`] would map.
    fn room(&self) -> usize {
        0
    }

    /// Maps the page of each stretch to be read, all of them or none; whether it
    /// did. They stay mapped until [`Policy::unmap`].
    fn map(&mut self, stretches: &mut [Stretch]) -> bool {
        let _ = stretches;
        false
    }

    /// Pages that are mapped by [`Policy::map`] now.
    fn mapped(&self) -> usize {
        0
    }

    /// Unmaps them all. From here on their packets may be answered.
    fn unmap(&mut self) {}

    /// The queue's turn is over, or another queue's in which it was given
    /// packets: from here on no page is in use. `idle` says that nothing moved.
    /// The moment at which there is something to do, were there no packets.
    fn end_turn(
        &mut self,
        idle: bool,
        now: &dyn Fn() -> Instant,
        stats: &VifStats,
    ) -> Option<Instant> {
        let _ = (idle, now, stats);
        None
    }
}
