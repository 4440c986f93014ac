//! Buffer policies: how bytes cross between a guest's pages and ours.
//!
//! This is the one seam between the packet path and the grant operations; the
//! rest of the path does not know which policy runs.

mod copy;

pub use copy::Copy;

use grantway_hypervisor::{CopySide, Error, GrantRef, GrantStatus};

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

    /// Guest receive: brings each piece from the arena into the guest's page
    /// and sets its status.
    ///
    /// # Errors
    ///
    /// As [`Policy::fetch`].
    fn store(&mut self, pieces: &mut [Piece], arena: &mut [u8]) -> Result<(), Error>;

    /// What a copy names where it reads from, or writes to, this guest's page.
    fn side(&self, gref: GrantRef, offset: u16) -> CopySide;

    /// Brings each stretch from the sender's page into this guest's and sets its
    /// status. Nobody looked at those bytes, and nobody will.
    ///
    /// # Errors
    ///
    /// As [`Policy::fetch`].
    fn cross(&mut self, sender: &dyn Policy, crosses: &mut [Cross]) -> Result<(), Error>;
}
