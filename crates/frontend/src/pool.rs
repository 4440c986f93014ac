//! A fixed pool of pages, granted once and recycled.

use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error, GrantRef, Granted, Granter, Released};
use grantway_ring::SharedPage;

/// Pages that the backend can reach for as long as the vif is connected. A
/// page's number is its id on the ring.
pub(crate) struct Pool {
    granted: Granted,
    pages: Vec<SharedPage>,
    free: Vec<u16>,
}

impl Pool {
    /// Grants `count` zeroed pages, at most 65,536 since their numbers are
    /// 16-bit ids.
    pub fn new(
        granter: &(impl Granter + ?Sized),
        peer: DomId,
        count: u16,
        access: Access,
    ) -> Result<Self, Error> {
        let granted = granter.grant(peer, usize::from(count), access)?;
        let pages = (0..granted.run.pages()).filter_map(|i| granted.run.page(i)).collect();
        // The lowest numbers are taken first, which keeps a lightly used pool
        // in few cache lines.
        let free = (0..count).rev().collect();
        Ok(Self { granted, pages, free })
    }

    /// Pages that nobody uses.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free page.
    #[inline]
    pub fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Gives a page back.
    #[inline]
    pub fn give(&mut self, page: u16) {
        self.free.push(page);
    }

    /// A page and its grant reference; `None` for a number that is not ours.
    #[inline]
    pub fn page(&self, page: u16) -> Option<(&SharedPage, GrantRef)> {
        let at = usize::from(page);
        Some((self.pages.get(at)?, *self.granted.grefs.get(at)?))
    }

    /// Gives all pages back to the platform, which keeps those that the backend
    /// still reaches.
    pub fn release(self, granter: &(impl Granter + ?Sized)) -> Released {
        drop(self.pages);
        granter.release(self.granted)
    }
}
