//! A fixed pool of pages, granted once and recycled.

use crate::lent::Lent;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error, GrantRef, Platform};
use grantway_ring::SharedPage;

/// Pages that the backend can reach for as long as the vif is connected. A
/// page's number is its id on the ring.
pub(crate) struct Pool {
    pages: Vec<(SharedPage, GrantRef)>,
    free: Vec<u16>,
    // Declared after the handles above, so that those are gone when it goes back.
    lent: Arc<Lent>,
}

impl Pool {
    /// Grants `count` zeroed pages. Their numbers are 16-bit ids.
    pub fn new(
        platform: &Arc<dyn Platform>,
        peer: DomId,
        count: u16,
        access: Access,
    ) -> Result<Self, Error> {
        let lent = Lent::new(platform, peer, usize::from(count), access)?;
        let pages = (0..usize::from(count)).map_while(|index| lent.page(index)).collect();
        // The lowest numbers are taken first, which keeps a lightly used pool
        // in few cache lines.
        let free = (0..count).rev().collect();
        Ok(Self { pages, free, lent: Arc::new(lent) })
    }

    /// Returns the number of pages, free or not.
    pub fn size(&self) -> usize {
        self.pages.len()
    }

    /// Returns the pages' grants, in order.
    pub fn grefs(&self) -> impl Iterator<Item = GrantRef> + '_ {
        self.pages.iter().map(|(_, gref)| *gref)
    }

    /// Returns a handle that keeps the pages from going back while one of them is lent on.
    pub fn keeper(&self) -> Arc<Lent> {
        Arc::clone(&self.lent)
    }

    /// Returns the number of pages that nobody uses.
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

    /// Returns a page and its grant reference; `None` if the number is not ours.
    #[inline]
    pub fn page(&self, page: u16) -> Option<(&SharedPage, GrantRef)> {
        self.pages.get(usize::from(page)).map(|(page, gref)| (page, *gref))
    }

    /// Notes that the grants are void.
    pub fn void(&self) {
        self.lent.void();
    }
}
