//! `/dev/xen/gntdev`: other domains' grants.

use super::copies::Copies;
use super::pages::Pages;
use super::request::{open, request};
use crate::uapi::{GRANT_COPY, GrantCopy, MAP_GRANT_REF, UNMAP_GRANT_REF, UnmapGrantRef};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};
use std::path::Path;

/// An open gntdev.
#[derive(Debug)]
pub struct Gntdev(OwnedFd);

/// Two words of a request, 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
struct Pair(u32, u32);

impl Pair {
    fn whole(self) -> u64 {
        let ([a, b, c, d], [e, f, g, h]) = (self.0.to_ne_bytes(), self.1.to_ne_bytes());
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Makes the argument of `MAP_GRANT_REF`: {count, 0}, the index, an entry for each grant. Returns
/// `None` for an empty list, or one with too many grants.
fn map_argument(domid: u16, grefs: &[u32]) -> Option<Vec<Pair>> {
    let count = u32::try_from(grefs.len()).ok().filter(|&count| count > 0)?;
    let mut words = Vec::with_capacity(2 + grefs.len());
    words.extend([Pair(count, 0), Pair(0, 0)]);
    words.extend(grefs.iter().map(|&gref| Pair(domid.into(), gref)));
    Some(words)
}

impl Gntdev {
    /// Opens the device.
    pub fn open(path: &Path) -> Result<Self> {
        open(path, OFlags::empty()).map(Self)
    }

    /// Announces a list of grants. Returns the offset at which they are mapped.
    pub fn announce(&self, domid: u16, grefs: &[u32]) -> Result<u64> {
        let mut words = map_argument(domid, grefs).ok_or(Errno::INVAL)?;
        // SAFETY: the argument is a header and as many entries as its count says, which is at least
        // one. The driver reads all, and writes the header back.
        unsafe { request(&self.0, MAP_GRANT_REF, words.as_mut_ptr())? };
        Ok(words[1].whole())
    }

    /// Maps an announced list as a whole.
    pub fn map(&self, index: u64, count: usize, writable: bool) -> Result<Pages> {
        Pages::map(&self.0, index, count, writable)
    }

    /// Forgets an announced list. Pages of it that are still mapped stay mapped.
    pub fn forget(&self, index: u64, count: usize) -> Result<()> {
        let count = u32::try_from(count).map_err(|_| Errno::INVAL)?;
        let mut argument = UnmapGrantRef { index, count, pad: 0 };
        // SAFETY: the driver reads the argument.
        unsafe { request(&self.0, UNMAP_GRANT_REF, &raw mut argument) }.map(drop)
    }

    /// Does a batch of copies, and sets the status of each. After an error the statuses mean
    /// nothing: the driver sets them to okay before it copies, and drops up to 15 copies before the
    /// one that it refuses.
    pub fn copy(&self, copies: &mut Copies<'_, '_>) -> Result<()> {
        let (segments, count) = copies.raw();
        let mut argument =
            GrantCopy { count: u32::try_from(count).map_err(|_| Errno::INVAL)?, segments };
        // SAFETY: the driver reads the argument and `count` segments, and writes their statuses. It
        // copies between grants and the memory that the segments name. This memory is in the arena
        // that `copies` borrows mutably.
        unsafe { request(&self.0, GRANT_COPY, &raw mut argument) }.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::{GrantRefOf, MapGrantRef};
    use std::mem::offset_of;

    #[test]
    fn a_list_is_laid_out_as_the_driver_reads_it() {
        let words = map_argument(7, &[8, 0x0102_0304]).unwrap();
        assert_eq!(words[0], Pair(2, 0));
        assert_eq!(words[2..], [Pair(7, 8), Pair(7, 0x0102_0304)]);
        assert_eq!(offset_of!(MapGrantRef, count), 0);
        assert_eq!(offset_of!(MapGrantRef, index), size_of::<Pair>());
        assert_eq!(offset_of!(MapGrantRef, refs), 2 * size_of::<Pair>());
        assert_eq!(size_of::<GrantRefOf>(), size_of::<Pair>());
        assert_eq!(
            size_of_val(map_argument(7, &[8]).unwrap().as_slice()),
            size_of::<MapGrantRef>()
        );
        assert_eq!(map_argument(7, &[]), None);
        let whole = Pair(u32::from_ne_bytes([1, 2, 3, 4]), u32::from_ne_bytes([5, 6, 7, 8]));
        assert_eq!(whole.whole().to_ne_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
