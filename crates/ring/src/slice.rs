//! Parts of pages that are shared with a peer: one to read, and one to fill.

use crate::memory::{OutOfPage, PAGE_SIZE, SharedPage};
use core::ptr::NonNull;

/// Part of a page that a peer can write. Its bytes are copied out, or a system call reads them.
/// They are not read in place.
#[derive(Debug, Clone, Copy)]
pub struct VolatileSlice<'a> {
    page: &'a SharedPage,
    offset: u16,
    len: u16,
}

impl<'a> VolatileSlice<'a> {
    /// Makes a slice of `len` bytes of a page, from `offset` on.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the bytes are not within the page.
    #[inline]
    pub fn new(page: &'a SharedPage, offset: u16, len: u16) -> Result<Self, OutOfPage> {
        within(offset.into(), len.into(), PAGE_SIZE)?;
        Ok(Self { page, offset, len })
    }

    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Returns true if the slice has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte, for an iovec.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.page.as_ptr().map_addr(|addr| addr.saturating_add(self.offset.into()))
    }

    /// Returns the slice without its first `len` bytes. Returns an empty slice if `len` is its
    /// length or more.
    #[inline]
    #[must_use]
    pub fn behind(&self, len: usize) -> Self {
        // The slice has no more bytes, and its end stays where it is.
        let left_out = len.min(self.len()) as u16;
        Self { page: self.page, offset: self.offset + left_out, len: self.len - left_out }
    }

    /// Copies `dst.len()` bytes out of the slice, from `at` on. Reads each byte once.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the bytes are not within the slice.
    #[inline]
    pub fn read(&self, at: usize, dst: &mut [u8]) -> Result<(), OutOfPage> {
        within(at, dst.len(), self.len())?;
        self.page.read(usize::from(self.offset) + at, dst)
    }
}

/// Part of a page that is filled while a peer can read it, and may be able to write it. Bytes are
/// copied in. They are not read in place.
#[derive(Debug)]
pub struct VolatileSliceMut<'a>(VolatileSlice<'a>);

impl<'a> VolatileSliceMut<'a> {
    /// Makes a slice of `len` bytes of a page, from `offset` on; see [`VolatileSlice::new`].
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the bytes are not within the page.
    #[inline]
    pub fn new(page: &'a SharedPage, offset: u16, len: u16) -> Result<Self, OutOfPage> {
        VolatileSlice::new(page, offset, len).map(Self)
    }

    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the slice has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the address of the first byte, for an iovec.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.0.as_ptr()
    }

    /// Borrows the slice without its first `len` bytes. Returns an empty slice if `len` is its
    /// length or more.
    #[must_use]
    pub fn behind(&mut self, len: usize) -> VolatileSliceMut<'_> {
        VolatileSliceMut(self.0.behind(len))
    }

    /// Copies `dst.len()` bytes out of the slice, from `at` on. The peer may have changed them.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the bytes are not within the slice.
    pub fn read(&self, at: usize, dst: &mut [u8]) -> Result<(), OutOfPage> {
        self.0.read(at, dst)
    }

    /// Copies `src` into the slice, from `at` on. Writes each byte once.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the bytes are not within the slice. The slice is unchanged then.
    #[inline]
    pub fn write(&mut self, at: usize, src: &[u8]) -> Result<(), OutOfPage> {
        within(at, src.len(), self.len())?;
        self.0.page.write(usize::from(self.0.offset) + at, src)
    }

    /// Copies the bytes of `src`, a part of another page, into this slice from `at` on, in one
    /// copy.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfPage`] if the bytes do not fit. The slice is unchanged then.
    #[inline]
    pub fn copy_from(&mut self, at: usize, src: VolatileSlice<'_>) -> Result<(), OutOfPage> {
        within(at, src.len(), self.len())?;
        let (offset, from) = (usize::from(self.0.offset) + at, src.offset.into());
        self.0.page.copy_from_page(offset, src.page, from, src.len())
    }
}

/// Checks that `len` bytes from `at` on lie within `of` bytes.
#[inline]
fn within(at: usize, len: usize, of: usize) -> Result<(), OutOfPage> {
    match at.checked_add(len).is_some_and(|end| end <= of) {
        true => Ok(()),
        false => Err(OutOfPage { offset: at, len }),
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
        let mut last = [0];
        assert_eq!(
            (slice.behind(2).len(), slice.behind(3).len(), slice.behind(9999).len()),
            (1, 0, 0)
        );
        slice.behind(2).read(0, &mut last).unwrap();
        assert_eq!(last, [3]);
        assert!(slice.behind(2).read(1, &mut last).is_err());
        for (offset, len, fits) in [(4096, 0, true), (0, 4096, true), (1, 4096, false)] {
            assert_eq!(VolatileSlice::new(&page, offset, len).is_ok(), fits);
        }
        assert!(VolatileSlice::new(&page, u16::MAX, u16::MAX).is_err());
    }

    #[test]
    fn what_is_filled_stays_within_its_stretch() {
        let run = SharedRun::private(2);
        let (page, other) = (run.page(0).unwrap(), run.page(1).unwrap());
        other.write(7, &[5, 6]).unwrap();
        let mut slice = VolatileSliceMut::new(&page, 100, 4).unwrap();
        slice.write(0, &[1, 2, 3]).unwrap();
        slice.copy_from(2, VolatileSlice::new(&other, 7, 2).unwrap()).unwrap();
        assert!(slice.write(3, &[9, 9]).is_err());
        assert!(slice.write(usize::MAX, &[9]).is_err());
        assert!(slice.copy_from(3, VolatileSlice::new(&other, 7, 2).unwrap()).is_err());
        assert_eq!((slice.len(), slice.is_empty()), (4, false));
        let mut bytes = [0; 6];
        page.read(99, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 1, 2, 5, 6, 0]);
        assert!(VolatileSliceMut::new(&page, 4093, 4).is_err());
    }
}
