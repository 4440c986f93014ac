//! A stretch of a page that a peer can still write.

use crate::memory::{OutOfPage, PAGE_SIZE, SharedPage};
use core::ptr::NonNull;

/// A stretch of a page that a peer can still write: it is copied out of, or
/// named in a system call, and never looked at in place.
#[derive(Debug, Clone, Copy)]
pub struct VolatileSlice<'a> {
    page: &'a SharedPage,
    offset: u16,
    len: u16,
}

impl<'a> VolatileSlice<'a> {
    /// So many bytes of a page, from an offset on.
    ///
    /// # Errors
    ///
    /// They do not lie within the page.
    pub fn new(page: &'a SharedPage, offset: u16, len: u16) -> Result<Self, OutOfPage> {
        match usize::from(offset) + usize::from(len) <= PAGE_SIZE {
            true => Ok(Self { page, offset, len }),
            false => Err(OutOfPage { offset: offset.into(), len: len.into() }),
        }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of its first byte, for an iovec.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.page.as_ptr().map_addr(|addr| addr.saturating_add(self.offset.into()))
    }

    /// Copies bytes out, once, from `at` on.
    ///
    /// # Errors
    ///
    /// They do not lie within the slice.
    pub fn read(&self, at: usize, dst: &mut [u8]) -> Result<(), OutOfPage> {
        let out = OutOfPage { offset: at, len: dst.len() };
        let end = at.checked_add(dst.len()).ok_or(out)?;
        if end > self.len() {
            return Err(out);
        }
        self.page.read(usize::from(self.offset) + at, dst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::SharedRun;

    #[test]
    fn it_lies_within_its_page_and_gives_no_byte_beside_it() {
        let run = SharedRun::private(1);
        let page = run.page(0).unwrap();
        page.write(100, &[1, 2, 3]).unwrap();
        let slice = VolatileSlice::new(&page, 100, 3).unwrap();
        let mut bytes = [0; 2];
        slice.read(1, &mut bytes).unwrap();
        assert_eq!((bytes, slice.len(), slice.is_empty()), ([2, 3], 3, false));
        assert!(slice.read(2, &mut bytes).is_err());
        assert!(slice.read(usize::MAX, &mut bytes).is_err());
        assert_eq!(slice.as_ptr().addr().get(), page.as_ptr().addr().get() + 100);
        for (offset, len, fits) in [(4096, 0, true), (0, 4096, true), (1, 4096, false)] {
            assert_eq!(VolatileSlice::new(&page, offset, len).is_ok(), fits);
        }
        assert!(VolatileSlice::new(&page, u16::MAX, u16::MAX).is_err());
    }
}
