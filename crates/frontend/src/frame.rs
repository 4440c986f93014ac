//! A received frame that is lent: in the pages that the backend wrote it to.

use crate::lent::Lent;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use grantway_netif::Offload;
use grantway_ring::{OutOfPage, SharedPage};

/// Pages of a receive pool, at most.
const PAGES: usize = 256;

/// Pages that came back from whoever had them, one bit each.
#[derive(Debug, Default)]
pub(crate) struct Returned([AtomicU64; PAGES / 64]);

impl Returned {
    fn put(&self, page: u16) {
        if let Some(word) = self.0.get(usize::from(page) / 64) {
            // Whoever takes it sees what was read before.
            word.fetch_or(1 << (page % 64), AcqRel);
        }
    }

    /// Calls `take` with each page that came back.
    pub fn collect(&self, mut take: impl FnMut(u16)) {
        for (first, word) in (0u16..).step_by(64).zip(&self.0) {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut pages = word.swap(0, Acquire);
            while pages != 0 {
                // Below 64.
                take(first + pages.trailing_zeros() as u16);
                pages &= pages - 1;
            }
        }
    }
}

/// A stretch of a page that the backend can still write: it is copied out of,
/// or named in a system call, and never looked at in place.
#[derive(Debug, Clone, Copy)]
pub struct VolatileSlice<'a> {
    page: &'a SharedPage,
    offset: u16,
    len: u16,
}

impl VolatileSlice<'_> {
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

/// A stretch of a lent frame.
pub(crate) struct Part {
    pub page: SharedPage,
    /// The page's, in its pool.
    pub number: u16,
    pub offset: u16,
    pub len: u16,
}

struct Lease {
    parts: Vec<Part>,
    returned: Arc<Returned>,
    // Behind the parts: the pages go back to the platform after the last frame.
    _lent: Arc<Lent>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        for part in &self.parts {
            self.returned.put(part.number);
        }
    }
}

enum Body {
    Lent(Lease),
    Copied(Vec<u8>),
}

/// A frame that was received, for as long as its owner likes. Dropped, its pages
/// are posted again, whatever thread it is dropped on.
pub struct LentFrame {
    len: usize,
    offload: Offload,
    body: Body,
}

impl LentFrame {
    pub(crate) fn copied(bytes: Vec<u8>, offload: Offload) -> Self {
        Self { len: bytes.len(), offload, body: Body::Copied(bytes) }
    }

    /// In pages that are to come back to `returned`.
    pub(crate) fn lent(
        parts: Vec<Part>,
        offload: Offload,
        returned: Arc<Returned>,
        lent: Arc<Lent>,
    ) -> Self {
        let len = parts.iter().map(|part| usize::from(part.len)).sum();
        Self { len, offload, body: Body::Lent(Lease { parts, returned, _lent: lent }) }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes, which no frame is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Checksum and segmentation state.
    #[must_use]
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Its stretches, in order, where it is lent; none where it was copied.
    pub fn slices(&self) -> impl Iterator<Item = VolatileSlice<'_>> {
        let parts = match &self.body {
            Body::Lent(lease) => lease.parts.as_slice(),
            Body::Copied(_) => &[],
        };
        parts.iter().map(|part| VolatileSlice {
            page: &part.page,
            offset: part.offset,
            len: part.len,
        })
    }

    /// Its bytes where they were copied already: nobody else writes them.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Copied(bytes) => Some(bytes),
            Body::Lent(_) => None,
        }
    }

    /// Copies its first bytes, as many as fit, out once; how many that were.
    pub fn copy_to(&self, buf: &mut [u8]) -> usize {
        let len = self.len.min(buf.len());
        if let Body::Copied(bytes) = &self.body {
            buf[..len].copy_from_slice(&bytes[..len]);
            return len;
        }
        let mut at = 0;
        for slice in self.slices() {
            let part = slice.len().min(len - at);
            // The stretch was judged to lie in its page.
            if slice.read(0, &mut buf[at..at + part]).is_err() {
                break;
            }
            at += part;
        }
        at
    }
}

impl fmt::Debug for LentFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lent = matches!(self.body, Body::Lent(_));
        f.debug_struct("LentFrame").field("len", &self.len).field("lent", &lent).finish()
    }
}
