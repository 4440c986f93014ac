//! Grants: entries of the table that Xen reads, and the pages that they are of.

use crate::sys::memory::{self, GrantTable};
use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error, GrantRef, Granted, Released};
use grantway_ring::SharedRun;

/// Flags of an entry (`GTF_*`).
const PERMIT: u16 = 1;
const READONLY: u16 = 4;
const IN_USE: u16 = 8 | 16;
/// Most pages of runs of which the peer keeps some, beyond which nothing more is granted: a backend
/// that keeps a page of each connection costs the guest no more.
const DEFERRED_MAX: usize = 512;

/// The guest's grants.
#[derive(Debug)]
pub(crate) struct Grants {
    table: GrantTable,
    /// References that are free.
    free: Vec<u32>,
    /// Runs of which the peer still reached a page, and the references of those pages.
    deferred: Vec<(SharedRun, Vec<GrantRef>)>,
}

impl Grants {
    pub fn new(table: GrantTable) -> Self {
        // The first ones are handed out first.
        let free = (GrantRef::FIRST_FREE..table.entries() as u32).rev().collect();
        Self { table, free, deferred: Vec::new() }
    }

    /// Begins anew in a guest that was restored, where no grant is in force. Pages that the peer
    /// still reached are free.
    pub fn renew(&mut self, table: GrantTable) {
        *self = Self::new(table);
    }

    /// Grants new pages.
    pub fn grant(&mut self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        self.retry();
        if self.deferred.iter().map(|(run, _)| run.pages()).sum::<usize>() > DEFERRED_MAX {
            return Err(Error::Exhausted {
                what: "memory that the backend has not given back",
                limit: DEFERRED_MAX as u64,
                remedy: "look at the backend, which keeps pages of earlier connections mapped",
            });
        }
        if self.free.len() < pages {
            return Err(Error::Exhausted {
                what: "grant table",
                limit: self.table.entries() as u64,
                remedy: "use fewer queues, or raise max_grant_frames in the guest's configuration",
            });
        }
        let run = SharedRun::try_private(pages).ok_or(Error::Exhausted {
            what: "memory",
            limit: pages as u64,
            remedy: "give the guest more memory",
        })?;
        let grefs = self.free.split_off(self.free.len() - pages);
        let flags = if access == Access::ReadOnly { PERMIT | READONLY } else { PERMIT };
        for (&gref, page) in grefs.iter().zip((0..pages).map_while(|at| run.page(at))) {
            // The guest's memory lies below 4 GiB.
            self.table.set(gref as usize, flags, peer.0, memory::frame(&page) as u32);
        }
        Ok(Granted { run, grefs: grefs.into_iter().map(GrantRef).collect(), peer })
    }

    /// Takes a run back, as far as the peer does not reach it. A run that was granted before the
    /// guest was restored is free: its references may be those of other pages now.
    pub fn release(&mut self, granted: Granted) -> Released {
        self.retry();
        let pages = granted.grefs.len();
        // Its pages are not granted again while it is there, so an entry that names one is its own.
        let own = (0..pages).zip(&granted.grefs).filter(|(at, gref)| {
            let page = granted.run.page(*at);
            page.is_some_and(|page| self.table.names(gref.0 as usize, memory::frame(&page) as u32))
        });
        let own = own.map(|(_, gref)| *gref).collect();
        let left = self.end(own);
        let deferred = left.len();
        if deferred > 0 {
            self.deferred.push((granted.run, left));
        }
        Released { revoked: pages - deferred, deferred }
    }

    /// Ends grants. Returns those that the peer still uses.
    fn end(&mut self, grefs: Vec<GrantRef>) -> Vec<GrantRef> {
        let (ended, left): (Vec<_>, Vec<_>) =
            grefs.into_iter().partition(|gref| self.table.end(gref.0 as usize, IN_USE));
        self.free.extend(ended.into_iter().map(|gref| gref.0));
        left
    }

    /// Looks again at what was deferred.
    fn retry(&mut self) {
        for (run, grefs) in core::mem::take(&mut self.deferred) {
            let left = self.end(grefs);
            if !left.is_empty() {
                self.deferred.push((run, left));
            }
        }
    }
}

#[cfg(test)]
mod tests;
