//! Grants: pages that a domain lets a peer reach, and the three ways in which
//! the peer does (map, unmap, copy).

use crate::Error;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::DerefMut;
use grantway_ring::{SharedPage, SharedRun};

/// A domain's number, 0 to 32751 (`DOMID_FIRST_RESERVED` is 0x7ff0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomId(pub u16);

impl DomId {
    /// The first domain, which has the toolstack.
    pub const ZERO: Self = Self(0);
    /// One past the largest number that a domain may have.
    pub const FIRST_RESERVED: u16 = 0x7ff0;
}

impl fmt::Display for DomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An index into the granting domain's grant table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantRef(pub u32);

impl GrantRef {
    /// References below this one are reserved for the toolstack
    /// (`GNTTAB_NR_RESERVED_ENTRIES`).
    pub const FIRST_FREE: u32 = 8;
}

impl fmt::Display for GrantRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Rights of the peer on a granted page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read it.
    ReadOnly,
    /// Read and write it.
    ReadWrite,
}

/// The status of one grant operation (`GNTST_*` of Xen's grant_table.h): 0 is
/// success. A failure is negative, or any other number (XSA-316).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GrantStatus(pub i16);

impl GrantStatus {
    /// Done.
    pub const OKAY: Self = Self(0);
    /// Not further described.
    pub const GENERAL_ERROR: Self = Self(-1);
    /// No such domain.
    pub const BAD_DOMAIN: Self = Self(-2);
    /// The reference is not granted to us.
    pub const BAD_GNTREF: Self = Self(-3);
    /// The local address is none of ours.
    pub const BAD_VIRT_ADDR: Self = Self(-5);
    /// No room in the table of what the domain has mapped, or in the i/o mmu.
    pub const NO_DEVICE_SPACE: Self = Self(-7);
    /// Written to a page that is granted for reading.
    pub const PERMISSION_DENIED: Self = Self(-8);
    /// The page behind the grant cannot be had.
    pub const BAD_PAGE: Self = Self(-9);
    /// The copy crosses the end of a page.
    pub const BAD_COPY_ARG: Self = Self(-10);
    /// Try again (the page is paged out).
    pub const EAGAIN: Self = Self(-12);

    /// Returns true if the operation was done.
    #[must_use]
    pub fn is_okay(self) -> bool {
        self == Self::OKAY
    }
}

impl fmt::Display for GrantStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.0 {
            0 => "okay",
            -1 => "general error",
            -2 => "no such domain",
            -3 => "not granted to us",
            -4 => "bad handle",
            -5 => "bad local address",
            -6 => "bad device",
            -7 => "no space in the i/o mmu",
            -8 => "permission denied",
            -9 => "bad page",
            -10 => "the copy crosses a page",
            -11 => "address too big",
            -12 => "try again",
            -13 => "out of space",
            _ => "unknown status",
        };
        write!(f, "{what} ({})", self.0)
    }
}

/// A run of our own pages, each granted to one peer.
#[derive(Debug)]
pub struct Granted {
    /// The pages, as we see them.
    pub run: SharedRun,
    /// Their grant references, in the order of the pages.
    pub grefs: Vec<GrantRef>,
    /// The domain that may reach the pages.
    pub peer: DomId,
}

impl Granted {
    /// Page `index` and its reference.
    #[must_use]
    pub fn page(&self, index: usize) -> Option<(SharedPage, GrantRef)> {
        Some((self.run.page(index)?, *self.grefs.get(index)?))
    }
}

/// Number of pages of a released run that came back.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Pages whose grant is revoked; they are free again.
    pub revoked: usize,
    /// Pages that the peer still reaches, or may: the platform holds them,
    /// looks again later, and counts them ([`crate::CounterSnapshot::deferred`]).
    pub deferred: usize,
}

/// One side of a grant copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopySide {
    /// Bytes of the caller's arena, from this offset on.
    Local {
        /// Offset in the arena, in bytes.
        offset: u32,
    },
    /// A page that `domain` granted to us.
    Foreign {
        /// Owner of the page.
        domain: DomId,
        /// Reference of the page.
        gref: GrantRef,
        /// Offset in the page, in bytes.
        offset: u16,
    },
}

/// One copy of a batch, at most a page long and crossing no page on a foreign
/// side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyOp {
    /// Source of the bytes.
    pub source: CopySide,
    /// Destination of the bytes.
    pub dest: CopySide,
    /// Bytes, 1 to 4096.
    pub len: u16,
    /// Result of the operation; set by [`Mapper::copy`].
    pub status: GrantStatus,
}

impl CopyOp {
    /// A copy that is still to be done.
    #[must_use]
    pub fn new(source: CopySide, dest: CopySide, len: u16) -> Self {
        Self { source, dest, len, status: GrantStatus::GENERAL_ERROR }
    }
}

/// Private memory, see [`Mapper::arena`].
pub type Arena = Box<dyn DerefMut<Target = [u8]> + Send>;

/// Something that is kept, see [`Mapper::apart`].
pub type Apart = Box<dyn Send>;

/// Backend side: reaches pages that a peer granted.
pub trait Mapper: Send + Sync {
    /// Maps a list of grants in one batch, as one run: all of them or none.
    /// Dropping the last handle of the run unmaps it whole.
    ///
    /// # Errors
    ///
    /// [`Error::Grant`] names the first reference that could not be mapped;
    /// nothing is mapped then.
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error>;

    /// Keeps what is mapped of this peer's apart from that of others, from the next
    /// [`Mapper::map`] on and for as long as what comes back is kept: so that what one peer
    /// has mapped, and maps, makes no other wait. To be called by a thread that may open
    /// devices, before those map that may not. None where the platform has nothing to keep
    /// apart, or no more of it: then pages are mapped all the same.
    fn apart(&self, peer: DomId) -> Option<Apart> {
        let _ = peer;
        None
    }

    /// Does a batch of copies in order and sets each status. Local sides are
    /// offsets into `arena`, which is the caller's private memory.
    ///
    /// # Errors
    ///
    /// Only when the batch as a whole could not be attempted ([`Error::Os`],
    /// [`Error::Gone`]); each status is then other than okay.
    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error>;

    /// Zeroed private memory, from the start of a page on, that copies come to and
    /// go from at less cost than to and from other memory, as far as it is given as
    /// the arena whole; none where the platform has no such, or no more.
    fn arena(&self, bytes: usize) -> Option<Arena> {
        let _ = bytes;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xsa_316_no_status_but_zero_is_success() {
        // Xen answered a map that failed with 1, for which netback had no name.
        for status in i16::MIN..=i16::MAX {
            assert_eq!(GrantStatus(status).is_okay(), status == 0, "{status}");
        }
        let side = CopySide::Local { offset: 0 };
        assert!(!CopyOp::new(side, side, 0).status.is_okay(), "before it was done");
    }
}
