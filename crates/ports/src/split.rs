//! A frame of which a part is in pages that a peer can still write.

use crate::port::{FrameMeta, RECV_BUFFER};
use arrayvec::ArrayVec;
use grantway_ring::{PAGE_SIZE, VolatileSlice, VolatileSliceMut};

/// A frame whose first bytes are private, and whose rest is in its sender's mapped pages.
///
/// Only the private part may be judged. The rest may change at any time. So it is read at most
/// once, and no decision depends on bytes that were read there.
#[derive(Debug, Clone, Copy)]
pub struct SplitFrame<'a> {
    head: &'a [u8],
    rest: &'a [VolatileSlice<'a>],
    len: usize,
}

impl<'a> SplitFrame<'a> {
    /// Returns a frame of these parts, in this order.
    #[must_use]
    pub fn new(head: &'a [u8], rest: &'a [VolatileSlice<'a>]) -> Self {
        let len = head.len() + rest.iter().map(VolatileSlice::len).sum::<usize>();
        Self { head, rest, len }
    }

    /// Returns the length of the whole frame in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the frame has no bytes, which no real frame is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the private bytes.
    #[must_use]
    pub fn head(&self) -> &'a [u8] {
        self.head
    }

    /// Returns the parts that are not private.
    #[must_use]
    pub fn rest(&self) -> &'a [VolatileSlice<'a>] {
        self.rest
    }

    /// Copies the whole frame to the start of `room`, and reads each byte once. Returns `None` if
    /// `room` is too short.
    pub fn gather<'b>(&self, room: &'b mut [u8]) -> Option<&'b [u8]> {
        let whole = room.get_mut(..self.len)?;
        let (head, mut left) = whole.split_at_mut(self.head.len());
        head.copy_from_slice(self.head);
        for slice in self.rest {
            let (part, behind) = left.split_at_mut(slice.len());
            slice.read(0, part).ok()?;
            left = behind;
        }
        Some(whole)
    }
}

/// Number of pages that are enough for any frame.
pub const FRAME_PAGES: usize = RECV_BUFFER.div_ceil(PAGE_SIZE);

/// Room in pages of a peer, for a frame whose first bytes are received into private memory.
///
/// Only the private bytes may be judged. Other bytes that must be judged or finished are copied out
/// of the pages first.
#[derive(Debug)]
pub struct SplitRoom<'a> {
    head: usize,
    pages: ArrayVec<VolatileSliceMut<'a>, FRAME_PAGES>,
    /// Number of bytes of head and pages.
    len: usize,
}

impl<'a> SplitRoom<'a> {
    /// Returns room without pages. `head` is the number of a frame's bytes that are private.
    #[must_use]
    pub fn new(head: usize) -> Self {
        Self { head, pages: ArrayVec::new(), len: head }
    }

    /// Adds a page behind the others. Returns false if there are [`FRAME_PAGES`] pages already.
    pub fn push(&mut self, page: VolatileSliceMut<'a>) -> bool {
        let len = page.len();
        let pushed = self.pages.try_push(page).is_ok();
        self.len += if pushed { len } else { 0 };
        pushed
    }

    /// Returns the number of a frame's bytes that are private.
    #[must_use]
    pub fn head(&self) -> usize {
        self.head
    }

    /// Returns the number of bytes of head and pages. A frame that fills all of them may have been
    /// cut.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no frame fits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pages, in the order of the frame's bytes.
    #[must_use]
    pub fn pages(&self) -> &[VolatileSliceMut<'a>] {
        &self.pages
    }

    /// Copies the rest of a frame out of the pages to its place in `frame`, which has the first
    /// bytes already. Reads each byte once. Returns false if the pages have fewer bytes.
    pub fn gather(&self, frame: &mut [u8]) -> bool {
        let mut left = frame.get_mut(self.head..).unwrap_or_default();
        for page in &self.pages {
            let (part, behind) = left.split_at_mut(page.len().min(left.len()));
            if page.read(0, part).is_err() {
                return false;
            }
            left = behind;
        }
        left.is_empty()
    }

    /// Sets the bytes that a frame of `len` bytes wrote in the pages to zero, since its receiver
    /// must not get it.
    pub fn wipe(&mut self, len: usize) {
        let mut left = len.saturating_sub(self.head);
        for page in &mut self.pages {
            let part = page.len().min(left);
            // The part is no longer than the page.
            let _ = page.write(0, &[0; PAGE_SIZE][..part]);
            left -= part;
        }
    }
}

/// A frame that was received with [`Port::recv_split`](crate::Port::recv_split).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitMeta {
    /// Length and unfinished work of the frame.
    pub meta: FrameMeta,
    /// Number of the frame's private bytes: all of them, or the number of [`SplitRoom::head`].
    pub private: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::send_joined;
    use crate::{CheckPort, Null, Port, Probe};
    use grantway_netif::Offload;
    use grantway_ring::SharedRun;

    #[test]
    fn the_parts_of_a_frame_follow_each_other() {
        let run = SharedRun::private(2);
        let pages = [run.page(0).unwrap(), run.page(1).unwrap()];
        pages[0].write(4090, &[3, 4, 5, 6, 7, 8]).unwrap();
        pages[1].write(0, &[9, 10]).unwrap();
        let rest = [
            VolatileSlice::new(&pages[0], 4090, 6).unwrap(),
            VolatileSlice::new(&pages[1], 0, 2).unwrap(),
        ];
        let frame = SplitFrame::new(&[1, 2], &rest);
        assert_eq!((frame.len(), frame.is_empty()), (10, false));
        assert_eq!(frame.gather(&mut [0; 12]), Some(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10][..]));
        assert_eq!(frame.gather(&mut [0; 9]), None);
        let mut port = CheckPort::default();
        let offload = Offload::default();
        assert!(port.send_split(&frame, offload, &mut [0; 9]).is_err());
        port.send_split(&frame, offload, &mut [0; 10]).unwrap();
        assert_eq!((port.report().counters.sent, port.report().counters.sent_bytes), (1, 10));
        let mut port = Null::new();
        port.send_split(&frame, offload, &mut []).unwrap();
        assert_eq!((port.report().counters.sent, port.report().counters.sent_bytes), (1, 10));
    }

    #[test]
    fn a_rest_in_pages_is_copied_out_again_or_set_to_zero() {
        let run = SharedRun::private(2);
        let pages = [run.page(0).unwrap(), run.page(1).unwrap()];
        pages[0].write(4090, &[3, 4, 5, 6, 7, 8]).unwrap();
        pages[1].write(0, &[9, 10, 11]).unwrap();
        let mut room = SplitRoom::new(2);
        assert!(room.push(VolatileSliceMut::new(&pages[0], 4090, 6).unwrap()));
        assert!(room.push(VolatileSliceMut::new(&pages[1], 0, 2).unwrap()));
        assert_eq!((room.head(), room.len(), room.pages().len()), (2, 10, 2));
        assert!(!room.is_empty() && SplitRoom::new(0).is_empty());
        let mut frame = [1, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(room.gather(&mut frame));
        assert_eq!(frame, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let mut short = [1, 2, 0, 0];
        assert!(room.gather(&mut short) && short == [1, 2, 3, 4]);
        assert!(room.gather(&mut [1]));
        assert!(!room.gather(&mut [0; 11]));
        room.wipe(9);
        let mut left = [0; 3];
        pages[0].read(4093, &mut left).unwrap();
        assert_eq!(left, [0; 3]);
        pages[1].read(0, &mut left).unwrap();
        assert_eq!(left, [0, 10, 11]);
        for _ in 2..FRAME_PAGES {
            assert!(room.push(VolatileSliceMut::new(&pages[1], 0, 2).unwrap()));
        }
        assert!(!room.push(VolatileSliceMut::new(&pages[1], 0, 2).unwrap()));
    }

    #[test]
    fn pieces_are_joined_where_there_is_room() {
        let pieces = [&[1, 2][..], &[3], &[4, 5, 6]];
        let mut port = Null::new();
        let offload = Offload::default();
        assert!(send_joined(&mut port, &pieces, offload, &mut [0; 5]).is_err());
        let mut room = [0; 7];
        send_joined(&mut port, &pieces, offload, &mut room).unwrap();
        assert_eq!(room, [1, 2, 3, 4, 5, 6, 0]);
        assert_eq!((port.report().counters.sent, port.report().counters.sent_bytes), (1, 6));
    }
}
