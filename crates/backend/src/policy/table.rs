//! From a grant reference to the page that is mapped for it.
//!
//! The guest chooses the references, so nothing may depend on what they are: a
//! lookup compares an entry that a hint names, and at most the sixteen keys of one
//! bucket, one cache line. Where a bucket overflows, the table is laid out anew by another
//! secret; at a quarter of its places in use, which is the most, one layout in
//! some thousands needs that.

#[cfg(test)]
mod tests;

use grantway_hypervisor::{Access, GrantRef};
use grantway_ring::SharedPage;

/// Keys of a bucket: as many as a cache line holds.
const KEYS: usize = 16;
/// Places for each entry that the table may hold.
const SPACE: usize = 4;
/// Layouts that are tried before an entry is refused.
const LAYOUTS: u32 = 16;
/// A power of two, and more than the pages of both rings of a queue.
const HINTS: usize = 512;
/// No reference below 8 is ever mapped here, so 0 marks a free place.
const FREE: u32 = 0;

/// Most entries that a table may be made for.
pub(super) const LARGEST: usize = 1 << 14;

/// A page of the guest's that is mapped.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    pub page: SharedPage,
    pub access: Access,
    /// The run that it was mapped with.
    pub run: u32,
    /// The table's stamp when it was last asked for.
    pub used: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket([u32; KEYS]);

/// One queue's mapped pages.
#[derive(Debug)]
pub(super) struct GrefTable {
    keys: Box<[Bucket]>,
    /// Where the entry of each key is.
    places: Box<[[u16; KEYS]]>,
    entries: Vec<Option<(GrantRef, Mapping)>>,
    /// By the low bits of a reference: where such a one was found last. Most guests
    /// number their pages in a row, and then no bucket is looked at.
    hints: Box<[u16; HINTS]>,
    free: Vec<u16>,
    secret: u64,
    /// What an entry is marked with that is asked for.
    pub stamp: u32,
}

impl GrefTable {
    /// Room for `limit` entries, at most [`LARGEST`]; `secret` is a number that
    /// the guest cannot know.
    pub fn new(limit: usize, secret: u64) -> Self {
        let limit = limit.min(LARGEST);
        let buckets = (limit * SPACE / KEYS).max(2).next_power_of_two();
        Self {
            keys: vec![Bucket([FREE; KEYS]); buckets].into(),
            places: vec![[0; KEYS]; buckets].into(),
            entries: vec![None; limit],
            hints: Box::new([0; HINTS]),
            // At most LARGEST, which fits.
            free: (0..limit as u16).rev().collect(),
            secret,
            stamp: 0,
        }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Entries that may still be added.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    #[inline]
    fn bucket(&self, gref: u32) -> usize {
        let mixed = u64::from(gref).wrapping_add(1 << 32).wrapping_mul(self.secret | 1);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A power of two of buckets, at least two.
        (mixed >> (64 - self.keys.len().trailing_zeros())) as usize
    }

    /// The bucket of a reference and its place there.
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

    /// Where the entry of a reference is, which counts as a use.
    #[inline]
    pub fn place(&mut self, gref: GrantRef) -> Option<u16> {
        let place = self.hints[gref.0 as usize % HINTS];
        if let Some(Some((found, mapping))) = self.entries.get_mut(usize::from(place))
            && *found == gref
        {
            mapping.used = self.stamp;
            return Some(place);
        }
        self.search(gref)
    }

    #[cold]
    fn search(&mut self, gref: GrantRef) -> Option<u16> {
        let (bucket, at) = self.locate(gref)?;
        let place = self.places.get(bucket)?[at];
        self.hints[gref.0 as usize % HINTS] = place;
        let (_, mapping) = self.entries.get_mut(usize::from(place))?.as_mut()?;
        mapping.used = self.stamp;
        Some(place)
    }

    #[inline]
    fn at(&self, place: u16) -> Option<&Mapping> {
        self.entries.get(usize::from(place))?.as_ref().map(|(_, mapping)| mapping)
    }

    /// The page of an entry.
    #[inline]
    pub fn page(&self, place: u16) -> Option<&SharedPage> {
        Some(&self.at(place)?.page)
    }

    /// How the page of an entry is mapped.
    #[inline]
    pub fn access(&self, place: u16) -> Option<Access> {
        Some(self.at(place)?.access)
    }

    /// What is mapped for a reference.
    #[inline]
    pub fn find(&mut self, gref: GrantRef) -> Option<&Mapping> {
        let place = self.place(gref)?;
        self.at(place)
    }

    /// The same, without counting as a use.
    pub fn peek(&self, gref: GrantRef) -> Option<&Mapping> {
        let (bucket, at) = self.locate(gref)?;
        let entry = self.entries.get(usize::from(self.places.get(bucket)?[at]))?;
        entry.as_ref().map(|(_, mapping)| mapping)
    }

    /// Adds an entry, or replaces the one of that reference and gives it back.
    ///
    /// # Errors
    ///
    /// The table is full, or the reference is a reserved one: it comes back.
    pub fn insert(&mut self, gref: GrantRef, mapping: Mapping) -> Result<Option<Mapping>, Mapping> {
        if gref.0 < GrantRef::FIRST_FREE {
            return Err(mapping);
        }
        if let Some((bucket, at)) = self.locate(gref) {
            let place = usize::from(self.places[bucket][at]);
            let before = self.entries[place].replace((gref, mapping));
            return Ok(before.map(|(_, mapping)| mapping));
        }
        let Some(place) = self.free.pop() else { return Err(mapping) };
        if !self.put(gref, place) && !self.lay_out_anew(gref, place) {
            self.free.push(place);
            return Err(mapping);
        }
        self.entries[usize::from(place)] = Some((gref, mapping));
        Ok(None)
    }

    /// Takes an entry out.
    pub fn remove(&mut self, gref: GrantRef) -> Option<Mapping> {
        let (bucket, at) = self.locate(gref)?;
        let place = self.places[bucket][at];
        self.keys[bucket].0[at] = FREE;
        self.free.push(place);
        self.entries[usize::from(place)].take().map(|(_, mapping)| mapping)
    }

    /// Takes all of them out.
    pub fn drain(&mut self) -> Vec<Mapping> {
        self.keys.fill(Bucket([FREE; KEYS]));
        // At most LARGEST, which fits.
        self.free = (0..self.entries.len() as u16).rev().collect();
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

    /// Another secret for all that is there, and for one more.
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
        // This one had room for all but the last.
        self.secret = before;
        self.lay_out(&all);
        false
    }

    fn lay_out(&mut self, all: &[(GrantRef, u16)]) -> bool {
        self.keys.fill(Bucket([FREE; KEYS]));
        all.iter().all(|&(gref, place)| self.put(gref, place))
    }
}

/// The next of a sequence of secrets (splitmix64).
fn next_secret(secret: u64) -> u64 {
    let mut z = secret.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number that no guest can know.
pub(super) fn secret() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
