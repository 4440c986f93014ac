//! Buffer policies: the ways in which bytes cross between a guest's pages and ours.
//!
//! [`Buffers`] is the one interface between the packet path and the grant operations. A turn lists
//! pieces, and does not know the policy. The processor moves pieces of pages that the policy keeps
//! mapped. Grant copies move all others, in one batch per list. With the policy map, [`Buffers`]
//! uses grant copy, and [`Map`] maps pages on the way to a port.

mod buffers;
mod copies;
mod limits;
mod map;
mod near;
mod persistent;
mod quota;
mod staging;
mod table;

pub use buffers::Buffers;
pub(crate) use buffers::Moving;
pub(crate) use copies::Way;
pub use grantway_netif::Policy;
pub use limits::PolicyLimits;
pub use map::{Map, Stretch};
pub(crate) use near::{Near, Pages};
pub use quota::{Budget, Mapped, QUEUE_AREAS, Quota, Reserved};
pub(crate) use staging::{KeptTable, LastingTable, StagedTable};
pub use staging::{Staged, StagedQueue, StagingError};

use grantway_hypervisor::{Access, CopyOp, CopySide, DomId, Error, GrantRef, GrantStatus, Mapper};
use grantway_ring::{SharedPage, SharedRun};
use std::fmt;
use std::sync::Arc;

/// One part of a guest's page, and its place in the worker's arena.
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
    /// Outcome, set by [`Buffers::fetch`] and [`Buffers::store`].
    pub status: GrantStatus,
}

impl Piece {
    /// Returns a piece that was not moved yet.
    #[must_use]
    pub fn new(gref: u32, offset: u16, len: u16, at: usize) -> Self {
        let at = at.try_into().unwrap_or(u32::MAX);
        Self { gref: GrantRef(gref), offset, len, at, status: GrantStatus::GENERAL_ERROR }
    }
}

/// One part of a page that goes from a guest's page to another guest's page.
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
    /// Outcome, set by [`Buffers::cross`].
    pub status: GrantStatus,
}

/// Place of bytes in a guest's page, for a copy that reads them.
#[derive(Debug)]
pub struct Side<'a> {
    /// Place in the form of a grant copy, which never names a mapping of ours.
    pub grant: CopySide,
    /// The page and the offset in it, in bytes, if we have it mapped.
    pub mapped: Option<(&'a SharedPage, u16)>,
}

/// A guest's grants, as the backend's domain uses them.
#[derive(Clone)]
struct Grants {
    mapper: Arc<dyn Mapper>,
    guest: DomId,
}

impl Grants {
    /// Maps a list of pages as one run, all of them or none, and returns the run.
    fn map(&self, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        self.mapper.map(self.guest, grefs, access)
    }

    /// Returns the grant copy of a piece.
    #[inline(always)]
    fn copy(&self, piece: &Piece, way: Way) -> CopyOp {
        let local = CopySide::Local { offset: piece.at };
        let foreign = self.place(piece.gref, piece.offset);
        match way {
            Way::Fetch => CopyOp::new(foreign, local, piece.len),
            Way::Store => CopyOp::new(local, foreign, piece.len),
        }
    }

    /// Returns a place in a page, as a grant copy names it.
    fn place(&self, gref: GrantRef, offset: u16) -> CopySide {
        CopySide::Foreign { domain: self.guest, gref, offset }
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grants({})", self.guest)
    }
}
