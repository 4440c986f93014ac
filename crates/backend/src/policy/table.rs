//! The table from a grant reference to the page that is mapped for it.
//!
//! An entry lies at the place that the low bits of its reference name, if that is free. Most guests
//! number their pages in a row, and then one comparison finds each. The other entries lie at any
//! free place.
//!
//! The guest chooses the references, so nothing may depend on their values. A lookup of another
//! entry compares the sixteen keys of one bucket too, one cache line. If a bucket overflows, the
//! entries are laid out anew by another secret. At most a quarter of the places is in use; one
//! layout in some thousands needs a new secret then.

#[cfg(test)]
mod tests;

use super::copies::Way;
use grantway_hypervisor::{Access, GrantRef};
use grantway_ring::SharedPage;
use std::cell::Cell;

/// Keys of a bucket: a cache line of them.
const KEYS: usize = 16;
/// Places for each entry that the table may hold.
const SPACE: usize = 4;
/// Layouts that are tried before an entry is refused.
const LAYOUTS: u32 = 16;
/// No reference below 8 is ever mapped here, so 0 marks a free place.
const FREE: u32 = 0;

/// Most entries of a table, a power of two.
pub(super) const LARGEST: usize = crate::ids::QUEUE_PAGES;
const _: () = assert!(LARGEST.is_power_of_two() && LARGEST <= 1 << 16);

/// A page of the guest's that is mapped.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    pub page: SharedPage,
    pub access: Access,
    /// Number of the run with which the page was mapped.
    pub run: u32,
    /// Stamp of the table when the page was last asked for.
    pub used: Cell<u32>,
}

impl Mapping {
    pub fn new(page: SharedPage, access: Access, run: u32, used: u32) -> Self {
        Self { page, access, run, used: Cell::new(used) }
    }
}

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket([u32; KEYS]);

/// The mapped pages of one queue.
#[derive(Debug)]
pub(super) struct GrefTable {
    keys: Box<[Bucket]>,
    /// Place of the entry of each key.
    places: Box<[[u16; KEYS]]>,
    entries: Box<[Option<(GrantRef, Mapping)>; LARGEST]>,
    len: usize,
    limit: usize,
    secret: u64,
    /// Stamp that marks an entry when it is asked for.
    pub stamp: u32,
}

impl GrefTable {
    /// Returns a table with room for `limit` entries, at most [`LARGEST`]. `secret` is a number
    /// that the guest cannot know.
    pub fn new(limit: usize, secret: u64) -> Self {
        let limit = limit.min(LARGEST);
        let buckets = (limit * SPACE / KEYS).max(2).next_power_of_two();
        Self {
            keys: vec![Bucket([FREE; KEYS]); buckets].into(),
            places: vec![[0; KEYS]; buckets].into(),
            entries: Box::new([const { None }; LARGEST]),
            len: 0,
            limit,
            secret,
            stamp: 0,
        }
    }

    /// Returns the number of entries in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of entries that may still be added.
    pub fn room(&self) -> usize {
        self.limit - self.len
    }

    #[inline]
    fn bucket(&self, gref: u32) -> usize {
        let mixed = u64::from(gref).wrapping_add(1 << 32).wrapping_mul(self.secret | 1);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // There is a power of two of buckets, at least two, so the shift is below 64.
        (mixed >> (64 - self.keys.len().trailing_zeros())) as usize
    }

    /// Returns the bucket of a reference and its place there.
    #[inline]
    fn locate(&self, gref: GrantRef) -> Option<(usize, usize)> {
        let bucket = self.bucket(gref.0);
        let keys = &self.keys.get(bucket)?.0;
        let mut found = 0u32;
        for (at, &key) in keys.iter().enumerate() {
            found |= u32::from(key == gref.0) << at;
        }
        let at = found.trailing_zeros() as usize;
        (at < KEYS && gref.0 != FREE).then_some((bucket, at))
    }

    /// Returns the mapping of a reference, which counts as a use.
    #[inline]
    pub fn find(&self, gref: GrantRef) -> Option<&Mapping> {
        self.find_for(gref, Way::Fetch)
    }

    /// Returns the mapping of a reference if its page can be used that way, which counts as a use. One
    /// that cannot is left to grow old, as its room may be needed for one that can.
    #[inline]
    pub fn find_for(&self, gref: GrantRef, way: Way) -> Option<&Mapping> {
        let mapping = self.peek(gref)?;
        way.may(mapping.access).then(|| {
            mapping.used.set(self.stamp);
            mapping
        })
    }

    /// Returns the mapping of a reference, without counting a use.
    #[inline]
    pub fn peek(&self, gref: GrantRef) -> Option<&Mapping> {
        match &self.entries[home(gref)] {
            Some((found, mapping)) if *found == gref => Some(mapping),
            _ => self.search(gref),
        }
    }

    /// Returns the mapping of a reference at any place.
    #[cold]
    fn search(&self, gref: GrantRef) -> Option<&Mapping> {
        let (bucket, at) = self.locate(gref)?;
        let entry = self.entries.get(usize::from(self.places.get(bucket)?[at]))?;
        entry.as_ref().map(|(_, mapping)| mapping)
    }

    /// Adds an entry, or replaces the entry of that reference and returns the old mapping.
    ///
    /// # Errors
    ///
    /// The table is full, the reference is a reserved one, or no layout has a place for it. The
    /// mapping comes back.
    pub fn insert(&mut self, gref: GrantRef, mapping: Mapping) -> Result<Option<Mapping>, Mapping> {
        if gref.0 < GrantRef::FIRST_FREE {
            return Err(mapping);
        }
        if let Some((bucket, at)) = self.locate(gref) {
            let place = usize::from(self.places[bucket][at]);
            let before = self.entries[place].replace((gref, mapping));
            return Ok(before.map(|(_, mapping)| mapping));
        }
        if self.len == self.limit {
            return Err(mapping);
        }
        let (before, from) = self.entries.split_at(home(gref));
        let Some(on) = from.iter().chain(before).position(Option::is_none) else {
            return Err(mapping);
        };
        let place = (before.len() + on) % LARGEST;
        // At most LARGEST, which fits.
        if !self.put(gref, place as u16) && !self.lay_out_anew(gref, place as u16) {
            return Err(mapping);
        }
        self.entries[place] = Some((gref, mapping));
        self.len += 1;
        Ok(None)
    }

    /// Takes an entry out, and returns its mapping.
    pub fn remove(&mut self, gref: GrantRef) -> Option<Mapping> {
        let (bucket, at) = self.locate(gref)?;
        let place = self.places[bucket][at];
        self.keys[bucket].0[at] = FREE;
        self.len -= 1;
        self.entries[usize::from(place)].take().map(|(_, mapping)| mapping)
    }

    /// Takes all entries out, and returns their mappings.
    pub fn drain(&mut self) -> Vec<Mapping> {
        self.keys.fill(Bucket([FREE; KEYS]));
        self.len = 0;
        self.entries.iter_mut().filter_map(Option::take).map(|(_, mapping)| mapping).collect()
    }

    fn put(&mut self, gref: GrantRef, place: u16) -> bool {
        let bucket = self.bucket(gref.0);
        let Some(at) = self.keys[bucket].0.iter().position(|&key| key == FREE) else {
            return false;
        };
        self.keys[bucket].0[at] = gref.0;
        self.places[bucket][at] = place;
        true
    }

    /// Lays out all entries and one more by another secret. Returns true if a secret was found.
    fn lay_out_anew(&mut self, gref: GrantRef, place: u16) -> bool {
        let mut all = Vec::with_capacity(self.len());
        for (bucket, places) in self.keys.iter().zip(&self.places) {
            let used = bucket.0.iter().zip(places).filter(|&(&key, _)| key != FREE);
            all.extend(used.map(|(&key, &place)| (GrantRef(key), place)));
        }
        let before = self.secret;
        for _ in 0..LAYOUTS {
            self.secret = next_secret(self.secret);
            if self.lay_out(&all) && self.put(gref, place) {
                return true;
            }
        }
        // The secret before had room for all but the last.
        self.secret = before;
        self.lay_out(&all);
        false
    }

    fn lay_out(&mut self, all: &[(GrantRef, u16)]) -> bool {
        self.keys.fill(Bucket([FREE; KEYS]));
        all.iter().all(|&(gref, place)| self.put(gref, place))
    }
}

/// Returns the place that a reference names.
#[inline]
fn home(gref: GrantRef) -> usize {
    gref.0 as usize % LARGEST
}

/// Returns the next of a sequence of secrets (splitmix64).
fn next_secret(secret: u64) -> u64 {
    let mut z = secret.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a number that no guest can know.
pub(super) fn secret() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
