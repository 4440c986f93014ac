//! Pages that others than this program reach: granted ones, and Xen's own.

use super::hypercall::{self, Space};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use grantway_ring::{PAGE_SIZE, SharedPage, SharedRun};

/// First address of pages that Xen puts among the guest's. The heap ends below it, and the
/// toolstack has nothing there.
pub(super) const WINDOW: usize = 0xe000_0000;
/// Place of the page of shared information, and of the first page of the grant table.
pub(super) const SHARED_INFO: usize = WINDOW;
const GRANT_TABLE: usize = WINDOW + PAGE_SIZE;
/// Most pages of the grant table that are used: 32,768 grants.
pub const GRANT_PAGES_MAX: usize = 64;
/// Grants in a page of the table.
const GRANTS_A_PAGE: usize = PAGE_SIZE / 8;

/// Returns the frame number of a page: addresses are mapped to themselves.
#[must_use]
pub fn frame(page: &SharedPage) -> u64 {
    (page.as_ptr().as_ptr() as usize / PAGE_SIZE) as u64
}

/// Returns the page with this frame number, which Xen's toolstack set up for the guest; none if it
/// is not mapped.
pub fn toolstack_page(frame: u64) -> Option<SharedPage> {
    let address = usize::try_from(frame).ok()?.checked_mul(PAGE_SIZE)?;
    let base = NonNull::new((address < 4 << 30).then_some(address)? as *mut u8)?;
    // SAFETY: the page is the guest's for good, lies outside what the heap has, and nobody makes a
    // reference to it.
    unsafe { SharedRun::new(base, 1, Arc::new(())) }.page(0)
}

/// Returns the page of shared information, once Xen has put it there.
pub(super) fn shared_info() -> Option<SharedPage> {
    let status = hypercall::add_page(Space::SharedInfo, 0, (SHARED_INFO / PAGE_SIZE) as u64);
    (status == 0).then(|| toolstack_page((SHARED_INFO / PAGE_SIZE) as u64))?
}

/// The guest's grant table, of entries of the first version.
#[derive(Debug)]
pub struct GrantTable {
    pages: Vec<SharedPage>,
}

impl GrantTable {
    /// Has Xen put the table among the guest's pages. Returns none if Xen refuses it.
    pub fn new() -> Option<Self> {
        let _ = hypercall::use_first_version();
        let put = |page: usize| {
            let frame = (GRANT_TABLE / PAGE_SIZE + page) as u64;
            let status = hypercall::add_page(Space::GrantTable, page, frame);
            (status == 0).then(|| toolstack_page(frame))?
        };
        let count = hypercall::grant_frames().min(GRANT_PAGES_MAX);
        let pages: Vec<_> = (0..count).map_while(put).collect();
        (!pages.is_empty()).then(|| Self::over(pages))
    }

    /// Makes a table of these pages.
    pub fn over(pages: Vec<SharedPage>) -> Self {
        Self { pages }
    }

    /// Returns the number of grants that the table has room for.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.pages.len() * GRANTS_A_PAGE
    }

    /// Returns an entry, as one word: flags, domain, frame.
    fn entry(&self, index: usize) -> Option<&AtomicU64> {
        let page = self.pages.get(index / GRANTS_A_PAGE)?;
        // SAFETY: the place lies in a page that the table keeps, is aligned, and everybody who
        // reaches it does so by atomic operations.
        Some(unsafe { &*page.as_ptr().as_ptr().cast::<AtomicU64>().add(index % GRANTS_A_PAGE) })
    }

    /// Returns the word of an entry.
    #[cfg(test)]
    pub fn word(&self, index: usize) -> Option<u64> {
        Some(self.entry(index)?.load(SeqCst))
    }

    /// Adds flags to an entry, or takes them from it, as Xen does.
    #[cfg(test)]
    pub fn mark(&self, index: usize, flags: u16, on: bool) {
        if let Some(entry) = self.entry(index) {
            match on {
                true => entry.fetch_or(flags.into(), SeqCst),
                false => entry.fetch_and(!u64::from(flags), SeqCst),
            };
        }
    }

    /// Writes an entry: first all but the flags, by which it begins to be in force.
    pub fn set(&self, index: usize, flags: u16, domain: u16, frame: u32) {
        if let Some(entry) = self.entry(index) {
            let rest = u64::from(domain) << 16 | u64::from(frame) << 32;
            entry.store(rest, SeqCst);
            entry.store(rest | u64::from(flags), SeqCst);
        }
    }

    /// Returns true if an entry is in force for the page of this frame number.
    #[must_use]
    pub fn names(&self, index: usize, frame: u32) -> bool {
        let word = self.entry(index).map_or(0, |entry| entry.load(SeqCst));
        word as u16 != 0 && (word >> 32) as u32 == frame
    }

    /// Ends an entry, unless Xen shows it in use by the flags `in_use`. Returns true if it ended.
    pub fn end(&self, index: usize, in_use: u16) -> bool {
        let Some(entry) = self.entry(index) else { return false };
        entry
            .fetch_update(SeqCst, SeqCst, |word| (word & u64::from(in_use) == 0).then_some(0))
            .is_ok()
    }
}
