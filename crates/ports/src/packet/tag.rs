//! VLAN tags that the kernel takes out of a received frame, and that are put back.

/// Bytes of the two addresses that a frame begins with; a tag lies behind them.
pub(super) const ADDRESSES: usize = 12;
/// Bytes of a tag.
pub(super) const TAG: usize = 4;

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    /// Kind of tag: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub kind: u16,
    /// Priority and number of the VLAN.
    pub value: u16,
}

impl Tag {
    fn bytes(self) -> [u8; TAG] {
        let [[a, b], [c, d]] = [self.kind, self.value].map(u16::to_be_bytes);
        [a, b, c, d]
    }
}

/// Puts the tag into a received frame. `buf` has the addresses, then a gap of `gap` bytes (0, or
/// the bytes of a tag), then the other bytes. `len` counts the bytes without the gap. Returns the
/// length of the frame, or `None` if it has no room.
pub(super) fn put_back(buf: &mut [u8], len: usize, gap: usize, tag: Option<Tag>) -> Option<usize> {
    let wanted = if tag.is_some() { TAG } else { 0 };
    if len < ADDRESSES || len + gap.max(wanted) > buf.len() {
        return None;
    }
    if gap != wanted {
        // Only the first frame with a tag, or without one, is moved.
        buf.copy_within(ADDRESSES + gap..len + gap, ADDRESSES + wanted);
    }
    if let Some(tag) = tag {
        buf[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag.bytes());
    }
    Some(len + wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAGGED: Tag = Tag { kind: 0x8100, value: 0x6005 };

    /// Lays a frame of `len` bytes out with a gap, and makes a frame of it.
    fn made(len: usize, gap: usize, tag: Option<Tag>) -> Option<Vec<u8>> {
        let frame: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let mut buf = vec![0xaa; 80];
        let split = len.min(ADDRESSES);
        buf[..split].copy_from_slice(&frame[..split]);
        buf[split + gap..len + gap].copy_from_slice(&frame[split..]);
        let found = put_back(&mut buf, len, gap, tag)?;
        Some(buf[..found].to_vec())
    }

    #[test]
    fn a_tag_lies_behind_the_addresses_whatever_was_expected() {
        let frame: Vec<u8> = (0..60).collect();
        let mut tagged = frame.clone();
        tagged.splice(ADDRESSES..ADDRESSES, [0x81, 0x00, 0x60, 0x05]);
        for gap in [0, TAG] {
            assert_eq!(made(60, gap, Some(TAGGED)).as_ref(), Some(&tagged), "gap {gap}");
            assert_eq!(made(60, gap, None).as_ref(), Some(&frame), "gap {gap}");
        }
    }

    #[test]
    fn a_frame_without_room_or_addresses_is_refused() {
        for gap in [0, TAG] {
            assert_eq!(made(ADDRESSES - 1, gap, None), None);
            assert_eq!(made(ADDRESSES, gap, Some(TAGGED)).map(|frame| frame.len()), Some(16));
        }
        assert_eq!(put_back(&mut [0; 60], 58, 0, Some(TAGGED)), None);
        assert_eq!(put_back(&mut [0; 60], 56, 0, Some(TAGGED)), Some(60));
    }
}
