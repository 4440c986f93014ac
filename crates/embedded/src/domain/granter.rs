//! Our own pages and grants.
//!
//! A frame and its reference go back to the pool together. Before that the entry has to be out of
//! force, and the last handle of the run gone. So a reference that somebody still remembers never
//! names another page.

use super::control::lock;
use crate::entry::{ENTRY_BYTES, GrantTable};
use crate::sys::{Mapping, Words};
use grantway_hypervisor::{Access, Counters, DomId, Error, GrantRef, Granted, Released};
use grantway_ring::{PAGE_SIZE, SharedRun};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Result of an attempt to revoke a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoke {
    /// The grant is revoked: the peer can no longer access the page. The entry was exchanged for 0
    /// while neither `reading` nor `writing` was set.
    Revoked,
    /// The peer still has the page mapped, or copies it at this moment.
    StillMapped,
    /// The process grants nothing ([`Role::Service`](crate::Role::Service)).
    Unknown,
}

/// Memory and grant table of the domain that this process runs.
#[derive(Debug)]
pub struct Granting {
    /// The memory; `None` only while dropped.
    ram: Option<Mapping>,
    base: NonNull<u8>,
    ram_pages: u32,
    table: GrantTable,
    counters: Arc<Counters>,
    books: Mutex<Books>,
}

// SAFETY: `base` is the address of the mapping in `ram`, which is Send and Sync
// itself; it is only handed to SharedRun, or zeroed while nobody else has it.
unsafe impl Send for Granting {}
// SAFETY: as above.
unsafe impl Sync for Granting {}

/// Owners of pages and references.
#[derive(Debug, Default)]
struct Books {
    /// Runs of free frames: length by start.
    free: BTreeMap<u32, u32>,
    /// The first frame that was never used, like all behind it: each is zero, and takes no memory.
    fresh_frame: u32,
    free_grefs: Vec<u32>,
    fresh_gref: u32,
    /// The run and the page in it, by reference.
    owner: BTreeMap<u32, (u64, usize)>,
    runs: BTreeMap<u64, Run>,
    next_run: u64,
    /// Pages that the peer still reached when they were given back.
    deferred: Vec<(u64, usize)>,
}

#[derive(Debug)]
struct Run {
    start: u32,
    grefs: Vec<u32>,
    pages: Vec<Page>,
    /// True while somebody here still has the run or a page of it.
    handles: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    /// The grant is in force.
    Granted,
    /// The page was given back while the peer had it; tried again later.
    Deferred,
    /// The grant is out of force, with a handle left.
    Revoked,
    /// The page is in the pool.
    Free,
}

impl Granting {
    /// Maps memory and table.
    pub fn new(
        ram: &OwnedFd,
        ram_pages: u32,
        table: &OwnedFd,
        entries: u32,
        counters: &Arc<Counters>,
    ) -> rustix::io::Result<Self> {
        let ram = Mapping::of(ram, ram_pages as usize * PAGE_SIZE, true)?;
        let words = Words::of(table, entries as usize * ENTRY_BYTES)?;
        Ok(Self {
            base: ram.base(),
            ram: Some(ram),
            ram_pages,
            table: GrantTable::new(words, entries),
            counters: Arc::clone(counters),
            books: Mutex::new(Books {
                free: BTreeMap::from([(0, ram_pages)]),
                fresh_gref: GrantRef::FIRST_FREE,
                ..Books::default()
            }),
        })
    }

    /// Returns the address of frame 0.
    pub fn base(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    fn frame(&self, frame: u32) -> NonNull<u8> {
        // SAFETY: callers name frames of the pool, which are all below
        // `ram_pages`, so the sum stays inside the mapping.
        unsafe { self.base.add(frame as usize * PAGE_SIZE) }
    }

    /// Does the work of [`grantway_hypervisor::FrontendPlatform::grant`].
    pub fn grant(
        self: &Arc<Self>,
        peer: DomId,
        pages: usize,
        access: Access,
    ) -> Result<Granted, Error> {
        let mut books = lock(&self.books);
        self.reclaim(&mut books);
        let no_memory = || Error::Exhausted {
            what: "the memory that a domain may grant, in pages",
            limit: self.ram_pages.into(),
            remedy: "start the host with more --ram-pages, or use fewer queues",
        };
        // Everything that may be missing is checked before anything is taken.
        let wanted = u32::try_from(pages).map_err(|_| no_memory())?;
        if wanted == 0 {
            return Err(Error::Protocol {
                what: "a grant",
                found: "0 pages".to_owned(),
                expected: "at least one",
            });
        }
        let left = self.table.entries().saturating_sub(books.fresh_gref) as usize;
        if books.free_grefs.len() + left < pages {
            return Err(Error::Exhausted {
                what: "the grant table",
                limit: self.table.entries().into(),
                remedy: "start the host with more --grant-entries, or use fewer queues",
            });
        }
        let start = books.take_frames(wanted).ok_or_else(no_memory)?;
        let base = self.frame(start);
        let used = books.use_frames(start, wanted) as usize;
        // SAFETY: `wanted` frames from `start` on, of which `used` are the first, are
        // of the pool: nobody has them mapped through a grant, and no handle of ours
        // refers to them.
        unsafe { base.as_ptr().write_bytes(0, used * PAGE_SIZE) };
        // The pages are zero before an entry comes in force.
        let id = books.next_run;
        books.next_run += 1;
        let mut grefs = Vec::with_capacity(pages);
        for index in 0..pages {
            let gref = books.take_gref();
            books.owner.insert(gref, (id, index));
            self.table.publish(gref, peer, start + index as u32, access);
            grefs.push(gref);
        }
        books.runs.insert(
            id,
            Run { start, pages: vec![Page::Granted; pages], grefs: grefs.clone(), handles: true },
        );
        drop(books);
        Counters::add(&self.counters.granted, pages as u64);
        let handle = Arc::new(Handle { granting: Arc::clone(self), run: id });
        // SAFETY: the mapping lives as long as `granting`, which the handle
        // holds; it is writable, and no reference into it is ever made.
        let run = unsafe { SharedRun::new(base, pages, handle) };
        Ok(Granted { run, grefs: grefs.into_iter().map(GrantRef).collect(), peer })
    }

    /// Does the work of [`super::Domain::revoke`].
    pub fn revoke(&self, gref: GrantRef) -> Revoke {
        let mut books = lock(&self.books);
        let Some(&(run, page)) = books.owner.get(&gref.0) else {
            return Revoke::Revoked;
        };
        if self.try_revoke(&mut books, run, page) { Revoke::Revoked } else { Revoke::StillMapped }
    }

    /// Does the work of [`grantway_hypervisor::FrontendPlatform::release`].
    pub fn release(&self, granted: Granted) -> Released {
        let mut books = lock(&self.books);
        self.reclaim(&mut books);
        let mut released = Released::default();
        for gref in &granted.grefs {
            let Some(&(run, page)) = books.owner.get(&gref.0) else {
                continue;
            };
            if self.try_revoke(&mut books, run, page) {
                released.revoked += 1;
            } else {
                self.defer(&mut books, run, page);
                released.deferred += 1;
            }
        }
        // The handle in `granted` locks the books, too.
        drop(books);
        drop(granted);
        released
    }

    /// Takes a page's grant out of force if the peer does not reach it. Returns true if it is out
    /// of force now.
    fn try_revoke(&self, books: &mut Books, run: u64, page: usize) -> bool {
        let Some(owned) = books.runs.get_mut(&run) else {
            return true;
        };
        let (Some(state), Some(&gref)) = (owned.pages.get_mut(page), owned.grefs.get(page)) else {
            return true;
        };
        match *state {
            Page::Revoked | Page::Free => return true,
            Page::Granted | Page::Deferred => {}
        }
        if !self.table.revoke(gref) {
            return false;
        }
        Counters::sub(&self.counters.granted, 1);
        if *state == Page::Deferred {
            Counters::sub(&self.counters.deferred, 1);
        }
        *state = Page::Revoked;
        if !owned.handles {
            books.free_page(run, page);
        }
        true
    }

    fn defer(&self, books: &mut Books, run: u64, page: usize) {
        let state = books.runs.get_mut(&run).and_then(|run| run.pages.get_mut(page));
        if let Some(state) = state
            && *state == Page::Granted
        {
            *state = Page::Deferred;
            Counters::add(&self.counters.deferred, 1);
            books.deferred.push((run, page));
        }
    }

    /// Tries again to revoke the deferred pages.
    fn reclaim(&self, books: &mut Books) {
        let mut index = 0;
        while let Some(&(run, page)) = books.deferred.get(index) {
            if self.try_revoke(books, run, page) {
                books.deferred.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Gives a run back whose last handle is gone: nobody here can look at it any more, given back
    /// before or not.
    fn let_go(&self, run: u64) {
        let mut books = lock(&self.books);
        let Some(owned) = books.runs.get_mut(&run) else {
            return;
        };
        owned.handles = false;
        for page in 0..owned.pages.len() {
            let revoked =
                books.runs.get(&run).is_some_and(|owned| owned.pages[page] == Page::Revoked);
            if revoked {
                books.free_page(run, page);
            } else if !self.try_revoke(&mut books, run, page) {
                self.defer(&mut books, run, page);
            }
        }
        books.forget_if_free(run);
    }
}

impl Drop for Granting {
    fn drop(&mut self) {
        // A peer that still copies into this memory does so by its address in this process. That
        // address must not come to mean anything else.
        let used = lock(&self.books).fresh_gref;
        let held = (GrantRef::FIRST_FREE..used).filter(|&gref| !self.table.revoke(gref)).count();
        if held > 0
            && let Some(ram) = self.ram.take()
        {
            ram.retire();
        }
    }
}

impl Books {
    /// Takes the first run of free frames that is long enough. Returns its start.
    fn take_frames(&mut self, wanted: u32) -> Option<u32> {
        let (&start, &len) = self.free.iter().find(|&(_, &len)| len >= wanted)?;
        self.free.remove(&start);
        if len > wanted {
            self.free.insert(start + wanted, len - wanted);
        }
        Some(start)
    }

    /// Notes that a run of frames comes into use. Returns the number of its first frames that were
    /// in use before.
    fn use_frames(&mut self, start: u32, frames: u32) -> u32 {
        let used = self.fresh_frame.saturating_sub(start).min(frames);
        self.fresh_frame = self.fresh_frame.max(start + frames);
        used
    }

    fn give_frame(&mut self, frame: u32) {
        let (mut start, mut len) = (frame, 1);
        if let Some(after) = self.free.remove(&(frame + 1)) {
            len += after;
        }
        if let Some((&before, &its_len)) = self.free.range(..frame).next_back()
            && before + its_len == frame
        {
            self.free.remove(&before);
            start = before;
            len += its_len;
        }
        self.free.insert(start, len);
    }

    /// Takes a free reference; the caller checked that there is one.
    fn take_gref(&mut self) -> u32 {
        self.free_grefs.pop().unwrap_or_else(|| {
            let gref = self.fresh_gref;
            self.fresh_gref += 1;
            gref
        })
    }

    fn free_page(&mut self, run: u64, page: usize) {
        let Some(owned) = self.runs.get_mut(&run) else {
            return;
        };
        if owned.pages[page] == Page::Free {
            return;
        }
        owned.pages[page] = Page::Free;
        let (frame, gref) = (owned.start + page as u32, owned.grefs[page]);
        self.owner.remove(&gref);
        self.free_grefs.push(gref);
        self.give_frame(frame);
        self.forget_if_free(run);
    }

    fn forget_if_free(&mut self, run: u64) {
        let free =
            self.runs.get(&run).is_some_and(|run| run.pages.iter().all(|&page| page == Page::Free));
        if free {
            self.runs.remove(&run);
        }
    }
}

/// A handle of a run of our own pages.
#[derive(Debug)]
struct Handle {
    granting: Arc<Granting>,
    run: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.granting.let_go(self.run);
    }
}
