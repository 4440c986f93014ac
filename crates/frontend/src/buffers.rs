//! What frames are sent from: a pool of whole pages, and, where pages stay
//! mapped, a pool of pages of sixteen small buffers each.
//!
//! The small ones keep a ring of short frames within sixteen grants. A buffer's
//! number is its id on the ring: first the pages, behind them the small buffers.

use crate::lent::Lent;
use crate::pool::Pool;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error, GrantRef, Platform};
use grantway_netif::colour;
use grantway_ring::{PAGE_SIZE, SharedPage};

/// Bytes of a small buffer.
pub(crate) const SMALL: usize = 256;
const SMALL_A_PAGE: usize = PAGE_SIZE / SMALL;
/// Pages of small buffers: as many buffers as the ring has slots.
pub(crate) const SMALL_PAGES: usize = 256 / SMALL_A_PAGE;

/// The buffers of a queue that frames are sent from.
pub(crate) struct Buffers {
    pages: Pool,
    small: Option<Small>,
}

/// Pages of small buffers.
pub(crate) struct Small {
    pages: Vec<(SharedPage, GrantRef)>,
    free: Vec<u16>,
    /// The number of the first of them.
    first: u16,
    // Behind the handles above, so that those are gone when it goes back.
    lent: Lent,
}

/// A buffer that was taken, or is out.
pub(crate) struct Buffer<'a> {
    pub page: &'a SharedPage,
    pub gref: GrantRef,
    /// Where in the page the frame begins.
    pub offset: u16,
}

impl Buffers {
    /// Grants `pages` pages, and those of the small buffers where asked.
    pub fn new(
        platform: &Arc<dyn Platform>,
        peer: DomId,
        pages: u16,
        small: bool,
    ) -> Result<Self, Error> {
        let whole = Pool::new(platform, peer, pages, Access::ReadOnly)?;
        let small = small.then(|| Small::new(platform, peer, pages)).transpose()?;
        Ok(Self { pages: whole, small })
    }

    /// One more than the largest number.
    pub fn numbers(&self) -> usize {
        let small = self.small.as_ref().map_or(0, |_| SMALL_PAGES * SMALL_A_PAGE);
        self.pages.size() + small
    }

    /// Whole pages that nobody uses.
    #[inline]
    pub fn free_pages(&self) -> usize {
        self.pages.free()
    }

    /// The small buffers.
    #[inline]
    pub fn small(&self) -> Option<&Small> {
        self.small.as_ref()
    }

    /// Takes so many of them.
    #[inline]
    pub fn take_smalls(&mut self, count: usize) {
        if let Some(small) = &mut self.small {
            small.free.truncate(small.free.len().saturating_sub(count));
        }
    }

    /// Takes a whole page.
    #[inline]
    pub fn take_page(&mut self) -> Option<u16> {
        self.pages.take()
    }

    /// Gives a buffer back.
    #[inline]
    pub fn give(&mut self, number: u16) {
        match &mut self.small {
            Some(small) if number >= small.first => small.free.push(number),
            _ => self.pages.give(number),
        }
    }

    /// Where `len` bytes go in a whole page; none for a number that is no page's.
    #[inline]
    pub fn page(&self, number: u16, len: usize) -> Option<Buffer<'_>> {
        let (page, gref) = self.pages.page(number)?;
        Some(Buffer { page, gref, offset: colour(number.into(), len) })
    }

    /// The grants of the small buffers, and of the whole pages.
    pub fn grefs(&self) -> [Vec<GrantRef>; 2] {
        let small = self.small.as_ref().map(|small| small.pages.iter().map(|(_, gref)| *gref));
        [small.into_iter().flatten().collect(), self.pages.grefs().collect()]
    }

    /// Says that the grants are void.
    pub fn void(&self) {
        self.pages.void();
        if let Some(small) = &self.small {
            small.lent.void();
        }
    }
}

impl Small {
    /// Those that nobody uses; the last is the next to be taken.
    #[inline]
    pub fn free(&self) -> &[u16] {
        &self.free
    }

    /// One of them; none for a number that is not theirs.
    #[inline]
    pub fn buffer(&self, number: u16) -> Option<Buffer<'_>> {
        let index = usize::from(number.wrapping_sub(self.first));
        let (page, gref) = self.pages.get(index / SMALL_A_PAGE)?;
        // Below a page.
        let offset = (index % SMALL_A_PAGE * SMALL) as u16;
        Some(Buffer { page, gref: *gref, offset })
    }

    fn new(platform: &Arc<dyn Platform>, peer: DomId, first: u16) -> Result<Self, Error> {
        let lent = Lent::new(platform, peer, SMALL_PAGES, Access::ReadOnly)?;
        let pages = (0..SMALL_PAGES).map_while(|index| lent.page(index)).collect();
        // 256 of them, behind as many pages.
        let end = first + (SMALL_PAGES * SMALL_A_PAGE) as u16;
        Ok(Self { pages, free: (first..end).rev().collect(), first, lent })
    }
}
