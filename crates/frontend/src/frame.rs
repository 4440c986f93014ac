//! Received frames that are lent in the pages that the backend wrote them to.

use crate::pool::Held;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use grantway_netif::slots::rx::RxPacket;
use grantway_netif::{Hash, Offload};
use grantway_ring::{SharedPage, VolatileSlice};

/// Most pages of a receive pool.
const PAGES: usize = 256;

/// Pages that came back from their users, one bit each.
#[derive(Debug, Default)]
pub(crate) struct Returned([AtomicU64; PAGES / 64]);

impl Returned {
    fn put(&self, page: u16) {
        if let Some(word) = self.0.get(usize::from(page) / 64) {
            // The reads of the page come before the bit, and its taker sees the bit.
            word.fetch_or(1 << (page % 64), AcqRel);
        }
    }

    /// Calls `take` with each page that came back, and forgets it.
    pub fn collect(&self, mut take: impl FnMut(u16)) {
        for (first, word) in (0u16..).step_by(64).zip(&self.0) {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut pages = word.swap(0, Acquire);
            while pages != 0 {
                // The bit's number is below 64.
                take(first + pages.trailing_zeros() as u16);
                pages &= pages - 1;
            }
        }
    }
}

/// A part of a lent frame, in one page.
pub(crate) struct Part {
    pub page: SharedPage,
    /// The page's number in its pool.
    pub number: u16,
    pub offset: u16,
    pub len: u16,
}

struct Lease {
    parts: Vec<Part>,
    returned: Arc<Returned>,
    // Declared after the parts: the pages go back to the platform after the last frame.
    _lent: Arc<Held>,
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

/// A received frame that its owner keeps as long as needed. When it is dropped, on any thread, its
/// pages may be posted again.
pub struct LentFrame {
    len: usize,
    offload: Offload,
    body: Body,
}

impl LentFrame {
    pub(crate) fn copied(bytes: Vec<u8>, offload: Offload) -> Self {
        Self { len: bytes.len(), offload, body: Body::Copied(bytes) }
    }

    /// Makes a frame in pages that go back to `returned`.
    pub(crate) fn lent(
        parts: Vec<Part>,
        offload: Offload,
        returned: Arc<Returned>,
        lent: Arc<Held>,
    ) -> Self {
        let len = parts.iter().map(|part| usize::from(part.len)).sum();
        Self { len, offload, body: Body::Lent(Lease { parts, returned, _lent: lent }) }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the frame has no bytes, which no frame is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the checksum and segmentation state.
    #[must_use]
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Returns the parts of a lent frame in order, or nothing for a copied frame. The backend chose
    /// the length of each part: the first part may be empty, or shorter than an Ethernet header
    /// (XSA-522).
    pub fn slices(&self) -> impl Iterator<Item = VolatileSlice<'_>> {
        let parts = match &self.body {
            Body::Lent(lease) => lease.parts.as_slice(),
            Body::Copied(_) => &[],
        };
        // Each part was judged to lie in its page.
        parts.iter().filter_map(|part| VolatileSlice::new(&part.page, part.offset, part.len).ok())
    }

    /// Returns the bytes of a copied frame, which nobody else can write, or `None` for a lent
    /// frame.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Copied(bytes) => Some(bytes),
            Body::Lent(_) => None,
        }
    }

    /// Copies the first bytes of the frame to `buf`, once. Returns the number of bytes: as many as
    /// fit.
    pub fn copy_to(&self, buf: &mut [u8]) -> usize {
        let len = self.len.min(buf.len());
        if let Body::Copied(bytes) = &self.body {
            buf[..len].copy_from_slice(&bytes[..len]);
            return len;
        }
        copy_slices(self.slices(), &mut buf[..len])
    }
}

/// A received frame for the time of one call. The backend may still be able to write its bytes:
/// judge a copy, and use only that copy afterwards.
pub struct RxFrame<'a> {
    len: usize,
    offload: Offload,
    hash: Option<Hash>,
    place: Place<'a>,
}

enum Place<'a> {
    One(VolatileSlice<'a>),
    Chain(&'a [VolatileSlice<'a>]),
    Copied(&'a [u8]),
}

impl<'a> RxFrame<'a> {
    /// Makes a frame in one page, without a hash.
    #[inline]
    pub(crate) fn one(slice: VolatileSlice<'a>, offload: Offload) -> Self {
        Self { len: slice.len(), offload, hash: None, place: Place::One(slice) }
    }

    /// Makes a frame in one page or several.
    pub(crate) fn chain(parts: &'a [VolatileSlice<'a>], packet: &RxPacket<'_>) -> Self {
        let RxPacket { len, offload, hash, .. } = *packet;
        Self { len, offload, hash, place: Place::Chain(parts) }
    }

    /// Makes a frame in private memory.
    pub(crate) fn copied(bytes: &'a [u8], packet: &RxPacket<'_>) -> Self {
        let RxPacket { len, offload, hash, .. } = *packet;
        Self { len, offload, hash, place: Place::Copied(bytes) }
    }

    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the frame has no bytes, which no frame is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the checksum and segmentation state.
    #[must_use]
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Returns the hash, if the backend was asked for it. The backend may have written anything.
    #[must_use]
    pub fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// Returns the parts of a lent frame in order, or nothing for a copied frame. The backend chose
    /// the length of each part: the first part may be empty, or shorter than an Ethernet header
    /// (XSA-522).
    #[must_use]
    pub fn slices(&self) -> &[VolatileSlice<'a>] {
        match &self.place {
            Place::One(slice) => core::slice::from_ref(slice),
            Place::Chain(parts) => parts,
            Place::Copied(_) => &[],
        }
    }

    /// Returns the parts of a lent frame behind its first `from` bytes, in order, without empty
    /// ones. Returns nothing for a copied frame. Copy the first bytes with [`RxFrame::copy_to`] and
    /// judge that copy. The bytes of these parts can still change.
    pub fn rest(&self, from: usize) -> impl Iterator<Item = VolatileSlice<'a>> {
        let mut before = from;
        self.slices().iter().filter_map(move |slice| {
            let rest = slice.behind(before);
            before = before.saturating_sub(slice.len());
            (!rest.is_empty()).then_some(rest)
        })
    }

    /// Returns the bytes of a copied frame, which nobody else can write, or `None` for a lent
    /// frame.
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self.place {
            Place::Copied(bytes) => Some(bytes),
            Place::One(_) | Place::Chain(_) => None,
        }
    }

    /// Copies the first bytes of the frame to `buf`, once. Returns the number of bytes: as many as
    /// fit.
    #[inline]
    pub fn copy_to(&self, buf: &mut [u8]) -> usize {
        match self.place {
            Place::Copied(bytes) => {
                let len = bytes.len().min(buf.len());
                buf[..len].copy_from_slice(&bytes[..len]);
                len
            }
            _ => copy_slices(self.slices().iter().copied(), buf),
        }
    }
}

impl fmt::Debug for RxFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lent = !matches!(self.place, Place::Copied(_));
        f.debug_struct("RxFrame").field("len", &self.len).field("lent", &lent).finish()
    }
}

/// Copies the first bytes of parts to `buf`. Returns the number of bytes: as many as fit.
#[inline]
fn copy_slices<'a>(slices: impl Iterator<Item = VolatileSlice<'a>>, buf: &mut [u8]) -> usize {
    let mut at = 0;
    for slice in slices {
        let Some(room) = buf.get_mut(at..).filter(|room| !room.is_empty()) else { break };
        let part = slice.len().min(room.len());
        // The part is no longer than the slice.
        if slice.read(0, &mut room[..part]).is_err() {
            break;
        }
        at += part;
    }
    at
}

impl fmt::Debug for LentFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lent = matches!(self.body, Body::Lent(_));
        f.debug_struct("LentFrame").field("len", &self.len).field("lent", &lent).finish()
    }
}
