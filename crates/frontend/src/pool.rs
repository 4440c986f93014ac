//! The pages of a receive ring, granted once and used again: a number of pages at rest, and as many
//! further ones while the queue is busy. Frames may be sent from the further ones instead.

use crate::lent::Lent;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error, FrontendPlatform, GrantRef};
use grantway_ring::SharedPage;

/// Pages that the backend can reach for as long as the vif is connected. A page's number is its id
/// on the ring.
pub(crate) struct Pool {
    pages: Vec<(SharedPage, GrantRef)>,
    free: Vec<u16>,
    /// Number of pages in use. Pages of higher numbers stay here once they come back.
    in_use: u16,
    /// Pages that are not in use.
    put_away: Vec<u16>,
    // Declared after the handles above, so that those are gone when it goes back.
    lent: Arc<Held>,
}

/// The runs of a pool's pages, the last one first.
pub(crate) struct Held {
    lent: Lent,
    before: Option<Arc<Held>>,
}

impl Pool {
    /// Grants `count` zeroed pages. Their numbers are 16-bit ids.
    pub fn new(
        platform: &Arc<dyn FrontendPlatform>,
        peer: DomId,
        count: u16,
    ) -> Result<Self, Error> {
        let lent = Lent::new(platform, peer, usize::from(count), Access::ReadWrite)?;
        let pages = (0..usize::from(count)).map_while(|index| lent.page(index)).collect();
        // The lowest numbers are taken first, which keeps a lightly used pool
        // in few cache lines.
        let free = (0..count).rev().collect();
        let lent = Arc::new(Held { lent, before: None });
        Ok(Self { pages, free, in_use: count, put_away: Vec::new(), lent })
    }

    /// Returns the grants of all pages, in order.
    pub fn grefs(&self) -> impl Iterator<Item = GrantRef> + '_ {
        self.pages.iter().map(|(_, gref)| *gref)
    }

    /// Returns a handle that keeps the pages from going back while one of them is lent on.
    pub fn keeper(&self) -> Arc<Held> {
        Arc::clone(&self.lent)
    }

    /// Returns the number of pages in use, free or not.
    #[inline]
    pub fn in_use(&self) -> u16 {
        self.in_use
    }

    /// Returns the number of pages in use that are free.
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
        if page < self.in_use {
            self.free.push(page);
        } else {
            self.put_away.push(page);
        }
    }

    /// Returns a page and its grant reference; `None` if the number is not ours.
    #[inline]
    pub fn page(&self, page: u16) -> Option<(&SharedPage, GrantRef)> {
        self.pages.get(usize::from(page)).map(|(page, gref)| (page, *gref))
    }

    /// Returns the further pages, if they were granted, and their grants.
    pub fn further(&self, resting: u16) -> &[(SharedPage, GrantRef)] {
        self.pages.get(usize::from(resting)..).unwrap_or_default()
    }

    /// Grants further pages, as many as there are at rest, if this was not done before. Puts them
    /// away. The backend may write to them, since either direction may use them.
    pub fn grant(&mut self, resting: u16) -> Result<(), Error> {
        let most = 2 * resting;
        if self.pages.len() == usize::from(resting) {
            let lent = self.lent.lent.again(Access::ReadWrite)?;
            self.pages.extend((0..usize::from(resting)).map_while(|index| lent.page(index)));
            self.put_away.extend((resting..most).rev());
            self.lent = Arc::new(Held { lent, before: Some(Arc::clone(&self.lent)) });
        }
        Ok(())
    }

    /// Takes the further pages into use. They are granted already.
    pub fn grow(&mut self, resting: u16) {
        self.in_use = 2 * resting;
        self.free.append(&mut self.put_away);
    }

    /// Takes the further pages out of use. A page that is in use leaves when it comes back.
    pub fn shrink(&mut self, resting: u16) {
        self.in_use = resting;
        let all = core::mem::take(&mut self.free);
        all.into_iter().for_each(|page| self.give(page));
    }

    /// Returns true if all pages that are not in use came back.
    pub fn is_settled(&self) -> bool {
        self.put_away.len() + usize::from(self.in_use) == self.pages.len()
    }

    /// Notes that the grants are void.
    pub fn void(&self) {
        let mut held = Some(&self.lent);
        while let Some(run) = held {
            run.lent.void();
            held = run.before.as_ref();
        }
    }
}
