//! Grants: pages that a domain lets a peer access. The peer maps, unmaps or copies them.

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

/// Grant reference: an index into the granting domain's grant table.
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
    /// The peer may read the page.
    ReadOnly,
    /// The peer may read and write the page.
    ReadWrite,
}

/// Status of one grant operation (`GNTST_*` of Xen's `grant_table.h`). 0 is success. Every other
/// number is a failure, also a positive one (XSA-316).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GrantStatus(pub i16);

impl GrantStatus {
    /// The operation was done.
    pub const OKAY: Self = Self(0);
    /// The operation failed, and Xen gives no reason.
    pub const GENERAL_ERROR: Self = Self(-1);
    /// The domain does not exist.
    pub const BAD_DOMAIN: Self = Self(-2);
    /// The reference is not granted to us.
    pub const BAD_GNTREF: Self = Self(-3);
    /// The local address does not belong to the caller.
    pub const BAD_VIRT_ADDR: Self = Self(-5);
    /// The table of the domain's mappings, or the IOMMU, has no space left.
    pub const NO_DEVICE_SPACE: Self = Self(-7);
    /// The page is granted for reading only.
    pub const PERMISSION_DENIED: Self = Self(-8);
    /// The page behind the grant is not available.
    pub const BAD_PAGE: Self = Self(-9);
    /// The copy crosses the end of a page.
    pub const BAD_COPY_ARG: Self = Self(-10);
    /// The page is paged out. Try again.
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

/// Run of pages that this domain granted to one peer.
#[derive(Debug)]
pub struct Granted {
    /// The pages, mapped in this domain.
    pub run: SharedRun,
    /// Grant references of the pages, in the order of the pages.
    pub grefs: Vec<GrantRef>,
    /// The domain that may access the pages.
    pub peer: DomId,
}

impl Granted {
    /// Returns page `index` of the run and its reference, or `None` past the end.
    #[must_use]
    pub fn page(&self, index: usize) -> Option<(SharedPage, GrantRef)> {
        Some((self.run.page(index)?, *self.grefs.get(index)?))
    }
}

/// Result of a release: numbers of pages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Pages whose grants are revoked. They are free again.
    pub revoked: usize,
    /// Pages that the peer can still access, or may. The platform keeps them, tries again later,
    /// and counts them in [`crate::CounterSnapshot::deferred`].
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

/// One copy of a batch. A foreign side must not cross the end of its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyOp {
    /// Source of the bytes.
    pub source: CopySide,
    /// Destination of the bytes.
    pub dest: CopySide,
    /// Length of the copy in bytes, 1 to 4096.
    pub len: u16,
    /// Result of the operation. [`Mapper::copy`] sets it.
    pub status: GrantStatus,
}

impl CopyOp {
    /// Makes a copy that is not done yet: its status is [`GrantStatus::GENERAL_ERROR`].
    #[must_use]
    pub fn new(source: CopySide, dest: CopySide, len: u16) -> Self {
        Self { source, dest, len, status: GrantStatus::GENERAL_ERROR }
    }
}

/// Private memory of [`Mapper::arena`].
pub type Arena = Box<dyn DerefMut<Target = [u8]> + Send>;

/// Handle of [`Mapper::apart`]. Its drop ends the separation of the peer.
pub type Apart = Box<dyn Send>;

/// Operations of a backend on pages that a peer granted.
pub trait Mapper: Send + Sync {
    /// Maps a list of grants in one batch, as one run. It maps all grants or none. The run is
    /// unmapped as a whole when its last handle is dropped.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Grant`] with the first reference that could not be mapped. Nothing is
    /// mapped then.
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error>;

    /// Separates the mappings of this peer from those of other peers, so that the work of one
    /// peer's mappings delays no other peer. The separation begins with the next [`Mapper::map`],
    /// and lasts until the returned handle is dropped.
    ///
    /// The calling thread must be allowed to open devices. It makes the call before threads that
    /// may not open devices map pages.
    ///
    /// Returns `None` if the platform needs no separation, or has no device left for it. Pages are
    /// mapped in both cases.
    fn apart(&self, peer: DomId) -> Option<Apart> {
        let _ = peer;
        None
    }

    /// Carries out a batch of copies in order, and sets the status of each. Local sides are offsets
    /// into `arena`, which is the caller's private memory.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Os`] or [`Error::Gone`] if the batch as a whole could not be tried. No
    /// status is okay then. The failure of one copy is no error: its status shows it.
    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error>;

    /// Returns zeroed private memory that copies access at a lower cost than other memory. It
    /// begins at the start of a page. The lower cost applies if the caller passes the whole memory
    /// to [`Mapper::copy`] as the arena. Returns `None` if the platform has no memory of this kind,
    /// or none left.
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
