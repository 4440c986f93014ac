//! Private memory that begins at the start of a page.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use grantway_netif::PAGE_BYTES;

/// Private bytes that begin at the start of a page, for frames. An allocator would put a block of
/// this length 16 bytes behind the start. Then each frame of 64 bytes would be in two cache lines,
/// and bytes that are copied to or from pages would be 16 bytes off. A grant copy needs one
/// operation for each page, on either side.
#[derive(Debug)]
pub struct PageAligned {
    bytes: Vec<u8>,
    first: usize,
}

impl PageAligned {
    /// Returns `len` bytes, all zero.
    ///
    /// # Panics
    ///
    /// When memory is exhausted.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let mut bytes = vec![0; len + PAGE_BYTES];
        let first = bytes.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
        // The block is not moved from here on.
        bytes.truncate(first + len);
        Self { bytes, first }
    }
}

impl Deref for PageAligned {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.first..]
    }
}

impl DerefMut for PageAligned {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.first..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_with_a_page_and_is_as_long_as_asked() {
        for len in [0, 1, 64, PAGE_BYTES, 300_001] {
            let mut memory = PageAligned::new(len);
            assert_eq!((memory.as_ptr().addr() % PAGE_BYTES, memory.len()), (0, len));
            memory.fill(1);
            assert!(memory.iter().all(|&byte| byte == 1));
        }
    }
}
