//! Memory whose pages this domain granted to itself.
//!
//! For each piece of ordinary memory that a copy names, gntdev looks up its page and holds it,
//! which takes as long as the copy. A grant is looked up by Xen.

use crate::sys::{Gntalloc, Own};
use grantway_hypervisor::DomId;
use grantway_ring::PAGE_SIZE;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Address of an arena, and the references of its pages.
#[derive(Debug)]
pub struct Grants {
    base: usize,
    domain: DomId,
    grefs: Vec<u32>,
}

impl Grants {
    /// Returns the domain that granted `len` bytes from `start` on, the reference of their page,
    /// and their offset in it. Returns `None` if they are in several pages.
    pub fn find(&self, start: usize, len: usize) -> Option<(u16, u32, u16)> {
        let offset = start % PAGE_SIZE;
        let gref = self.grefs.get(start / PAGE_SIZE)?;
        // The offset is less than a page, so it fits.
        (offset + len <= PAGE_SIZE).then_some((self.domain.0, *gref, offset as u16))
    }
}

/// The arenas of a process.
#[derive(Debug, Default)]
pub struct Arenas(Mutex<Vec<Arc<Grants>>>);

impl Arenas {
    /// Makes an arena of at least `bytes` bytes. Returns `None` if gntalloc has too few pages.
    pub fn make(
        self: &Arc<Self>,
        gntalloc: &Arc<Gntalloc>,
        domain: DomId,
        bytes: usize,
    ) -> Option<Arena> {
        let (memory, index, grefs) = gntalloc.memory(domain.0, bytes.div_ceil(PAGE_SIZE)).ok()?;
        let grants = Arc::new(Grants { base: memory.as_ptr().addr(), domain, grefs });
        self.with(|all| all.push(Arc::clone(&grants)));
        let arenas = Arc::clone(self);
        let entry = Entry { arenas, grants, gntalloc: Arc::clone(gntalloc), index };
        Some(Arena { memory, _entry: entry })
    }

    /// Returns the grants of this memory, if it is an arena.
    pub fn of(&self, arena: &[u8]) -> Option<Arc<Grants>> {
        let base = arena.as_ptr().addr();
        let is = |grants: &&Arc<Grants>| {
            grants.base == base && arena.len() <= grants.grefs.len() * PAGE_SIZE
        };
        self.with(|all| all.iter().find(is).cloned())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Vec<Arc<Grants>>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An arena: memory of the domain's own, with a grant for each page.
#[derive(Debug)]
pub struct Arena {
    // The memory is unmapped before its pages are given back.
    memory: Own,
    _entry: Entry,
}

#[derive(Debug)]
struct Entry {
    arenas: Arc<Arenas>,
    grants: Arc<Grants>,
    gntalloc: Arc<Gntalloc>,
    index: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.arenas.with(|all| all.retain(|grants| !Arc::ptr_eq(grants, &self.grants)));
        // If this failed, closing the device would do the same.
        let _ = self.gntalloc.dealloc(self.index, self.grants.grefs.len());
    }
}

impl Deref for Arena {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for Arena {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_one_page_are_found_by_its_reference() {
        let grants = Grants { base: 0x10000, domain: DomId(3), grefs: vec![70, 71] };
        assert_eq!(grants.find(0, PAGE_SIZE), Some((3, 70, 0)));
        assert_eq!(grants.find(PAGE_SIZE + 100, 60), Some((3, 71, 100)));
        assert_eq!(grants.find(4000, 97), None, "in two pages");
        assert_eq!(grants.find(2 * PAGE_SIZE, 1), None, "behind the last");
    }
}
