//! `/dev/xen/gntalloc`: pages of this domain, granted.

use super::pages::{Own, Pages};
use super::request::{open, request};
use crate::uapi::{ALLOC_GREF, ALLOC_WRITABLE, AllocGref, DEALLOC_GREF, DeallocGref};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};
use std::mem::offset_of;
use std::path::Path;

/// An open gntalloc.
#[derive(Debug)]
pub struct Gntalloc(OwnedFd);

/// Number of words of the argument before the references.
const HEAD: usize = offset_of!(AllocGref, grefs) / 4;
/// Least number of words that the driver reads and writes.
const LEAST: usize = size_of::<AllocGref>() / 4;

fn alloc_argument(domid: u16, writable: bool, count: u32) -> Vec<u32> {
    let flags = if writable { ALLOC_WRITABLE } else { 0 };
    let ([a, b], [c, d]) = (domid.to_ne_bytes(), flags.to_ne_bytes());
    let mut words = vec![0; (HEAD + count as usize).max(LEAST)];
    words[0] = u32::from_ne_bytes([a, b, c, d]);
    words[1] = count;
    words
}

impl Gntalloc {
    /// Opens the device.
    pub fn open(path: &Path) -> Result<Self> {
        open(path, OFlags::empty()).map(Self)
    }

    /// Makes zeroed pages and grants them. Returns the offset at which they are mapped, and their
    /// references.
    pub fn alloc(&self, domid: u16, writable: bool, count: usize) -> Result<(u64, Vec<u32>)> {
        let count = u32::try_from(count).map_err(|_| Errno::NOMEM)?;
        let mut words = alloc_argument(domid, writable, count);
        // SAFETY: the argument is a header with room for as many references as its count says. The
        // driver reads the header and writes all of the argument.
        unsafe { request(&self.0, ALLOC_GREF, words.as_mut_ptr())? };
        let ([a, b, c, d], [e, f, g, h]) = (words[2].to_ne_bytes(), words[3].to_ne_bytes());
        let index = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        words.truncate(HEAD + count as usize);
        Ok((index, words.split_off(HEAD)))
    }

    /// Maps pages that were made, as a whole.
    pub fn map(&self, index: u64, count: usize) -> Result<Pages> {
        Pages::map(&self.0, index, count, true)
    }

    /// Makes memory whose pages are granted only to this domain, `own`. Returns the memory, the
    /// offset by which it is given back, and the references.
    pub fn memory(&self, own: u16, count: usize) -> Result<(Own, u64, Vec<u32>)> {
        let (index, grefs) = self.alloc(own, true, count)?;
        match self.map(index, count) {
            // SAFETY: the pages are mapped writable. They are fresh, and no other domain can reach
            // them.
            Ok(pages) => Ok((unsafe { pages.own() }, index, grefs)),
            Err(errno) => {
                // The first error is reported.
                let _ = self.dealloc(index, count);
                Err(errno)
            }
        }
    }

    /// Gives pages back. The driver ends the grants when the pages are no longer mapped, here and
    /// at the peer.
    pub fn dealloc(&self, index: u64, count: usize) -> Result<()> {
        let count = u32::try_from(count).map_err(|_| Errno::INVAL)?;
        let mut argument = DeallocGref { index, count };
        // SAFETY: the driver reads the argument.
        unsafe { request(&self.0, DEALLOC_GREF, &raw mut argument) }.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_laid_out_as_the_driver_reads_it() {
        assert_eq!((HEAD, offset_of!(AllocGref, index)), (4, 8));
        let words = alloc_argument(3, true, 1);
        // The driver writes its whole structure back, including padding.
        assert_eq!(size_of_val(words.as_slice()), size_of::<AllocGref>());
        assert_eq!(words[0].to_ne_bytes(), {
            let ([a, b], [c, d]) = (3u16.to_ne_bytes(), 1u16.to_ne_bytes());
            [a, b, c, d]
        });
        assert_eq!(words[1], 1);
        assert_eq!(alloc_argument(3, false, 100).len(), HEAD + 100);
    }
}
