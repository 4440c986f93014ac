//! A frame that lies partly in pages that its sender can still write.

use grantway_ring::VolatileSlice;

/// A frame whose first bytes are private, and whose rest lies in its sender's mapped pages.
///
/// Only the private part may be judged. The rest may change at any time. So it is read at most
/// once, all of it, and nothing is concluded from bytes that were there before.
#[derive(Debug, Clone, Copy)]
pub struct SplitFrame<'a> {
    head: &'a [u8],
    rest: &'a [VolatileSlice<'a>],
    len: usize,
}

impl<'a> SplitFrame<'a> {
    /// Returns a frame of these parts, one behind the other.
    #[must_use]
    pub fn new(head: &'a [u8], rest: &'a [VolatileSlice<'a>]) -> Self {
        let len = head.len() + rest.iter().map(VolatileSlice::len).sum::<usize>();
        Self { head, rest, len }
    }

    /// Returns the bytes of the whole frame.
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

    /// Copies the whole frame to the start of `room`, reading each byte once. Returns `None` if
    /// there is too little room.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::send_joined;
    use crate::{CheckPort, Null, Port, Probe};
    use grantway_netif::Offload;
    use grantway_ring::SharedRun;

    #[test]
    fn the_parts_lie_one_behind_the_other() {
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
